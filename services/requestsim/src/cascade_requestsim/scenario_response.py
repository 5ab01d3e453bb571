"""The rows of a scenario's answer, made from the unrolled arrays. Its wire shape is `cascade_core.scenarios.answer`."""

import numpy as np
from cascade_core.scenarios.answer import RequestRow, StepRow

from cascade_requestsim.metrics import NS_PER_MS
from cascade_requestsim.provenance import LABELS
from cascade_requestsim.schedule_log import ScheduleLog
from cascade_requestsim.unroll import Floats, RequestTimes, Steps
from cascade_requestsim.workload import Workload

MAX_STEP_RECORDS = 5000
"""Step records in an answer; more are thinned uniformly."""

MS_PER_S = 1e3


def request_rows(workload: Workload, times: RequestTimes, log: ScheduleLog) -> list[RequestRow]:
    """One row a request, in input order."""
    columns = zip(
        workload.ids,
        workload.arrivals_s,
        workload.prompt_tokens,
        workload.output_tokens,
        (times.queue_ns / NS_PER_MS).tolist(),
        _nullable_ms(times.ttft_ns),
        _nullable_ms(times.itl_mean_ns),
        _nullable_ms(times.itl_p50_ns),
        (times.e2e_ns / NS_PER_MS).tolist(),
        times.emitted.tolist(),
        log.preemptions,
        strict=True,
    )
    return [
        {
            "id": name,
            "arrival_s": arrival,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "queue_ms": queue,
            "ttft_ms": ttft,
            "itl_ms_mean": mean,
            "itl_ms_p50": middle,
            "e2e_ms": e2e,
            "emitted_tokens": emitted,
            "preemptions": preemptions,
        }
        for name, arrival, prompt, output, queue, ttft, mean, middle, e2e, emitted, preemptions in columns
    ]


def step_rows(steps: Steps, limit: int = MAX_STEP_RECORDS) -> list[StepRow]:
    """One row a step, thinned uniformly to `limit` with the first and the last kept and `step_index` unchanged."""
    total = len(steps.end_ns)
    chosen = np.arange(total) if total <= limit else np.arange(limit) * (total - 1) // (limit - 1)
    epoch_ms = steps.epoch_s[chosen] * MS_PER_S
    columns = zip(
        chosen.tolist(),
        steps.is_prefill[chosen].tolist(),
        (epoch_ms + steps.start_ns[chosen] / NS_PER_MS).tolist(),
        (epoch_ms + steps.end_ns[chosen] / NS_PER_MS).tolist(),
        steps.sequences[chosen].tolist(),
        steps.query_tokens[chosen].tolist(),
        steps.context_tokens[chosen].tolist(),
        steps.kv_blocks[chosen].tolist(),
        steps.provenance[chosen].tolist(),
        strict=True,
    )
    return [
        {
            "step_index": index,
            "kind": "prefill" if is_prefill else "decode",
            "start_ms": start,
            "end_ms": end,
            "num_seqs": sequences,
            "query_tokens": tokens,
            "context_tokens": context,
            "kv_blocks_used": blocks,
            "provenance": LABELS[label],
        }
        for index, is_prefill, start, end, sequences, tokens, context, blocks, label in columns
    ]


def _nullable_ms(values_ns: Floats) -> list[float | None]:
    """Milliseconds, None for NaN."""
    return [None if value != value else value for value in (values_ns / NS_PER_MS).tolist()]  # noqa: PLR0124
