"""A whole app with a finished run."""

from cascade_cli.testing import replay_app

__all__ = ["replay_app"]
