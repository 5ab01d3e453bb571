"""How the accesses of all active cores meet, as costs: crossbar shares, crowds in a line, channels, convoys."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cascade_estimate.addressing import AddressMap
from cascade_estimate.coalesce import LINE_SHIFT
from cascade_estimate.config import GpuSpec
from cascade_estimate.l2state import WarmRange
from cascade_estimate.sharing import Access, Step

# Cores that meet in a line request its sectors one after the other. As far as they do so in step, each
# sector keeps its slice waiting for DRAM; otherwise the first core has asked for all of them before the
# others come.
_CROWD = 16.0  # cores that meet, from which on they keep each other in step; all of them do at twice as many
_IN_STEP = 0.7  # in a program's first accesses
_OUT_OF_STEP = 0.15  # later
# Times that a line's slice must pass all cores until these are out of step: the first who are through the
# slice of their first line find that of the second idle, so from the second on the cores follow each other.
_CONVOY_TURNS = 2.0
_ORBIT = 8  # channels; accesses that spread further are taken to spread evenly
_LINE_SECTORS = 4


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The rest of the machine during the kernel.

    Attributes:
        active: cores with work.
        grid: blocks along each dimension.
        access: per program counter, how the blocks' accesses meet (sharers are counted in blocks).
        warm: ranges of lines that are in L2 before the kernel begins.
        evicted_share: share of written sectors that go to DRAM because L2 overflows.
        l2_lines: lines that this core's data may occupy in L2.
    """

    active: int
    grid: tuple[int, int, int]
    access: dict[int, Access]
    warm: tuple[WarmRange, ...]
    evicted_share: float
    l2_lines: float


def crossbar_load(ratio: float) -> float:
    """Highest load of an output of an input-queued crossbar with `ratio` inputs an output.

    Head-of-line blocking under uniform traffic (Karol, Hluchyj and Morgan 1987): the heads of all queues
    wait at the outputs, each an M/D/1 queue, so load + load^2 / (2 (1 - load)) = ratio; 0.586 for as many
    inputs as outputs.
    """
    return 1.0 + ratio - math.hypot(1.0, ratio)


class Meeting:
    """Costs of one static instruction's accesses, derived from how the cores' accesses meet."""

    __slots__ = (
        "_active",
        "_channels",
        "_offsets",
        "_orbits",
        "answer_cost",
        "began",
        "channel_share",
        "convoy",
        "crowd",
        "crowded",
        "in_step",
        "meeting",
        "owed",
        "send_cost",
        "shared",
        "sharers",
        "slice_share",
    )

    def __init__(self, spec: GpuSpec, around: Surroundings, access: Access) -> None:
        active = around.active
        self._active, self._channels = active, spec.channels
        self._offsets = _orbit_offsets(spec, around, access.step)
        self._orbits: dict[int, Orbit] = {}
        self.convoy = _convoy(spec, around, access)
        self.sharers = min(access.sharers, active)
        self.meeting = min(access.meeting, self.sharers)
        self.shared = self.sharers > 1.5
        self.slice_share = active / spec.slices
        self.channel_share = active / spec.channels
        self.owed = 0.5
        self.began = -1.0
        self.crowded = self.meeting > spec.l2.mshr_merges
        self.crowd = min(self.meeting / (2.0 * spec.l2.mshr_merges), 1.0)
        together = min(max(self.meeting / _CROWD - 1.0, 0.0), 1.0) if access.first else 0.0
        self.in_step = _OUT_OF_STEP + (_IN_STEP - _OUT_OF_STEP) * together
        # A cluster's cores share its port to the crossbar.
        sharing, outputs = spec.cores_per_cluster, spec.slices
        inputs = -(-active // sharing)
        self.send_cost = sharing * inputs / outputs / crossbar_load(inputs / outputs)
        self.answer_cost = sharing / crossbar_load(outputs / inputs)

    def orbit(self, channel: int) -> Orbit | None:
        """Where the accesses of all cores at this place go, None when they spread over most channels."""
        if self._offsets is None:
            return None
        found = self._orbits.get(channel)
        if found is None:
            members = tuple([(channel + offset) % self._channels for offset in self._offsets])
            found = self._orbits[channel] = Orbit(members, self._active / len(members))
        return found


def _convoy(spec: GpuSpec, around: Surroundings, access: Access) -> float:
    """Cycles by which the cores' first access is late because they make it at once, to few slices.

    Known for accesses that move by a constant from block to block where slices are not hashed; hashing
    spreads them.
    """
    if not access.first or access.step is None or not any(access.step) or spec.partition_hash:
        return 0.0
    addresses, (dx, dy, dz) = AddressMap(spec), access.step
    width, height, depth = around.grid
    origin = (abs(dx) * width + abs(dy) * height + abs(dz) * depth) | 1  # steps may lead downwards
    places: set[int] = set()
    for block in range(around.active):
        x, y, z = block % width, block // width % height, block // (width * height)
        places.add(addresses.locate(origin + x * dx + y * dy + z * dz).slice)
    crowd = around.active / len(places) - around.active / spec.slices
    return max(_CONVOY_TURNS * crowd * _LINE_SECTORS * spec.core_mhz / spec.l2_mhz, 0.0)


def _orbit_offsets(spec: GpuSpec, around: Surroundings, step: Step | None) -> tuple[int, ...] | None:
    """Channels, relative to a block's own, that the active blocks reach at one place of their program.

    Known for accesses that move by whole channels from block to block where channels are not hashed; None
    where it is not known or where the channels are many, so that they are about evenly loaded.
    """
    unit = 1 << max(AddressMap(spec).channel_bit - LINE_SHIFT, 0)
    if step is None or not any(step) or spec.partition_hash or any(move % unit for move in step):
        return None
    width, height, _ = around.grid
    offsets: set[int] = set()
    for block in range(around.active):
        x, y, z = block % width, block // width % height, block // (width * height)
        offsets.add((x * step[0] + y * step[1] + z * step[2]) // unit % spec.channels)
        if len(offsets) > _ORBIT or len(offsets) * 2 > spec.channels:
            return None
    return tuple(sorted(offsets))


@dataclass(frozen=True, slots=True)
class Orbit:
    """Channels to which the cores' accesses at one place go, and how many cores go to each."""

    channels: tuple[int, ...]
    cores: float
