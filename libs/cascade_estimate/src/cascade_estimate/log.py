"""Estimates as a log in Accel-Sim's form, so that whatever reads a simulator's log reads these too.

The banner's `engine =` line and the `estimate_*` keys of every kernel block tell that no simulator ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cascade_estimate.config import GpuSpec
from cascade_estimate.estimate import KernelEstimate

ENGINE = "cascade-estimate"
_SIMULATION_S = 1  # the log states no wall time of its own, so that the same trace gives the same bytes


def accelsim_log(estimates: Iterable[KernelEstimate], spec: GpuSpec, version: str) -> Iterator[str]:
    """Lines, without line ends, of a complete log; lazy, one kernel block after each estimate.

    Args:
        estimates: in launch order.
        spec: the config, for the clock line and the slowdown.
        version: of the engine, for its banner line.
    """
    yield f"Accel-Sim [build {ENGINE}-{version}]"
    yield ""
    yield f"engine = {ENGINE} {version}"
    yield "No simulator ran: the cycles below are estimates, each with an interval for four of five simulations."
    yield ""
    clocks = [clock * 1e6 for clock in (spec.core_mhz, spec.icnt_mhz, spec.l2_mhz, spec.dram_mhz)]
    yield "GPGPU-Sim uArch: clock freqs: " + ":".join(f"{clock:.6f}" for clock in clocks)
    yield "GPGPU-Sim uArch: clock periods: " + ":".join(f"{1.0 / clock:.20f}" for clock in clocks)
    for note in spec.notes:
        yield f"{ENGINE}: {note}"
    yield "GPGPU-Sim uArch: performance model initialization complete."
    cycles = instructions = blocks = 0
    for uid, estimate in enumerate(estimates, 1):
        cycles += estimate.cycles
        instructions += estimate.instructions
        blocks += estimate.header.blocks
        yield from _kernel(estimate, uid)
        yield from _totals(cycles, instructions, blocks)
        yield from _estimate_keys(estimate)
        yield from _simulation(cycles, instructions, spec)
    yield "GPGPU-Sim: *** simulation thread exiting ***"
    yield "GPGPU-Sim: *** exit detected ***"


def _kernel(estimate: KernelEstimate, uid: int) -> Iterator[str]:
    header = estimate.header
    yield f"Processing kernel {estimate.source}"
    yield from header.lines
    yield f"Header info loaded for kernel command : {estimate.source}"
    yield f"launching kernel name: {header.name} uid: {uid} cuda_stream_id: {header.stream}"
    for note in estimate.notes:
        yield f"{ENGINE}: {note}"
    yield f"Destroy streams for kernel {uid}: size 0"
    yield f"kernel_name = {header.name} "
    yield f"kernel_launch_uid = {uid} "
    yield f"kernel_stream_id = {header.stream}"
    yield f"gpu_sim_cycle = {estimate.cycles}"
    yield f"gpu_sim_insn = {estimate.instructions}"
    yield f"gpu_ipc = {estimate.instructions / max(estimate.cycles, 1):12.4f}"


def _totals(cycles: int, instructions: int, blocks: int) -> Iterator[str]:
    yield f"gpu_tot_sim_cycle = {cycles}"
    yield f"gpu_tot_sim_insn = {instructions}"
    yield f"gpu_tot_ipc = {instructions / max(cycles, 1):12.4f}"
    yield f"gpu_tot_issued_cta = {blocks}"


def _estimate_keys(estimate: KernelEstimate) -> Iterator[str]:
    yield f"estimate_low_cycles = {estimate.low}"
    yield f"estimate_high_cycles = {estimate.high}"
    yield f"estimate_bottleneck = {estimate.bottleneck}"
    for name, value in estimate.terms.items():
        yield f"estimate_term_{name} = {value:g}"


def _simulation(cycles: int, instructions: int, spec: GpuSpec) -> Iterator[str]:
    yield f"gpu_total_sim_rate={instructions // _SIMULATION_S}"
    yield ""
    yield ""
    yield f"gpgpu_simulation_time = 0 days, 0 hrs, 0 min, {_SIMULATION_S} sec ({_SIMULATION_S} sec)"
    yield f"gpgpu_simulation_rate = {instructions // _SIMULATION_S} (inst/sec)"
    yield f"gpgpu_simulation_rate = {cycles // _SIMULATION_S} (cycle/sec)"
    rate = cycles // _SIMULATION_S
    yield (
        f"gpgpu_silicon_slowdown = {round(spec.core_mhz * 1e6) // rate}x"
        if rate
        else "gpgpu_silicon_slowdown = Nan"
    )
