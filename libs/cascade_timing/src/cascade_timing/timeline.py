"""The step timeline as typed values, and its parser.

A timeline is what the profiler measured (`corrected_timeline.json`) or what the replay made of it
(`simulated_timeline.json`); both have one layout. Only what the model needs is typed. Each record also keeps
the JSON object that it came from, because the replay copies every other field through unread.

Source: the step-timing page, section 1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from cascade_timing.errors import InvalidInputError
from cascade_timing.fields import Fields, Number, check_strict, fields_of, shown


class StepKind(StrEnum):
    """What a step did: process the prompt, or decode one token a request."""

    PREFILL = "prefill"
    DECODE = "decode"


class KernelKey(NamedTuple):
    """What identifies a kernel in a timeline."""

    repeat: int
    step: int
    seq: int

    def __str__(self) -> str:
        return f"repeat {self.repeat}, step {self.step}, seq {self.seq}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel launch of a profiled step."""

    seq: int
    duration_ns: Number
    """0 or more."""
    start_offset_ns: Number
    """From the start of the profiled step; negative if the kernel began before it."""
    raw: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Step:
    """One engine step. Walls are of the unprofiled run unless the name says profiled."""

    repeat: int
    step: int
    warmup: bool
    kind: StepKind
    baseline_wall_ns: Number
    profiled_wall_ns: Number | None
    gpu_busy_ns: Number | None
    """Length of the union of all GPU activity; None where the step was not profiled."""
    baseline_wall_start_ns: Number | None
    baseline_gap_before_ns: Number | None
    """Idle time since the end of the previous step; None on the first step of a repeat."""
    kernels: tuple[Kernel, ...]
    raw: Mapping[str, object]

    @property
    def steady(self) -> bool:
        """Whether the step counts at all: warm-up steps are in no statistic."""
        return not self.warmup


@dataclass(frozen=True, slots=True)
class Request:
    """One request; a repeat serves exactly one. All five `_ms` values may be unmeasured (None)."""

    repeat: int
    warmup: bool
    queued_ms: Number | None
    ttft_ms: Number | None
    itl_ms_mean: Number | None
    itl_ms_p50: Number | None
    e2e_ms: Number | None
    arrival_ns: Number | None
    pre_first_step_ns: Number | None
    post_last_step_ns: Number | None
    """From the end of the last step to the end of the request; often negative."""
    raw: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A whole measured or simulated run."""

    meta: Mapping[str, object]
    steps: tuple[Step, ...]
    """In the file's order, which within a repeat is the order of time."""
    requests: tuple[Request, ...]
    simulated: bool
    """Whether a replay wrote it (its summary has `simulation`)."""

    def steady_steps(self) -> Iterator[Step]:
        """The steps that count, in the file's order."""
        return (step for step in self.steps if step.steady)


def parse_timeline(document: object) -> Timeline:
    """The timeline in a parsed JSON document.

    Raises:
        InvalidInputError: a needed field is missing or impossible, a step or kernel appears twice, steps of
            a repeat are out of order, or a repeat has two steady requests.
    """
    top = fields_of(document, "", what="a step timeline with steps and requests")
    meta = top.raw.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise top.wrong("meta", meta, "an object")
    check_strict(meta, "meta")
    summary = top.raw.get("summary")
    steps = tuple(_step(fields) for fields in top.objects("steps"))
    requests = tuple(_request(fields) for fields in top.objects("requests"))
    _check_step_order(steps)
    _check_one_request_a_repeat(requests)
    return Timeline(meta, steps, requests, isinstance(summary, Mapping) and "simulation" in summary)


def as_timeline(timeline: Timeline | Mapping[str, object]) -> Timeline:
    """A timeline that may still be a parsed JSON document."""
    return timeline if isinstance(timeline, Timeline) else parse_timeline(timeline)


_KERNEL_FIELDS = frozenset({"seq", "name", "duration_ns", "start_offset_ns"})


