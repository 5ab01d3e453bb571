"""Step timing after a successful sim, on a trace that carries a measured timeline.

Optional by nature: whatever goes wrong is a log line, and the sim stays succeeded (spec: simulator, Step
timing).
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cascade_timing import StepTiming, TimingError, time_steps
from cascade_timing.io import read_mapping, read_timeline

from cascade_worker.errors import FencedOffError, GatewayError
from cascade_worker.gateway import Gateway

TIMELINE_NAME = "corrected_timeline.json"
MAPPING_NAME = "kernel_mapping.json"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedKernel:
    """One kernel of the log, as the step-timing model identifies it."""

    uid: int | None
    name: str
    cycles: int | None


async def send_step_timing(
    gateway: Gateway, *, trace_dir: Path, kernels: Sequence[FinishedKernel], core_clock_mhz: float | None
) -> None:
    """Compute and send both results, or write one log line that says why not. Raises FencedOffError only.

    core_clock_mhz: the config's core clock; None when it is not known. [MHz]
    """
    timeline, mapping = trace_dir / TIMELINE_NAME, trace_dir / MAPPING_NAME
    missing = [path.name for path in (timeline, mapping) if not path.is_file()]
    if missing:
        _log.info("no step timing: the trace has no %s", " and no ".join(missing))
        return
    if core_clock_mhz is None:
        _log.warning("no step timing: the config's core clock is not known")
        return
    try:
        # In a thread: a timeline of many steps takes seconds, and heartbeats go on.
        timing = await asyncio.to_thread(_compute, timeline, mapping, kernels, core_clock_mhz)
        await gateway.send_step_timing(simulated=timing.simulated, compare=timing.compare)
    except FencedOffError:
        raise
    except TimingError as error:
        _log.warning("no step timing: %s", error)
    except GatewayError as error:
        _log.warning("step timing could not be sent: %s", error)


def _compute(
    timeline: Path, mapping: Path, kernels: Sequence[FinishedKernel], core_clock_mhz: float
) -> StepTiming:
    return time_steps(
        read_timeline(timeline),
        read_mapping(mapping),
        [(kernel.uid, kernel.name, kernel.cycles) for kernel in kernels],
        core_clock_mhz,
    )
