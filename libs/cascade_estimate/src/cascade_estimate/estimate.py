"""From a kernel's trace and a GPU config to cycles, with the terms behind them and an error bar."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil, floor

from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import EstimateError
from cascade_estimate.header import TraceHeader
from cascade_estimate.intervals import Difficulty, interval
from cascade_estimate.l2state import Region, WarmL2
from cascade_estimate.meetings import Surroundings
from cascade_estimate.occupancy import Occupancy, occupancy
from cascade_estimate.opcodes import Kind, Unit
from cascade_estimate.sampling import CoreTime, core_time
from cascade_estimate.sharing import Access, BlockAccesses, analyse, first_accesses, regular
from cascade_estimate.trace import KernelTrace

MODEL_VERSION = "3"
"""Changes whenever the same trace and config may give other numbers; part of a cache's key."""

_PROGRAM = 600  # instructions in which the first accesses are looked for
_WITNESS_WARPS = 3  # warps per block that are compared
_REGION_ACCESSES = 512  # accesses per warp of the first and last block that show which lines a kernel touches
_BLOCK_ACCESSES = 4096  # the same of all warps together
_WITNESS_ACCESSES = 16  # accesses per warp that are compared between blocks


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """Estimated cycles of one kernel.

    Attributes:
        cycles: core cycles, launch latency included, as the simulator's gpu_sim_cycle.
        low, high: interval that covers the simulator's value four times out of five.
        bottleneck: launch, issue, latency, L1, L2, DRAM or tail.
        terms: core cycles (or a ratio, where the name says so) of each part; they overlap and do not add up.
        instructions: thread instructions, as the simulator's gpu_sim_insn.
        notes: fallbacks and assumptions that apply.
        header: the trace's header.
        source: the trace's file name.
    """

    cycles: int
    low: int
    high: int
    bottleneck: str
    terms: dict[str, float]
    instructions: int
    notes: tuple[str, ...]
    header: TraceHeader
    source: str


