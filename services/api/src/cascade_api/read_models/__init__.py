"""Postgres read models: rebuilt from the log at any time."""
