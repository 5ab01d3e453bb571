"""HTTP only: parse, load, decide, append."""