def estimate_kernel(trace: KernelTrace, spec: GpuSpec, warm: WarmL2 | None = None) -> KernelEstimate:
    """Estimate one kernel.

    Args:
        trace: from `read_trace`.
        spec: from `GpuSpec.from_config`.
        warm: what earlier kernels and copies left in L2; None for empty caches.

    Raises:
        TraceFormatError: the sampled text is damaged.
        EstimateError: a block does not fit a core of this config.
    """
    header = trace.header
    try:
        placed = occupancy(
            spec,
            blocks=header.blocks,
            threads=header.threads,
            registers=header.registers,
            shared_bytes=header.shared_bytes,
        )
    except EstimateError as error:
        raise EstimateError(f"{trace.source}: {error}") from None
    active = min(header.blocks, spec.cores)
    accesses = _witnesses(trace)
    access = analyse(header.grid, accesses, first_accesses(trace.program(_PROGRAM)))
    read, written = _touched(accesses[0], access, header.blocks)
    l2_lines = spec.l2.size_bytes * spec.slices / 128
    around = Surroundings(
        active=active,
        grid=header.grid,
        access=access,
        warm=warm.resident(l2_lines) if warm else (),
        written_share=written / (read + written) if read + written > l2_lines else 0.0,
        room_lines=l2_lines / active,
        brought_lines=(read + written) / active,
        l2_lines=l2_lines / active,
    )
    resident = min(placed.blocks_per_core, -(-header.blocks // spec.cores))
    core = core_time(trace, spec, around, placed.l1_bytes, resident)
    net = core.cycles + spec.block_launch_latency
    difficulty = _difficulty(core, access, accesses[0], spec, active)
    low, high = interval(net, difficulty)
    terms = _terms(core, spec, placed, header.blocks, difficulty)
    lanes = core.outcome.lanes / max(core.outcome.issued, 1)
    return KernelEstimate(
        cycles=round(net) + spec.launch_latency,
        low=floor(low) + spec.launch_latency,
        high=ceil(high) + spec.launch_latency,
        bottleneck=_bottleneck(terms, net, spec),
        terms=terms,
        instructions=round(trace.instructions * lanes),
        notes=spec.notes + _notes(trace, spec, core),
        header=header,
        source=trace.source,
    )


def _notes(trace: KernelTrace, spec: GpuSpec, core: CoreTime) -> tuple[str, ...]:
    """Fallbacks and assumptions that apply to one kernel."""
    notes = [
        f"opcode {name} is not known: counted as {Unit.SFU.name}, the slowest class"
        for name in sorted(trace.decoder.unknown)
    ]
    if trace.decoder.by_unit_only:
        names = ", ".join(sorted(trace.decoder.by_unit_only))
        notes.append(f"{names}: only the unit's time counts, neither traffic nor waits")
    version = trace.header.binary_version
    if version and f"sm_{version}" != spec.arch:
        notes.append(f"the trace is sm_{version}, the config {spec.arch}")
    if not all(block.whole for block in trace.sample.values()):
        notes.append("blocks too long to be kept are represented by their first warps")
    if core.executed < 1.0:
        notes.append(
            f"{core.executed:.0%} of the busiest core's instructions were executed, the rest follows their pace"
        )
    return tuple(notes)


def _witnesses(trace: KernelTrace) -> dict[int, BlockAccesses]:
    """Accesses of block 0 and of its neighbours along each dimension, at distances 1 and 2 where that tells all."""
    known = trace.witnesses
    if not known:
        header = trace.header
        grid, stride = header.grid, 1
        near: list[int] = [0]
        far: list[int] = []
        for extent in grid:
            distance = 1
            while distance < extent:
                (near if distance <= 2 else far).append(distance * stride)
                distance *= 2
            stride *= extent
        for indices in (near, far):
            for index in indices:
                found = trace.accesses_of(index, _WITNESS_ACCESSES, _WITNESS_WARPS if index else header.warps)
                if found is not None:
                    known[index] = found
            if regular(grid, known):
                break
    return known


def _touched(own: BlockAccesses, access: dict[int, Access], blocks: int) -> tuple[float, float]:
    """Distinct lines that the grid reads and writes, from block 0 and the sharing."""
    read = written = 0.0
    for pc, lines in own.by_pc.items():
        grid_lines = own.scale * len(lines) * blocks / min(access[pc].sharers, blocks)
        if own.kinds[pc] == Kind.STORE:
            written += grid_lines
        else:
            read += grid_lines
    return read, written


def l2_after(trace: KernelTrace, warm: WarmL2 | None = None) -> WarmL2:
    """What L2 holds after the kernel, for the estimate of the next one.

    Ranges of lines per static instruction, from the extremes of the sampled blocks; how densely they are
    touched follows from block 0.
    """
    accesses = _witnesses(trace)
    access = analyse(trace.header.grid, accesses, frozenset())
    lines = sum(_touched(accesses[0], access, trace.header.blocks))
    both_ends = (0, trace.header.blocks - 1)
    warps = trace.header.warps
    most = min(_REGION_ACCESSES, max(_BLOCK_ACCESSES // warps, _WITNESS_ACCESSES))
    extremes = [trace.accesses_of(index, most, warps) for index in both_ends]
    blocks = [*accesses.values(), *(found for found in extremes if found is not None)]
    ends: dict[int, tuple[int, int]] = {}
    for block in blocks:
        for pc, found in block.by_pc.items():
            low, high = ends.get(pc, (min(found), max(found)))
            ends[pc] = min(low, *found), max(high, *found)
    merged: list[list[int]] = []
    for low, high in sorted(ends.values()):
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    span = sum(high - low + 1 for low, high in merged)
    part = min(lines / span, 1.0) if span else 1.0
    known = sorted(set().union(*(block.everything for block in blocks)))
    touched = tuple(
        Region(
            low,
            high + 1,
            (high + 1 - low) * part,
            frozenset(known[bisect_left(known, low) : bisect_right(known, high)]),
        )
        for low, high in merged
    )
    return (warm or WarmL2()).after(touched)


def _difficulty(
    core: CoreTime, access: dict[int, Access], own: BlockAccesses, spec: GpuSpec, active: int
) -> Difficulty:
    traffic = core.outcome.traffic
    cycles = max(core.outcome.cycles, 1.0)
    meeting = total = 0
    for pc, lines in own.by_pc.items():
        total += len(lines)
        if min(access[pc].meeting, active) > spec.l2.mshr_merges:
            meeting += len(lines)
    return Difficulty(
        loaded=min(max(traffic.port_busy, traffic.l2_busy, traffic.dram_busy) / cycles, 1.0),
        meeting=meeting / total if total else 0.0,
        extrapolated=1.0 - core.executed,
    )


def _terms(
    core: CoreTime, spec: GpuSpec, placed: Occupancy, blocks: int, difficulty: Difficulty
) -> dict[str, float]:
    out, traffic = core.outcome, core.outcome.traffic
    net = core.cycles
    grow = net / max(out.cycles, 1.0)
    waves = blocks / (spec.cores * placed.blocks_per_core)
    share = blocks / spec.cores
    tail = 1.0 - share / -(-blocks // spec.cores) if blocks > spec.cores else 0.0
    terms = {
        "launch": float(spec.launch_latency),
        "issue": out.issued / spec.schedulers * grow,
        "l1": out.lsu_busy * grow,
        "shared_conflicts": out.conflict_cycles * grow,
        "crossbar": traffic.port_busy * grow,
        "l2": traffic.l2_busy * grow,
        "dram": traffic.dram_busy * grow,
        "tail": tail * net,
        "waves": waves,
        "blocks_per_core": float(placed.blocks_per_core),
        "l1_miss_ratio": traffic.l1_misses / traffic.l1_sectors if traffic.l1_sectors else 0.0,
        "contention_ratio": difficulty.loaded,
        "meeting_ratio": difficulty.meeting,
        "executed_ratio": core.executed,
        "error_scale": difficulty.scale,
    }
    for unit in Unit:
        if out.unit_busy[unit]:
            terms[f"unit_{unit.name.lower()}"] = out.unit_busy[unit] / spec.schedulers * grow
    return {name: round(value, 3) for name, value in terms.items()}


def _bottleneck(terms: dict[str, float], net: float, spec: GpuSpec) -> str:
    """The part that takes most of the time; latency where none is busy for half of it."""
    if spec.launch_latency > 3.0 * net:
        return "launch"
    busy = {
        "issue": max(
            terms["issue"], *(value for name, value in terms.items() if name.startswith("unit_")), 0.0
        ),
        "L1": terms["l1"],
        "L2": max(terms["crossbar"], terms["l2"]),
        "DRAM": terms["dram"],
    }
    name = max(busy, key=lambda part: busy[part])
    if busy[name] >= 0.5 * net:
        return name
    return "tail" if terms["tail"] >= net / 3.0 else "latency"
