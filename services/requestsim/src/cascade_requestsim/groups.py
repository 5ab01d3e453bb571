"""Kernel groups: which part of the model a kernel belongs to, told from its name and launch shape.

The rules are heuristics over the names that vLLM, PyTorch, cuBLAS and FlashAttention give their kernels. The
order of the rules matters and is part of the model: vLLM's cache writer has "flash" in its name, FlashAttention 3
is a CUTLASS kernel, and cuBLASLt's split-K reduction has "cublas" in its name but is no matrix product.
Source: the request model, section 1.1.
"""

import re
from collections.abc import Sequence
from enum import IntEnum
from statistics import median


class Group(IntEnum):
    """The six parts of a step. The value is the index into every per-group tuple of this package."""

    LINEAR = 0
    ATTENTION = 1
    KV_WRITE = 2
    LM_HEAD = 3
    SAMPLER = 4
    ELEMENTWISE = 5


_RULES: tuple[tuple[re.Pattern[str], Group], ...] = (
    (re.compile(r"(reshape|concat)_?and_?cache"), Group.KV_WRITE),
    (re.compile(r"flash|attention|paged|fmha"), Group.ATTENTION),
    (re.compile(r"lm_?head"), Group.LM_HEAD),
    (re.compile(r"argmax|top[_-]?k|softmax|sampl|multinomial"), Group.SAMPLER),
    (re.compile(r"reduce|reduction"), Group.ELEMENTWISE),
    (re.compile(r"gemm|gemv|cublas|cutlass|xmma|nvjet|matmul"), Group.LINEAR),
)
"""First match wins, on the lower-cased name; a kernel that matches nothing is elementwise."""

LM_HEAD_GRID_FACTOR = 2.0
"""The last linear launch is the LM head when its grid is at least this many times the median linear grid."""


def group_of_name(name: str) -> Group:
    """The group that a kernel's name alone tells."""
    lowered = name.lower()
    for pattern, group in _RULES:
        if pattern.search(lowered):
            return group
    return Group.ELEMENTWISE


def grid_volume(grid: str) -> int:
    """Thread blocks in a launch: "24x1x1" is 24.

    Raises ValueError unless the text is one to three positive integers joined by "x".
    """
    parts = grid.split("x")
    if not 1 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"grid {grid!r} is not of the form 24x1x1")
    volume = 1
    for part in parts:
        volume *= int(part)
    if volume < 1:
        raise ValueError(f"grid {grid!r} has no thread blocks")
    return volume


def group_step(names: Sequence[str], grids: Sequence[str]) -> list[Group]:
    """The group of every kernel of one step, in launch order.

    names, grids: one entry a kernel. When no kernel is named as the LM head, the last linear launch takes
    that part if its grid is large enough. Raises ValueError for a linear launch with an unreadable grid.
    """
    groups = [group_of_name(name) for name in names]
    linear = [index for index, group in enumerate(groups) if group is Group.LINEAR]
    if not linear or Group.LM_HEAD in groups:
        return groups
    volumes = [grid_volume(grids[index]) for index in linear]
    if volumes[-1] >= LM_HEAD_GRID_FACTOR * median(volumes):
        groups[linear[-1]] = Group.LM_HEAD
    return groups
