"""How many blocks share a core and how its memory splits, as the simulator decides at launch."""

from __future__ import annotations

from dataclasses import dataclass

from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import EstimateError


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks resident on one core, what limits them, and the L1 left beside shared memory in bytes."""

    blocks_per_core: int
    limiter: str
    l1_bytes: int


def occupancy(spec: GpuSpec, *, blocks: int, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Occupancy of a grid of `blocks` with `threads` and `shared_bytes` per block, `registers` per thread.

    Threads are rounded up to warps, registers per thread to four (`-gpgpu_shader_registers`).

    Raises:
        EstimateError: when one block does not fit a core.
    """
    padded = (threads + 31) // 32 * 32
    limits = {
        "threads": spec.threads_per_core // padded,
        "cta_limit": spec.blocks_per_core,
    }
    if registers:
        limits["regs"] = spec.registers_per_core // (padded * ((registers + 3) // 4 * 4))
    if shared_bytes:
        limits["shmem"] = spec.shared_bytes_per_core // shared_bytes
    fit = min(limits.values())
    limiter = "+".join(name for name, value in limits.items() if value == fit)
    if fit < 1:
        raise EstimateError(
            f"a block of {threads} threads, {registers} registers a thread and {shared_bytes} bytes of shared memory "
            f"does not fit a core ({limiter})"
        )
    # A grid that cannot fill all cores leaves each with fewer blocks, hence with more L1.
    resident = min(fit, -(-blocks // spec.cores))
    return Occupancy(fit, limiter, _l1_bytes(spec, resident * shared_bytes))


def _l1_bytes(spec: GpuSpec, shared_in_use: int) -> int:
    """L1 after the adaptive split: the smallest shared-memory option that holds what the resident blocks
    use."""
    if not spec.adaptive_l1:
        return spec.l1.size_bytes
    for option_kb in sorted(spec.shared_options_kb):
        if shared_in_use <= option_kb * 1024:
            return max(spec.unified_l1_kb - option_kb, 0) * 1024
    return max(spec.unified_l1_kb * 1024 - spec.shared_bytes_per_core, 0)
