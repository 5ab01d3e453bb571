"""The pairs of one statistics block.

One pass with string methods keeps the last value of every text before an `=`; only what is left, a third of the
lines, is looked at in detail. What such a text means is worked out once and remembered: every block prints the
same ones.

Rules, from the shapes that real logs hold:

- `key = value`, with any blanks: the key may hold blanks, brackets and colons. The last one wins (each memory
  partition repeats some 45 keys).
- `L1D_cache_core[0]: Access = 8, Miss = 3` gives `L1D_cache_core[0]: Access` and `L1D_cache_core[0]: Miss`.
- `n_cmd=8 n_nop=8` and `DRAM[0]: 16 bks, busW=2 BL=16` give bare keys. A key alone on its line wins over the same
  key among several.
- No pairs: banners, echoed options and trace headers, `thread block = ...`, ratios (`bank skew: 16/16 = 1.00`),
  requests in flight.
- A value with a unit, `-nan`, `inf` or `1e400` is text: only finite numbers become floats.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Final

from cascade_accelsim.log.blocks import Stats
from cascade_accelsim.text import clean

MAX_KEY_CHARS: Final = 256
"""Longer text before an `=` is prose or rubbish; the longest real key has 73 characters."""
_KEYS_REMEMBERED: Final = 8192
"""An 80-channel, 132-SM config prints about 700 different texts before an `=`."""

_MAX_LEARNT: Final = 16
"""Pairs on a line that are worth a pattern of their own. Real lines have 11 at most."""

_NO_PAIR: Final = (
    "-",  # echoed options and trace headers
    "GPGPU-Sim",
    "mf:",  # requests in flight, printed with concurrent kernels
    "MSHR:",
    "thread block",
    "cluster id",
    "cluster cta",
    "cluster rank",
)
_RATIO: Final = re.compile(r"(?<!\d)\d+/\d+$")
_LABEL: Final = re.compile(r"([^\s:][^:]*): ([^\s:,]+)")
_INSIDE_PARENTHESES: Final = re.compile(r"(.*\S)\s*\(([^()]+)")
_SEVERAL: Final = re.compile(r"\s*([^\s,=]+)((?:[,\s]+[^\s,=]+[ \t]*=[ \t]*[^\s,=]+)+)[\s,]*")
_NEXT_PAIR: Final = re.compile(r"([^\s,=]+)[ \t]*=[ \t]*([^\s,=]+)")


@dataclass(frozen=True, slots=True)
class _Line:
    """How to read the rest of a line with several pairs, learnt from the first such line."""

    values: re.Pattern[str]
    """Matches a rest with the same keys in the same order; one group a value."""
    keys: tuple[str, ...]


@dataclass(slots=True)
class _Key:
    """What the text before the first `=` of a line stands for."""

    name: str
    label: str = ""
    """Goes before the keys that follow on the same line, `": "` included."""
    until: str = ""
    """The value ends before this character."""
    is_text: bool = False
    """Never read as a number: a kernel may be called 1e5."""
    line: _Line | None = None
    """Only a short cut: what is read does not depend on it."""


@lru_cache(maxsize=_KEYS_REMEMBERED)
def _key(before_equals: str) -> _Key | None:
    """None when lines that begin so hold no pair."""
    name = clean(before_equals)
    if not name or name.startswith(_NO_PAIR) or _RATIO.search(name):
        return None
    if name == "kernel_name":
        return _Key(name, is_text=True)
    if labelled := _LABEL.fullmatch(name):
        return _Key(name, label=f"{labelled[1]}: ")
    if "(" in name and ")" not in name and (inside := _INSIDE_PARENTHESES.fullmatch(name)):
        return _Key(f"{inside[1]}: {inside[2]}", until=")")
    return _Key(name.rpartition(", ")[2])


def value_of(text: str) -> float | str:
    """A finite float, or the text itself, cleaned. Python's underscores and other digits than 0-9 are text."""
    try:
        number = float(text)
    except ValueError:
        return clean(text)
    if isfinite(number) and "_" not in text and text.isascii():
        return number
    return clean(text)


def block_stats(text: str) -> Stats:
    """Every pair of a block. `text` is its lines, joined by newlines, without terminal escapes."""
    last: dict[str, str] = {}
    for line in text.split("\n"):
        if "=" in line:
            before_equals, _, rest = line.partition("=")
            before_equals = before_equals.strip()
            if len(before_equals) <= MAX_KEY_CHARS:  # else it would also be remembered
                last[before_equals] = rest
    kernel_name: str | None = None
    alone: dict[str, str] = {}
    among: dict[str, str] = {}
    for before_equals, rest in last.items():
        key = _key(before_equals)
        if key is None:
            continue
        if key.is_text:
            kernel_name = clean(rest)
            alone[key.name] = rest  # its place among the keys
        elif "=" not in rest:
            alone[key.name] = rest if not key.until else rest.partition(key.until)[0]
        elif key.line is not None and (values := key.line.values.fullmatch(rest)):
            among.update(zip(key.line.keys, values.groups(), strict=True))
        elif (several := _SEVERAL.fullmatch(rest)) is not None:
            pairs: list[tuple[str, str]] = _NEXT_PAIR.findall(several[2])
            key.line = _learnt(key, [name for name, _ in pairs])
            among[key.name] = several[1]
            among.update((key.label + clean(name), value) for name, value in pairs)
        elif not _RATIO.match(rest.partition("=")[0].strip()):
            alone[key.name] = rest
    stats: Stats = {}
    for name, value in (alone | among | alone).items():
        try:  # value_of, without a call for each of some thousand values
            number = float(value)
        except ValueError:
            stats[name] = clean(value)
            continue
        stats[name] = number if isfinite(number) and "_" not in value and value.isascii() else clean(value)
    if kernel_name is not None:
        stats["kernel_name"] = kernel_name
    return stats


def _learnt(key: _Key, names: list[str]) -> _Line | None:
    if len(names) > _MAX_LEARNT or max(map(len, names)) > MAX_KEY_CHARS:
        return None
    return _Line(_values(tuple(names)), (key.name, *(key.label + clean(name) for name in names)))


@lru_cache(maxsize=64)
def _values(names: tuple[str, ...]) -> re.Pattern[str]:
    """A stricter `_SEVERAL`: these keys only. Real logs have six such shapes."""
    rest = "".join(rf"[,\s]+{re.escape(name)}[ \t]*=[ \t]*([^\s,=]+)" for name in names)
    return re.compile(rf"\s*([^\s,=]+){rest}[\s,]*")
