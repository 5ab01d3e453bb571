"""Builders and in-memory ports for tests of any package."""
