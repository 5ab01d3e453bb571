"""The body of `POST /api/scenarios`, in both of its forms, with every limit that needs no profile.

The gateway checks it before anything is stored, and the request simulator reads it from the log again.

Numbers are strict: no numeric strings, no booleans, no fractions of tokens, no NaN. A null means the same as leaving
the field out. Source: the request simulation page, "Scenario API example".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

MAX_REQUESTS = 4096
"""Requests in one scenario. A safety limit of the service, not one of vLLM."""

MAX_TOTAL_TOKENS = 1_000_000
"""Prompt and output tokens of all requests of a scenario."""

MAX_ARRIVAL_S = 1e9
"""Latest arrival. [s]"""

_Tokens = Annotated[StrictInt, Field(ge=0, le=MAX_TOTAL_TOKENS)]
_PromptTokens = Annotated[StrictInt, Field(ge=1, le=MAX_TOTAL_TOKENS)]
_Seconds = Annotated[StrictFloat, Field(ge=0, le=MAX_ARRIVAL_S, allow_inf_nan=False)]
_Name = Annotated[StrictStr, Field(min_length=1, max_length=1024)]


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests by index, in input order. All four sequences have one entry a request."""

    ids: Sequence[str]
    arrivals_s: Sequence[float]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]

    def __len__(self) -> int:
        return len(self.ids)


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ExplicitRequest(_Body):
    """One request with its own arrival."""

    id: Annotated[StrictStr, Field(min_length=1, max_length=256)] | None = None
    """Unique; `request-<index>` when left out."""
    arrival_s: _Seconds = 0.0
    prompt_tokens: _PromptTokens
    output_tokens: _Tokens


class SchedulerBody(_Body):
    """Scheduler settings; what is left out takes the documented default."""

    max_num_seqs: Annotated[StrictInt, Field(ge=1, le=1_000_000)] | None = None
    max_num_batched_tokens: Annotated[StrictInt, Field(ge=1, le=100_000_000)] | None = None
    block_size: Annotated[StrictInt, Field(ge=1, le=65_536)] | None = None
    enable_chunked_prefill: StrictBool | None = None
    gpu_memory_utilization: Annotated[StrictFloat, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    num_kv_blocks: Annotated[StrictInt, Field(ge=1, le=1_000_000_000)] | None = None


class ScenarioRequest(_Body):
    """A serving scenario: exactly one selector, and either explicit requests or the shorthand."""

    trace_id: _Name | None = None
    model: _Name | None = None
    gpu_config: _Name | None = None
    fresh: StrictBool | None = None
    """Ask for a new base run instead of reusing a finished one."""
    scheduler: SchedulerBody | None = None
    requests: Annotated[list[ExplicitRequest], Field(min_length=1, max_length=MAX_REQUESTS)] | None = None
    num_requests: Annotated[StrictInt, Field(ge=1, le=MAX_REQUESTS)] | None = None
    prompt_tokens: _PromptTokens | None = None
    output_tokens: _Tokens | None = None
    arrival_rate_rps: Annotated[StrictFloat, Field(ge=0, allow_inf_nan=False)] | None = None
    """Requests a second, evenly spaced; 0 or null: all arrive at once."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.trace_id is None) == (self.model is None):
            raise ValueError("give exactly one of trace_id and model")
        shorthand = {
            "num_requests": self.num_requests,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
        }
        if self.requests is not None:
            mixed = [name for name, value in shorthand.items() if value is not None]
            mixed += ["arrival_rate_rps"] if self.arrival_rate_rps is not None else []
            if mixed:
                raise ValueError(f"do not mix requests with {', '.join(mixed)}; use one form or the other")
        else:
            missing = [name for name, value in shorthand.items() if value is None]
            if missing:
                raise ValueError(f"give requests, or the shorthand with {', '.join(missing)}")
        self._check_workload(self.workload())
        return self

    @staticmethod
    def _check_workload(workload: Workload) -> None:
        total = sum(workload.prompt_tokens) + sum(workload.output_tokens)
        if total > MAX_TOTAL_TOKENS:
            raise ValueError(
                f"the scenario has {total} prompt and output tokens; the limit is {MAX_TOTAL_TOKENS}"
            )
        latest = max(workload.arrivals_s)
        if latest > MAX_ARRIVAL_S:
            raise ValueError(
                f"the last request arrives at {latest:g} s, above the limit of {MAX_ARRIVAL_S:g} s"
            )
        if len(set(workload.ids)) != len(workload.ids):
            raise ValueError(
                "request ids must be unique, also beside the request-<index> of requests without one"
            )

    def workload(self) -> Workload:
        """The requests of either form, in input order."""
        if self.requests is not None:
            return Workload(
                ids=[
                    f"request-{index}" if request.id is None else request.id
                    for index, request in enumerate(self.requests)
                ],
                arrivals_s=[request.arrival_s for request in self.requests],
                prompt_tokens=[request.prompt_tokens for request in self.requests],
                output_tokens=[request.output_tokens for request in self.requests],
            )
        assert self.num_requests is not None
        assert self.prompt_tokens is not None
        assert self.output_tokens is not None
        return shorthand_workload(
            self.num_requests,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            arrival_rate_rps=self.arrival_rate_rps,
        )


def shorthand_workload(
    count: int, *, prompt_tokens: int, output_tokens: int, arrival_rate_rps: float | None
) -> Workload:
    """Equal requests at even spacing: request i arrives at i / rate, all at 0 without a rate."""
    return Workload(
        ids=[f"request-{index}" for index in range(count)],
        arrivals_s=[index / arrival_rate_rps for index in range(count)]
        if arrival_rate_rps
        else [0.0] * count,
        prompt_tokens=[prompt_tokens] * count,
        output_tokens=[output_tokens] * count,
    )
