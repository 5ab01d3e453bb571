"""A config by its name, from a folder laid out as Accel-Sim's checkout or as the bundled configs."""

from __future__ import annotations

from pathlib import Path

from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import ConfigError

_GPGPUSIM = Path("gpu-simulator/gpgpu-sim/configs/tested-cfgs")
_TRACE = Path("gpu-simulator/configs/tested-cfgs")


def load_spec(accelsim_dir: str | Path, name: str) -> GpuSpec:
    """Read `<name>/gpgpusim.config` and, where there is one, its `trace.config` below `accelsim_dir`.

    trace.config lies in a folder of its own in Accel-Sim; beside gpgpusim.config is accepted too. Without it
    the latencies are fallbacks that the spec's notes name.

    Raises:
        ConfigError: no such config, or one that lacks a key.
    """
    root = Path(accelsim_dir)
    if "/" in name or "\\" in name or name in {"", ".", ".."}:
        raise ConfigError(name, "a config is named by its folder, such as SM80_A100")
    main = root / _GPGPUSIM / name / "gpgpusim.config"
    if not main.is_file():
        known = ", ".join(sorted(path.parent.name for path in (root / _GPGPUSIM).glob("*/gpgpusim.config")))
        raise ConfigError(name, f"no gpgpusim.config under {root / _GPGPUSIM}; there are: {known or 'none'}")
    traces = [root / _TRACE / name / "trace.config", main.with_name("trace.config")]
    trace = next(
        (path.read_text(encoding="utf-8", errors="replace") for path in traces if path.is_file()), ""
    )
    return GpuSpec.from_config(main.read_text(encoding="utf-8", errors="replace"), trace)
