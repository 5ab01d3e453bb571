"""What the replay computed for a step and for a repeat, before it becomes JSON."""

from collections.abc import Mapping
from dataclasses import dataclass

from cascade_timing.fields import Number
from cascade_timing.timeline import Kernel, Step


@dataclass(frozen=True, slots=True)
class StepReplay:
    """One steady step after the replay. All in ns."""

    step: Step
    start_offset_ns: Number
    """From the start of the repeat's first step."""
    wall_ns: Number
    busy_ns: Number | None
    """None where the step was not profiled: then nothing in it was modelled and `wall_ns` is measured."""
    host_ns: Number | None
    durations_ns: Mapping[int, Number]
    """seq → simulated duration, for the replaced kernels only."""

    @property
    def modelled(self) -> bool:
        """Whether the step's GPU time was known, so that kernels in it could be replaced."""
        return self.busy_ns is not None

    @property
    def end_offset_ns(self) -> Number:
        """End of the step, from the start of the repeat's first step."""
        return self.start_offset_ns + self.wall_ns

    def duration_ns(self, kernel: Kernel) -> Number:
        """The kernel's simulated duration, or its measured one where it was not replaced."""
        return self.durations_ns.get(kernel.seq, kernel.duration_ns)


@dataclass(frozen=True, slots=True)
class RepeatReplay:
    """The steady steps of one repeat, laid end to end; there is at least one."""

    first_start_ns: Number | None
    """Measured start of the first step; None in a timeline without timestamps."""
    steps: tuple[StepReplay, ...]

    def at(self, offset_ns: Number) -> Number | None:
        """The absolute time of an offset, or None in a timeline without timestamps."""
        return None if self.first_start_ns is None else self.first_start_ns + offset_ns
