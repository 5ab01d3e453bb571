"""HTTP gateway, live events, read models and the web UI."""
