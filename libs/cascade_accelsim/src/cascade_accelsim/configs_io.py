"""Reads an Accel-Sim installation's configs from disk. The only module of the registry that touches files."""

from pathlib import Path
from typing import Final

from cascade_accelsim.configs import CONFIG_FILE, Registry, SkippedConfig, discover

TESTED_CONFIGS: Final = Path("gpu-simulator/gpgpu-sim/configs/tested-cfgs")
MAX_CONFIG_BYTES: Final = 1024 * 1024
"""Real configs have 4 to 8 KB."""


def read_configs(accelsim_dir: Path) -> Registry:
    """The registry of `gpu-simulator/gpgpu-sim/configs/tested-cfgs` below `accelsim_dir`.

    Never raises for what lies there: a missing folder gives an empty registry that says so in `skipped`.
    """
    folder = accelsim_dir / TESTED_CONFIGS
    try:
        directories = [entry for entry in folder.iterdir() if entry.is_dir()]
    except OSError as error:
        return Registry((), (SkippedConfig(str(folder), f"cannot be listed: {error.strerror}"),))
    return discover((directory.name, _text(directory / CONFIG_FILE)) for directory in directories)


def _text(path: Path) -> str | None:
    """Latin-1, which decodes any bytes: comments hold all sorts, options are ASCII."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_CONFIG_BYTES).removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    except OSError:
        return None
