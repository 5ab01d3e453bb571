"""The fixtures that tests of every package share: real servers, started at first use."""

import os

from cascade_cli.embedded.testing import (
    bucket,
    fresh_nats,
    nats_server,
    postgres_server,
    postgres_url,
    s3_server,
    servers_dir,
)
from cascade_cli.testing import estimate_app, replay_app
from hypothesis import settings

# Where the tests run must not decide how wide or colourful what they look at is.
for name in (
    "COLUMNS",
    "LINES",
    "FORCE_COLOR",
    "NO_COLOR",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
    "CLICOLOR_FORCE",
):
    os.environ.pop(name, None)

# The machines that run this share their cores: a slow example says nothing of the code.
settings.register_profile("cascade", deadline=None)
settings.load_profile("cascade")

__all__ = [
    "bucket",
    "estimate_app",
    "fresh_nats",
    "nats_server",
    "postgres_server",
    "postgres_url",
    "replay_app",
    "s3_server",
    "servers_dir",
]
