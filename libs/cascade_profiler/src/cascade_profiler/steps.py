"""Step marks: what the driver writes about every engine step, and the label that marks it for Nsight.

The driver logs one JSON line a step and pushes one NVTX range around it. The range's label carries the same
`call` number as the line, so that a step is found again in the capture whatever the clocks say. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, TypeAlias

from cascade_profiler.errors import CaptureError

StepKind: TypeAlias = Literal["prefill", "decode"]

_LABEL = re.compile(r"cascade-step call=(\d+) repeat=(\d+) step=(\d+)")


@dataclass(frozen=True, slots=True)
class StepMark:
    """One engine step that scheduled work.

    call: number of the engine call in its process, also in the NVTX label.
    step: index in its repeat, 0 is the first that scheduled anything.
    start_ns, end_ns: [ns] on the driver's monotonic clock; comparable within one process only.
    max_context: [tokens] longest context after the step, over its requests; None if the engine does not tell.
    """

    call: int
    repeat: int
    step: int
    kind: StepKind
    num_reqs: int
    num_scheduled_tokens: int
    start_ns: int
    end_ns: int
    max_context: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        """(repeat, step), unique in a run."""
        return (self.repeat, self.step)

    @property
    def wall_ns(self) -> int:
        """[ns] duration of the step."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class RequestMark:
    """One request of one repeat, on the same clock as its steps. All times in ns."""

    repeat: int
    prompt_index: int
    arrival_ns: int
    first_token_ns: int
    last_token_ns: int
    token_times_ns: tuple[int, ...]
    prompt_tokens: int | None = None
    num_output_tokens: int = 0


def step_label(call: int, repeat: int, step: int) -> str:
    """Return the NVTX label of a step."""
    return f"cascade-step call={call} repeat={repeat} step={step}"


def parse_step_label(label: str) -> tuple[int, int, int] | None:
    """Return (call, repeat, step) of a label that `step_label` made, or None for any other text."""
    match = _LABEL.fullmatch(label)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def dump_mark(mark: StepMark | RequestMark) -> str:
    """Return a mark as one line of JSON, newline included."""
    return json.dumps(asdict(mark), separators=(",", ":")) + "\n"


def parse_steps(text: str) -> tuple[StepMark, ...]:
    """Read a step log. Raises CaptureError for a line that is none, naming it; an empty last line is fine."""
    marks = tuple(_step(row, number) for number, row in _rows(text, "step log"))
    keys = [mark.key for mark in marks]
    if len(set(keys)) != len(keys):
        raise CaptureError("the step log holds a (repeat, step) twice; two drivers wrote to the same file")
    return marks


def parse_requests(text: str) -> tuple[RequestMark, ...]:
    """Read a request log. Raises CaptureError for a line that is none, naming it."""
    return tuple(_request(row, number) for number, row in _rows(text, "request log"))


def _rows(text: str, what: str) -> list[tuple[int, Mapping[str, object]]]:
    rows: list[tuple[int, Mapping[str, object]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise CaptureError(
                f"line {number} of the {what} is no JSON ({error.msg}); the driver was cut off"
            ) from error
        if not isinstance(row, dict):
            raise CaptureError(f"line {number} of the {what} is no object")
        rows.append((number, row))
    return rows


def _step(row: Mapping[str, object], number: int) -> StepMark:
    kind = row.get("kind")
    if kind not in {"prefill", "decode"}:
        raise CaptureError(f"line {number} of the step log has kind {kind!r}; expected 'prefill' or 'decode'")
    return StepMark(
        call=_int(row, "call", number),
        repeat=_int(row, "repeat", number),
        step=_int(row, "step", number),
        kind="prefill" if kind == "prefill" else "decode",
        num_reqs=_int(row, "num_reqs", number),
        num_scheduled_tokens=_int(row, "num_scheduled_tokens", number),
        start_ns=_int(row, "start_ns", number),
        end_ns=_int(row, "end_ns", number),
        max_context=_optional_int(row, "max_context", number),
    )


def _request(row: Mapping[str, object], number: int) -> RequestMark:
    times = row.get("token_times_ns")
    if not isinstance(times, list) or not all(isinstance(t, int) for t in times):
        raise CaptureError(f"line {number} of the request log lacks token_times_ns")
    return RequestMark(
        repeat=_int(row, "repeat", number),
        prompt_index=_int(row, "prompt_index", number),
        arrival_ns=_int(row, "arrival_ns", number),
        first_token_ns=_int(row, "first_token_ns", number),
        last_token_ns=_int(row, "last_token_ns", number),
        token_times_ns=tuple(times),
        prompt_tokens=_optional_int(row, "prompt_tokens", number),
        num_output_tokens=_int(row, "num_output_tokens", number),
    )


def _int(row: Mapping[str, object], name: str, number: int) -> int:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise CaptureError(f"line {number} of the log has {name} = {value!r}; expected a whole number")
    return value


def _optional_int(row: Mapping[str, object], name: str, number: int) -> int | None:
    return None if row.get(name) is None else _int(row, name, number)
