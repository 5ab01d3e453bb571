"""The documents a profile is built from, parsed once: the simulated timeline, `run.json` and `workload.json`.

Only the fields that the request model reads are declared; everything else in the documents is ignored. Numbers must be
finite, so that no NaN reaches a formula. Source of the timeline's layout: the step-timing model, section 1.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cascade_requestsim.errors import ProfileInputMissing, ProfileRefused

MAX_TIME_NS = 1e15
"""No step, gap or kernel lasts eleven days; a larger number is a unit error."""

Duration = Annotated[float, Field(ge=0, le=MAX_TIME_NS, allow_inf_nan=False)]
Signed = Annotated[float, Field(ge=-MAX_TIME_NS, le=MAX_TIME_NS, allow_inf_nan=False)]


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TimelineKernel(_Document):
    """One kernel launch of a step."""

    name: str
    grid: str
    duration_ns: Duration
    start_offset_ns: Signed
    """From the profiled step's start."""


class TimelineStep(_Document):
    """One engine step of the recorded run."""

    repeat: int
    step: int
    warmup: bool
    kind: Literal["prefill", "decode"]
    num_reqs: int = Field(ge=0)
    num_scheduled_tokens: int = Field(ge=0, le=1_000_000_000)
    baseline_wall_ns: Duration
    gpu_busy_ns: Duration | None = None
    baseline_gap_before_ns: Signed | None = None
    kernels: tuple[TimelineKernel, ...] = ()


class TimelineRequest(_Document):
    """One request of the recorded run; its envelope around the steps."""

    repeat: int
    warmup: bool
    pre_first_step_ns: Signed | None = None
    post_last_step_ns: Signed | None = None


class Timeline(_Document):
    """A simulated step timeline."""

    steps: tuple[TimelineStep, ...]
    requests: tuple[TimelineRequest, ...] = ()


def parse_timeline(document: Mapping[str, object] | None) -> Timeline:
    """Raises ProfileInputMissing without a document and ProfileRefused for one of another form."""
    if document is None:
        raise ProfileInputMissing("the sim has no simulated step timeline; run it on a trace that has one")
    try:
        return Timeline.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ProfileRefused(f"the simulated timeline is malformed at {path}: {first['msg']}") from error


def required(document: Mapping[str, object] | None, file_name: str) -> Mapping[str, object]:
    """The document, or ProfileInputMissing that names the file."""
    if document is None:
        raise ProfileInputMissing(
            f"the trace has no {file_name}; the request model needs it, upload it with the trace"
        )
    return document


def optional_int(document: Mapping[str, object], key: str, file_name: str, *, maximum: int) -> int | None:
    """A positive integer field, None where absent or null. Raises ProfileRefused for anything else."""
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise ProfileRefused(f"{file_name}'s {key} is {value!r}; expected an integer from 1 to {maximum}")
    return value


def optional_fraction(document: Mapping[str, object], key: str, file_name: str) -> float | None:
    """A fraction above 0 and at most 1, None where absent or null. Raises ProfileRefused for anything else."""
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise ProfileRefused(f"{file_name}'s {key} is {value!r}; expected a number above 0 and at most 1")
    return float(value)
