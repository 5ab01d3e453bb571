"""Server-sent events: a snapshot, then the tail of the log, joined by position."""
