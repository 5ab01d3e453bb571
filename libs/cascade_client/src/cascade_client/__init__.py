"""Typed Python client of the Cascade HTTP API, sync and async."""
