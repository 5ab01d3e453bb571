"""GPU configs: Accel-Sim's `gpgpusim.config` text and the registry made of a `tested-cfgs` folder.

The simulator drops what follows `#`, joins the lines and splits on white space, so a value may stand on the next line
or behind another option, and the last setting wins (FORMAT notes: gpgpusim.config).
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

CLOCK_OPTION: Final = "-gpgpu_clock_domains"
CONFIG_FILE: Final = "gpgpusim.config"
_OPTION: Final = re.compile(r"-[A-Za-z_]")
_DIRECTORY: Final = re.compile(r"SM(\d{1,3})(?=_|$)")
_MHZ: Final = re.compile(r"\+?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """One config that sims can run on. spec: types, GpuConfig."""

    name: str
    """The `tested-cfgs` directory, such as SM90_H100."""
    arch: str
    """Such as sm_90."""
    core_clock_mhz: float
    """The first clock domain. [MHz]"""


@dataclass(frozen=True, slots=True)
class SkippedConfig:
    """A directory that is no usable config, with the reason for the operator."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Registry:
    """What a folder of configs holds, each list sorted by name."""

    configs: tuple[GpuConfig, ...]
    skipped: tuple[SkippedConfig, ...]

    def by_name(self) -> Mapping[str, GpuConfig]:
        return {config.name: config for config in self.configs}


def parse_options(text: str) -> dict[str, str]:
    """Options and values of a config text, dashes kept; later settings replace earlier ones.

    A value in double quotes keeps its inner blanks, as single ones. An option without a value has the empty text.
    `-config` includes are listed like any option and not followed.
    """
    tokens = [token for line in text.split("\n") for token in line.partition("#")[0].split()]
    options: dict[str, str] = {}
    position = 0
    while position < len(tokens):
        name = tokens[position]
        position += 1
        if not _OPTION.match(name):
            continue
        if position == len(tokens) or _OPTION.match(tokens[position]):
            options[name] = ""
            continue
        value = [tokens[position]]
        position += 1
        if value[0].startswith('"'):
            while not (value[-1].endswith('"') and value != ['"']) and position < len(tokens):
                value.append(tokens[position])
                position += 1
        options[name] = " ".join(value).strip('"')
    return options


def arch_of(directory: str) -> str | None:
    """`sm_90` for `SM90_H100`, `sm_70` for `SM7_QV100`, None for a name without `SM<number>` at its start."""
    version = _DIRECTORY.match(directory)
    if version is None or int(version[1]) == 0:
        return None
    return f"sm_{int(version[1])}0" if len(version[1]) == 1 else f"sm_{int(version[1])}"


def core_clock_mhz(options: Mapping[str, str]) -> float | None:
    """The first clock domain, or None where it is missing, not a number, or not above zero. [MHz]"""
    first = options.get(CLOCK_OPTION, "").partition(":")[0]
    if _MHZ.fullmatch(first) is None:
        return None
    clock = float(first)
    return clock if clock > 0 and math.isfinite(clock) else None


def discover(directories: Iterable[tuple[str, str | None]]) -> Registry:
    """The registry of `(directory name, text of its gpgpusim.config or None)`. A bad one never stops the others."""
    configs: list[GpuConfig] = []
    skipped: list[SkippedConfig] = []
    for name, text in sorted(directories, key=lambda directory: directory[0]):
        found = _config(name, text)
        if isinstance(found, GpuConfig):
            configs.append(found)
        else:
            skipped.append(SkippedConfig(name, found))
    return Registry(tuple(configs), tuple(skipped))


def _config(name: str, text: str | None) -> GpuConfig | str:
    arch = arch_of(name)
    if arch is None:
        return "the directory name does not begin with SM and a number, such as SM90_H100"
    if text is None:
        return f"the directory holds no {CONFIG_FILE} that can be read"
    options = parse_options(text)
    if CLOCK_OPTION not in options:
        return f"{CONFIG_FILE} does not set {CLOCK_OPTION}"
    clock = core_clock_mhz(options)
    if clock is None:
        return (
            f"{CLOCK_OPTION} begins with {options[CLOCK_OPTION][:80]!r}, expected a core clock in MHz above 0"
        )
    return GpuConfig(name, arch, clock)
