"""Bodies of serving scenarios."""

from typing import Literal

from pydantic import Field

from cascade_client.wire.base import Body


class ExplicitRequest(Body):
    """One request with an arrival of its own."""

    id: str | None = Field(default=None, description="Unique; `request-<index>` where it is left out.")
    arrival_s: float = Field(default=0.0, ge=0, description="When it arrives. [s]")
    prompt_tokens: int = Field(ge=1, description="Length of the prompt. [tokens]")
    output_tokens: int = Field(ge=0, description="Tokens to generate. [tokens]")


class SchedulerBody(Body):
    """Scheduler settings; what is left out takes its default."""

    max_num_seqs: int | None = Field(default=None, ge=1, description="Sequences in one step. Default 256.")
    max_num_batched_tokens: int | None = Field(
        default=None, ge=1, description="Query tokens in one step. Default 8192."
    )
    block_size: int | None = Field(default=None, ge=1, description="Tokens in a KV block. Default 16.")
    enable_chunked_prefill: bool | None = Field(
        default=None, description="Whether prompts may be split over steps. Default true."
    )
    gpu_memory_utilization: float | None = Field(
        default=None, gt=0, le=1, description="Share of GPU memory in use. Default: the profile's, else 0.8."
    )
    num_kv_blocks: int | None = Field(default=None, ge=1, description="KV blocks; estimated where left out.")


class ScenarioRequest(Body):
    """A serving scenario: one of `trace_id` and `model`, and `requests` or the shorthand."""

    trace_id: str | None = Field(default=None, description="The trace to build on.")
    model: str | None = Field(default=None, description="Or a model: its newest ready trace is used.")
    gpu_config: str | None = Field(
        default=None, description="`SM90_H100`, `SM90_H200` or `SM80_A100`; default: the trace's suggestion."
    )
    fresh: bool | None = Field(default=None, description="Launch a new base run instead of reusing one.")
    scheduler: SchedulerBody | None = Field(default=None, description="Scheduler settings.")
    requests: list[ExplicitRequest] | None = Field(default=None, description="Requests one by one.")
    num_requests: int | None = Field(default=None, ge=1, description="Shorthand: how many equal requests.")
    prompt_tokens: int | None = Field(default=None, ge=1, description="Shorthand: tokens of each prompt.")
    output_tokens: int | None = Field(default=None, ge=0, description="Shorthand: tokens of each output.")
    arrival_rate_rps: float | None = Field(
        default=None, ge=0, description="Shorthand: evenly spaced arrivals a second; 0 or null: all at once."
    )


class AggregateRow(Body):
    """The scenario in six numbers; `null` where there is nothing to take a percentile of."""

    p50_ttft_ms: float | None = Field(description="Median time to first token. [ms]")
    p99_ttft_ms: float | None = Field(description="99th percentile of it. [ms]")
    p50_itl_ms: float | None = Field(description="Median interval between tokens, all requests. [ms]")
    p50_e2e_ms: float | None = Field(description="Median time from arrival to completion. [ms]")
    p99_e2e_ms: float | None = Field(description="99th percentile of it. [ms]")
    throughput_output_tokens_s: float | None = Field(description="Output tokens per second.")


class CalibrationRow(Body):
    """Where the profile was calibrated: first and last. [tokens]"""

    prefill_tokens: list[int] = Field(description="Prefill sizes.")
    decode_context: list[int] = Field(description="Decode contexts.")


class SchedulerRow(Body):
    """The settings that the scheduler ran with."""

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    enable_chunked_prefill: bool
    gpu_memory_utilization: float
    num_kv_blocks: int


class RequestRow(Body):
    """One request's outcome."""

    id: str
    arrival_s: float = Field(description="[s]")
    prompt_tokens: int
    output_tokens: int
    queue_ms: float = Field(description="Wait before its first step. [ms]")
    ttft_ms: float | None = Field(description="Time to first token. [ms]")
    itl_ms_mean: float | None = Field(description="Mean interval between its tokens. [ms]")
    itl_ms_p50: float | None = Field(description="Median of it. [ms]")
    e2e_ms: float = Field(description="Arrival to completion. [ms]")
    emitted_tokens: int
    preemptions: int


class StepRow(Body):
    """One scheduler step; token and block numbers are sums over its batch."""

    step_index: int
    kind: Literal["prefill", "decode"]
    start_ms: float
    end_ms: float
    num_seqs: int
    query_tokens: int
    context_tokens: int
    kv_blocks_used: int
    provenance: str = Field(description="How its GPU time was found.")


class ScenarioResponse(Body):
    """A scenario's answer. Outside the calibration range it is an unvalidated prediction."""

    trace_id: str = Field(description="The trace it builds on.")
    gpu_config: str = Field(description="The config.")
    run_id: str | None = Field(description="The base run.")
    sim_id: str | None = Field(description="The base sim.")
    cached: bool = Field(description="True where a finished sim was reused.")
    aggregate: AggregateRow = Field(description="The outcome in six numbers.")
    steps_total: int = Field(description="Executed steps.")
    steps_returned: int = Field(description="Steps in this answer.")
    steps_downsampled: bool = Field(description="True where steps were thinned.")
    steps_sampling: Literal["uniform"] | None = Field(description="How they were thinned.")
    provenance_counts: dict[str, int] = Field(description="Executed steps by how their time was found.")
    calibration_range: CalibrationRow = Field(description="Where the profile was calibrated.")
    scheduler: SchedulerRow = Field(description="The settings in force.")
    assumptions: list[str] = Field(description="What was assumed.")
    requests: list[RequestRow] = Field(description="One row a request.")
    steps: list[StepRow] = Field(description="The steps.")
