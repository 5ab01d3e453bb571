"""How the accesses of all active cores meet, as costs: crossbar shares, crowds in a line, channels, convoys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

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
        written_share: of the sectors in L2, those that were written, so that they go to DRAM when they must leave.
        room_lines: lines that this core brings into L2 before others must leave for them.
        brought_lines: lines that it brings into L2 in all.
        l2_lines: lines that this core's data may occupy in L2.
    """

    active: int
    grid: tuple[int, int, int]
    access: dict[int, Access]
    warm: tuple[WarmRange, ...]
    written_share: float
    room_lines: float
    brought_lines: float
    l2_lines: float

    def steady(self) -> Surroundings:
        """For a part that stands for the whole kernel: lines leave a full L2 from the beginning, but fewer."""
        kept = min(self.room_lines / self.brought_lines, 1.0) if self.brought_lines else 1.0
        return replace(self, written_share=self.written_share * (1.0 - kept), room_lines=0.0)


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
        "_merges",
        "_offsets",
        "_orbits",
        "answer_cost",
        "began",
        "channel_share",
        "convoy",
        "crowded",
        "in_step",
        "meeting",
        "owed",
        "send_cost",
        "shared",
        "sharers",
        "slice_share",
    )

    def __init__(
        self, spec: GpuSpec, around: Surroundings, access: Access, addresses: AddressMap | None = None
    ) -> None:
        active = around.active
        addresses = addresses or AddressMap(spec)
        self._active, self._channels = active, spec.channels
        self._offsets = _orbit_offsets(spec, around, access, addresses)
        self._orbits: dict[int, Orbit] = {}
        self.convoy = _convoy(spec, around, access, addresses)
        self.sharers = min(access.sharers, active)
        self.meeting = min(access.meeting, self.sharers)
        self.shared = self.sharers > 1.5
        folded = addresses.folded
        self.slice_share = active * folded / spec.slices
        self.channel_share = active * folded / spec.channels
        self.owed = 0.5
        self.began = -1.0
        self.crowded = self.meeting > spec.l2.mshr_merges
        self._merges = spec.l2.mshr_merges
        together = min(max(self.meeting / _CROWD - 1.0, 0.0), 1.0) if access.first else 0.0
        self.in_step = _OUT_OF_STEP + (_IN_STEP - _OUT_OF_STEP) * together
        # The cores of a cluster that have work share its port to the crossbar; blocks go round the clusters.
        inputs = min(active, spec.clusters)
        sharing, outputs = -(-active // spec.clusters), spec.slices / folded
        send = sharing * inputs / outputs / crossbar_load(inputs / outputs)
        answer = sharing / crossbar_load(outputs / inputs)
        if _apart(spec, around, access, addresses):
            send = answer = float(sharing)
        # The crossbar has a clock of its own; a cluster takes one answer in each of the core's cycles.
        self.send_cost = send * spec.core_mhz / spec.icnt_mhz
        self.answer_cost = max(answer * spec.core_mhz / spec.icnt_mhz, float(sharing))

    def blocked(self, sectors: int, weight: float) -> float:
        """DRAM latencies for which a slice waits when more requests for a line's sectors meet than it merges.

        Args:
            sectors: of the line.
            weight: requests of one core for each sector; more than one only where lanes of an atomic collide,
                which come one right after the other.
        """
        crowd = min(self.meeting * weight / (2.0 * self._merges), 1.0)
        in_step = self.in_step if weight <= 1.0 else max(self.in_step, _IN_STEP)
        return crowd * (1.0 + in_step * (sectors - 1))

    def orbit(self, channel: int) -> Orbit | None:
        """Where the accesses of all cores at this place go, None when they spread over most channels."""
        if self._offsets is None:
            return None
        found = self._orbits.get(channel)
        if found is None:
            members = tuple([(channel + offset) % self._channels for offset in self._offsets])
            found = self._orbits[channel] = Orbit(members, self._active / len(members))
        return found


@dataclass(frozen=True, slots=True)
class Party:
    """Costs of the accesses of blocks that as many cores have: per program counter, and of others.

    Where blocks do not fill the last round, the cores that have one more of them are fewer.
    """

    of_pc: dict[int, Meeting]
    default: Meeting

    @classmethod
    def of(cls, spec: GpuSpec, around: Surroundings, addresses: AddressMap) -> Party:
        """For `around.active` cores."""
        return cls(
            {pc: Meeting(spec, around, access, addresses) for pc, access in around.access.items()},
            Meeting(spec, around, Access(1.0, 1.0, first=False), addresses),
        )


def _apart(spec: GpuSpec, around: Surroundings, access: Access, addresses: AddressMap) -> bool:
    """Whether the cores' accesses stay out of each other's way at the crossbar.

    They do if each takes one sector from a line, neighbouring lines come from different slices and the cores
    do not outnumber those: an output grants its inputs in turn, so a core that had to wait once is a cycle
    behind from then on and finds every further slice free. With several sectors in a row from one slice it
    would meet the others again at each. Hashing keeps no order among slices, so there the cores must be at
    different ones from the beginning.
    """
    lines = access.burst
    if access.step is None or len(lines) < 2 or around.active > spec.slices:
        return False
    if any(mask & (mask - 1) for _, mask in lines):
        return False
    slices = [addresses.locate(line).slice for line, _ in lines]
    if any(one == other for one, other in pairwise(slices)):
        return False
    return not spec.hashed or len(_places(around, access.step, lines[0][0], addresses)) == around.active


def _convoy(spec: GpuSpec, around: Surroundings, access: Access, addresses: AddressMap) -> float:
    """Cycles by which the cores' first access is late because they make it at once, to few slices.

    Known for accesses that move by a constant from block to block where slices are not hashed; hashing
    spreads them.
    """
    if not access.first or access.step is None or not any(access.step) or spec.hashed or not access.burst:
        return 0.0
    places = _places(around, access.step, access.burst[0][0], addresses)
    crowd = around.active / len(places) - around.active / spec.slices
    return max(_CONVOY_TURNS * crowd * _LINE_SECTORS * spec.core_mhz / spec.l2_mhz, 0.0)


def _places(around: Surroundings, step: Step, line: int, addresses: AddressMap) -> set[int]:
    """Slices at which the active cores are when the first of them accesses `line`."""
    return {addresses.locate(line + move).slice for move in _moves(around, step)}


def _moves(around: Surroundings, step: Step) -> Iterator[int]:
    """Lines by which the first blocks' accesses are apart from block 0's, one entry a core."""
    (dx, dy, dz), (width, height, _) = step, around.grid
    for block in range(around.active):
        yield block % width * dx + block // width % height * dy + block // (width * height) * dz


def _orbit_offsets(
    spec: GpuSpec, around: Surroundings, access: Access, addresses: AddressMap
) -> tuple[int, ...] | None:
    """Channels, relative to a block's own, that the active blocks reach with one of their first accesses.

    Known for accesses that move by whole channels from block to block where channels are not hashed; None
    where it is not known or where the channels are many, so that they are about evenly loaded.
    """
    step = access.step
    unit = 1 << max(addresses.channel_bit - LINE_SHIFT, 0)
    if not access.first or step is None or not any(step) or spec.hashed or any(move % unit for move in step):
        return None
    offsets: set[int] = set()
    for move in _moves(around, step):
        offsets.add(move // unit % spec.channels)
        if len(offsets) > _ORBIT or len(offsets) * 2 > spec.channels:
            return None
    return tuple(sorted(offsets))


@dataclass(frozen=True, slots=True)
class Orbit:
    """Channels to which the cores' accesses at one place go, and how many cores go to each."""

    channels: tuple[int, ...]
    cores: float
