"""The answer to `POST /api/scenarios`. The request simulator makes it; the gateway hands it on as it comes.

It has two forms: with every executed step, or with the steps thinned, which `steps_downsampled` and `steps_sampling`
tell. Rows are typed dictionaries: an answer may hold ten thousand of them, and they go straight into JSON. Names are
those of the golden scenarios. Source: the request simulation page, "Scenario API example".
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

# pydantic reads typed dictionaries from here before Python 3.12.
from typing_extensions import TypedDict

ProvenanceLabel: TypeAlias = Literal["measured", "interpolated", "extrapolated:roofline"]


class AggregateRow(TypedDict):
    """The scenario in six numbers; `null` where there is nothing to take a percentile of."""

    p50_ttft_ms: Annotated[float | None, Field(description="Median time to first token. [ms]")]
    p99_ttft_ms: Annotated[float | None, Field(description="99th percentile of it. [ms]")]
    p50_itl_ms: Annotated[
        float | None, Field(description="Median interval between tokens, all requests pooled. [ms]")
    ]
    p50_e2e_ms: Annotated[float | None, Field(description="Median time from arrival to completion. [ms]")]
    p99_e2e_ms: Annotated[float | None, Field(description="99th percentile of it. [ms]")]
    throughput_output_tokens_s: Annotated[
        float | None,
        Field(
            description="Output tokens per second, from first arrival to last completion; `null` if that is 0 s."
        ),
    ]


class CalibrationRow(TypedDict):
    """Where the profile was calibrated: first and last. [tokens]"""

    prefill_tokens: Annotated[list[int], Field(min_length=2, max_length=2, description="Prefill sizes.")]
    decode_context: Annotated[list[int], Field(min_length=2, max_length=2, description="Decode contexts.")]


class SchedulerRow(TypedDict):
    """The settings that the scheduler ran with, defaults and estimates resolved."""

    max_num_seqs: Annotated[int, Field(description="Sequences in one step, at most.")]
    max_num_batched_tokens: Annotated[int, Field(description="Query tokens in one step, at most.")]
    block_size: Annotated[int, Field(description="Tokens in a KV block.")]
    enable_chunked_prefill: Annotated[bool, Field(description="Whether prompts may be split over steps.")]
    gpu_memory_utilization: Annotated[float, Field(description="Share of GPU memory in use.")]
    num_kv_blocks: Annotated[int, Field(description="KV blocks, given or estimated.")]


class RequestRow(TypedDict):
    """One request's outcome."""

    id: str
    arrival_s: Annotated[float, Field(description="[s]")]
    prompt_tokens: int
    output_tokens: int
    queue_ms: Annotated[float, Field(description="Wait before its first step. [ms]")]
    ttft_ms: Annotated[float | None, Field(description="Time to first token; `null` without output. [ms]")]
    itl_ms_mean: Annotated[
        float | None, Field(description="Mean interval between its tokens; `null` below two tokens. [ms]")
    ]
    itl_ms_p50: Annotated[float | None, Field(description="Median of it. [ms]")]
    e2e_ms: Annotated[float, Field(description="Arrival to completion. [ms]")]
    emitted_tokens: int
    preemptions: Annotated[int, Field(description="How often it lost its KV blocks and started anew.")]


class StepRow(TypedDict):
    """One executed scheduler step; token and block numbers are sums over its batch."""

    step_index: Annotated[int, Field(description="Counts every executed step from zero.")]
    kind: Annotated[
        Literal["prefill", "decode"],
        Field(description="`prefill` where any token of a prompt or a recompute is computed."),
    ]
    start_ms: Annotated[float, Field(description="[ms]")]
    end_ms: Annotated[float, Field(description="[ms]")]
    num_seqs: int
    query_tokens: int
    context_tokens: int
    kv_blocks_used: Annotated[
        int, Field(description="After scheduling, before completed requests free theirs.")
    ]
    provenance: Annotated[ProvenanceLabel, Field(description="How its GPU time was found.")]


class ScenarioResponse(BaseModel):
    """A scenario's answer. Outside the calibration range it is an unvalidated prediction."""

    # `model_dump_json` gives strict JSON: no number in it is NaN or infinite.
    model_config = ConfigDict(frozen=True)

    trace_id: str = Field(description="The trace it builds on.")
    gpu_config: str = Field(description="The GPU config it builds on.")
    run_id: str | None = Field(description="The base run.")
    sim_id: str | None = Field(description="The base sim.")
    cached: bool = Field(description="The base sim was reused, not launched for this scenario.")
    aggregate: AggregateRow = Field(description="The outcome in six numbers.")
    steps_total: int = Field(description="Executed steps. All figures but `steps` are over all of them.")
    steps_returned: int = Field(description="Steps in this answer, at most 5000.")
    steps_downsampled: bool = Field(description="Whether steps were thinned.")
    steps_sampling: Literal["uniform"] | None = Field(
        description="How they were thinned, the first and the last kept; `null` when all are returned."
    )
    provenance_counts: dict[str, int] = Field(description="Executed steps by how their time was found.")
    calibration_range: CalibrationRow = Field(description="Where the profile was calibrated.")
    scheduler: SchedulerRow = Field(description="The settings in force.")
    assumptions: list[str] = Field(description="What was assumed.")
    requests: list[RequestRow] = Field(description="One row a request, in input order.")
    steps: list[StepRow] = Field(description="The steps, in order.")
