"""NATS, Postgres and S3 as child processes, from the servers that the installed wheels carry.

`EmbeddedStack` starts all three on loopback and gives their URLs. Nothing in here knows what Cascade keeps in them.
"""
