"""The run's simulated kernels as Chrome trace JSON for ui.perfetto.dev. Pure.

spec: reading-results, the Perfetto trace.

Process and thread ids count from 1: Perfetto drops ids beyond 32 bits and merges what shares one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cascade_accelsim.demangle import readable_name
from cascade_core.traces.facts import RealKernel
from pydantic import JsonValue

from cascade_api.wire.results import KernelStat

TIME_AXIS = "simulated time, microseconds; each sim's kernels laid end to end"
SLICE_DURATION = "sim_time_ns = gpu_sim_cycle / core clock (MHz) * 1000"
KERNEL_SCOPE = (
    "sequential kernels, each including the configured launch latency; excludes host time and memcpy"
)
OVERLAP = "kernels overlapped: this slice counts from the previous completion and is no duration"

Event = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class SimTrack:
    """One sim and its kernels in order."""

    sim_id: str
    gpu_config: str
    replica: int
    kernels: Sequence[KernelStat]
    engine: str | None = None


def trace_events(
    sims: Sequence[SimTrack], real: Sequence[RealKernel] | None, real_name: str
) -> Iterator[Event]:
    """Every event of the trace: a process a config, a thread a sim, a slice a kernel, then the measured hardware.

    sims: in the order they are shown, sims of one config next to each other.
    """
    pids: dict[str, int] = {}
    tids: dict[str, int] = {}
    for sim in sims:
        if sim.gpu_config not in pids:
            pids[sim.gpu_config] = len(pids) + 1
            yield from _process(pids[sim.gpu_config], f"{sim.gpu_config} · {_made_by(sim.engine)}")
        tids[sim.gpu_config] = tids.get(sim.gpu_config, 0) + 1
        pid, tid = pids[sim.gpu_config], tids[sim.gpu_config]
        yield from _thread(pid, tid, f"replica {sim.replica} · {sim.sim_id}")
        yield from _simulated_slices(pid, tid, sim.kernels)
    if real:
        pid = len(pids) + 1
        yield from _process(pid, f"Real hardware · {real_name}")
        yield from _thread(pid, 1, "measured kernels")
        yield from _real_slices(pid, 1, real)


def other_data(run_id: str, trace_id: str) -> dict[str, JsonValue]:
    """What the trace says of itself."""
    return {
        "run_id": run_id,
        "trace_id": trace_id,
        "time_axis": TIME_AXIS,
        "slice_duration": SLICE_DURATION,
        "kernel_scope": KERNEL_SCOPE,
    }


def _made_by(engine: str | None) -> str:
    if engine == "estimate":
        return "Cascade analytical estimate"
    return "Accel-Sim simulated GPU"


def _process(pid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}


def _thread(pid: int, tid: int, name: str) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "thread_name", "args": {"name": name}, "tid": tid}
    yield {"ph": "M", "pid": pid, "name": "thread_sort_index", "args": {"sort_index": tid}, "tid": tid}


def _simulated_slices(pid: int, tid: int, kernels: Iterable[KernelStat]) -> Iterator[Event]:
    start_ns, start_cycle = 0.0, 0
    for kernel in kernels:
        if kernel.sim_time_ns is None or kernel.gpu_sim_cycle is None:
            continue
        args: dict[str, JsonValue] = {
            "kernel_index": kernel.kernel_index,
            "uid": kernel.kernel_launch_uid,
            "kernel_name": kernel.kernel_name,
            "gpu_sim_cycle": kernel.gpu_sim_cycle,
            "gpu_sim_insn": kernel.gpu_sim_insn,
            "ipc": kernel.gpu_ipc,
            "sim_time_ns": kernel.sim_time_ns,
            "start_cycle": start_cycle,
            "end_cycle": start_cycle + kernel.gpu_sim_cycle,
        }
        if kernel.since_last_completion:
            args["note"] = OVERLAP
        name = _slice_name(kernel.kernel_index, kernel.kernel_name)
        yield _slice(pid, tid, name, _span(start_ns, kernel.sim_time_ns), args)
        start_ns += kernel.sim_time_ns
        start_cycle += kernel.gpu_sim_cycle


def _real_slices(pid: int, tid: int, kernels: Iterable[RealKernel]) -> Iterator[Event]:
    start_ns = 0.0
    for index, kernel in enumerate(sorted(kernels, key=lambda kernel: kernel.kernel_id)):
        if kernel.duration_ns is None:
            continue
        args: dict[str, JsonValue] = {
            "kernel_index": index,
            "kernel_id": kernel.kernel_id,
            "kernel_name": kernel.kernel_name,
            "duration_ns": kernel.duration_ns,
        }
        name = _slice_name(index, kernel.kernel_name)
        yield _slice(pid, tid, name, _span(start_ns, kernel.duration_ns), args)
        start_ns += kernel.duration_ns


def _slice_name(index: int, kernel_name: str) -> str:
    return f"k{index + 1} {readable_name(kernel_name)}"


def _span(start_ns: float, duration_ns: float) -> tuple[float, float]:
    """Start and duration [us]. A slice starts where the rounded one before it ends, or Perfetto would hide one."""
    start, end = round(start_ns / 1000, 3), round((start_ns + duration_ns) / 1000, 3)
    return start, round(end - start, 3)


def _slice(pid: int, tid: int, name: str, span: tuple[float, float], args: dict[str, JsonValue]) -> Event:
    start, duration = span
    head: Event = {"ph": "X", "pid": pid, "tid": tid, "cat": "kernel", "name": name}
    return head | {"ts": start, "dur": duration, "args": args}