def _kernel(fields: Fields) -> Kernel:
    _check_unread(fields, _KERNEL_FIELDS)
    fields.text("name")  # only copied, but whoever reads the result relies on it
    return Kernel(
        seq=fields.integer("seq", minimum=0),
        duration_ns=fields.number("duration_ns", minimum=0),
        start_offset_ns=fields.number("start_offset_ns"),
        raw=fields.raw,
    )


_STEP_FIELDS = frozenset(
    {"repeat", "step", "warmup", "kind", "kernels", "baseline_wall_ns", "profiled_wall_ns", "gpu_busy_ns"}
    | {"baseline_wall_start_ns", "baseline_gap_before_ns"}
)


def _step(fields: Fields) -> Step:
    _check_unread(fields, _STEP_FIELDS)
    kind = fields.text("kind")
    if kind not in tuple(StepKind):
        raise fields.wrong("kind", kind, "'prefill' or 'decode'")
    kernels = tuple(_kernel(kernel) for kernel in fields.objects("kernels"))
    seen: set[int] = set()
    for kernel in kernels:
        if kernel.seq in seen:
            raise InvalidInputError(
                f"{fields.where} has two kernels with seq {kernel.seq}; expected seq to be unique in its step"
            )
        seen.add(kernel.seq)
    return Step(
        repeat=fields.integer("repeat"),
        step=fields.integer("step"),
        warmup=fields.flag("warmup"),
        kind=StepKind(kind),
        baseline_wall_ns=fields.number("baseline_wall_ns", minimum=0),
        profiled_wall_ns=fields.optional_number("profiled_wall_ns", minimum=0),
        gpu_busy_ns=fields.optional_number("gpu_busy_ns", minimum=0),
        baseline_wall_start_ns=fields.optional_number("baseline_wall_start_ns"),
        baseline_gap_before_ns=fields.optional_number("baseline_gap_before_ns", minimum=0),
        kernels=kernels,
        raw=fields.raw,
    )


_REQUEST_FIELDS = frozenset(
    {"repeat", "warmup", "queued_ms", "ttft_ms", "itl_ms_mean", "itl_ms_p50", "e2e_ms"}
    | {"arrival_ns", "pre_first_step_ns", "post_last_step_ns"}
)


def _request(fields: Fields) -> Request:
    _check_unread(fields, _REQUEST_FIELDS)
    return Request(
        repeat=fields.integer("repeat"),
        warmup=fields.flag("warmup"),
        queued_ms=fields.optional_number("queued_ms", minimum=0),
        ttft_ms=fields.optional_number("ttft_ms", minimum=0),
        itl_ms_mean=fields.optional_number("itl_ms_mean", minimum=0),
        itl_ms_p50=fields.optional_number("itl_ms_p50", minimum=0),
        e2e_ms=fields.optional_number("e2e_ms", minimum=0),
        arrival_ns=fields.optional_number("arrival_ns"),
        pre_first_step_ns=fields.optional_number("pre_first_step_ns", minimum=0),
        post_last_step_ns=fields.optional_number("post_last_step_ns"),
        raw=fields.raw,
    )


def _check_unread(fields: Fields, read: frozenset[str]) -> None:
    for name in fields.raw.keys() - read:
        check_strict(fields.raw[name], f"{fields.where}.{name}")


def _check_step_order(steps: tuple[Step, ...]) -> None:
    last_of_repeat: dict[int, int] = {}
    for step in steps:
        last = last_of_repeat.get(step.repeat)
        if last is not None and step.step == last:
            raise InvalidInputError(f"repeat {step.repeat} has step {last} twice; expected each step once")
        if last is not None and step.step < last:
            raise InvalidInputError(
                f"repeat {step.repeat} lists step {step.step} after step {last}; "
                "expected the steps of a repeat in order of time"
            )
        last_of_repeat[step.repeat] = step.step


def _check_one_request_a_repeat(requests: tuple[Request, ...]) -> None:
    seen: set[int] = set()
    for request in requests:
        if request.warmup:
            continue
        if request.repeat in seen:
            raise InvalidInputError(
                f"repeat {shown(request.repeat)} has two requests; step timing models one request a repeat"
            )
        seen.add(request.repeat)
