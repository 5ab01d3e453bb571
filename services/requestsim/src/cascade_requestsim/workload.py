"""What the scheduler is asked to run: requests in input order and resolved settings, checked before the clock starts.

Source: the request model, section 4, "Check every request before the clock starts".
"""

from collections import Counter
from dataclasses import dataclass

from cascade_core.scenarios.request import Workload

from cascade_requestsim.errors import CapacityExceeded, ScenarioRefused
from cascade_requestsim.kv_cache import blocks_for

__all__ = ["SchedulerSettings", "Workload", "check_workload"]


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """The scheduler's resolved settings; every one of them is an assumption about the engine."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    block_size: int = 16
    """Tokens a KV block holds."""
    num_kv_blocks: int = 106_267
    enable_chunked_prefill: bool = True


def check_workload(workload: Workload, settings: SchedulerSettings, *, model_limit_tokens: int) -> None:
    """Raise ScenarioRefused or CapacityExceeded, naming the first request that could never finish."""
    if len(set(workload.ids)) != len(workload.ids):
        twice = Counter(workload.ids).most_common(1)[0][0]
        raise ScenarioRefused(f"request id {twice!r} is used twice; ids must be unique")
    shapes = zip(
        workload.ids, workload.arrivals_s, workload.prompt_tokens, workload.output_tokens, strict=True
    )
    for name, arrival, prompt, output in shapes:
        if prompt < 1 or output < 0:
            raise ScenarioRefused(
                f"request {name!r} has {prompt} prompt and {output} output tokens; "
                "expected at least 1 prompt token and no negative output"
            )
        if not 0 <= arrival < float("inf"):
            raise ScenarioRefused(
                f"request {name!r} arrives at {arrival} s; expected a finite time, 0 or later"
            )
        if prompt + output > model_limit_tokens:
            raise ScenarioRefused(
                f"request {name!r} needs {prompt} + {output} tokens, above the model limit of {model_limit_tokens}"
            )
        _check_fits(name, prompt, output, settings)


def _check_fits(name: str, prompt: int, output: int, settings: SchedulerSettings) -> None:
    if not settings.enable_chunked_prefill and prompt > settings.max_num_batched_tokens:
        raise ScenarioRefused(
            f"request {name!r} has a prompt of {prompt} tokens, above max_num_batched_tokens "
            f"{settings.max_num_batched_tokens}, and chunked prefill is off; enable it or raise the budget"
        )
    # The last token's key and value are never stored.
    needed = blocks_for(prompt + max(0, output - 1), settings.block_size)
    if needed > settings.num_kv_blocks:
        raise CapacityExceeded(
            f"request {name!r} needs {needed} KV blocks of {settings.block_size} tokens at its longest, but there are "
            f"only {settings.num_kv_blocks}; it could not finish even alone"
        )
