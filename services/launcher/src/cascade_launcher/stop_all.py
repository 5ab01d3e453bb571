"""`python -m cascade_launcher.stop_all`: end every local sim of a data directory, whichever launcher started it.

For whoever runs launchers and stops for good: one that was killed could end none, and the one after it ends another's
sims only while it leads. Reads the launcher's own settings. Not for use beside a launcher that may still lead.
"""

import asyncio
import sys

import structlog
from cascade_core import telemetry
from cascade_core.settings import load

from cascade_launcher.backends.local import stop_all
from cascade_launcher.settings import LauncherSettings

_logger = structlog.get_logger(__name__)


def main() -> int:
    """End them; returns the exit code."""
    settings = load(LauncherSettings)
    telemetry.configure(settings, service="launcher")
    stopped = asyncio.run(stop_all(settings.data_dir))
    if stopped:
        _logger.warning("ended sims that no launcher had ended", sims=stopped)
    return 0


if __name__ == "__main__":
    sys.exit(main())
