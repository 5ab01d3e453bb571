"""The `cascade` command: serve, demo, doctor, bench, and the embedded servers."""
