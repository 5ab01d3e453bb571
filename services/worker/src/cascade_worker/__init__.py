"""The built-in simulator client that a launcher starts."""
