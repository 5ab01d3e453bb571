"""The fixtures that tests of every package share: real servers, started at first use."""

from cascade_cli.embedded.testing import (
    bucket,
    fresh_nats,
    nats_server,
    postgres_server,
    postgres_url,
    s3_server,
    servers_dir,
)

__all__ = [
    "bucket",
    "fresh_nats",
    "nats_server",
    "postgres_server",
    "postgres_url",
    "s3_server",
    "servers_dir",
]
