"""What the vLLM layer makes of vLLM's objects, on a stand-in with the attributes of its V1 engine.

It needs no GPU and proves nothing about one: names of attributes were taken from vLLM's sources.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from cascade_profiler.engine_vllm import VllmEngine, open_engine
from cascade_profiler.errors import CaptureError
from cascade_profiler.workload import Workload

SUFFIX = "-4f1c"
"""vLLM's own, behind the id that a request was given."""


class Scheduler:
    """Schedules every prompt whole, then one token a request."""

    def __init__(self) -> None:
        self.waiting: dict[str, int] = {}
        self.running: dict[str, int] = {}

    def schedule(self, _throttle: bool = False) -> SimpleNamespace:
        tokens = {f"{name}{SUFFIX}": 1 for name in self.running}
        tokens |= {f"{name}{SUFFIX}": count for name, count in self.waiting.items()}
        self.running |= dict.fromkeys(self.waiting, 0)
        self.waiting.clear()
        return SimpleNamespace(num_scheduled_tokens=tokens, total_num_scheduled_tokens=sum(tokens.values()))


class LLMEngine:
    """The part of vLLM's LLMEngine that is used."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.scheduler = Scheduler()
        self.engine_core: Any = SimpleNamespace(engine_core=SimpleNamespace(scheduler=self.scheduler))
        hf = SimpleNamespace(
            architectures=["OPTForCausalLM"], hidden_size=768, num_hidden_layers=12, ffn_dim=3072
        )
        self.model_config = SimpleNamespace(
            hf_config=hf,
            hf_text_config=hf,
            dtype="torch.float16",
            quantization=None,
            max_model_len=2048,
            get_total_num_kv_heads=lambda: 12,
            get_head_size=lambda: 64,
        )

    def add_request(self, request_id: str, prompt: str, _params: object) -> None:
        self.scheduler.waiting[request_id] = len(prompt)

    def has_unfinished_requests(self) -> bool:
        return bool(self.scheduler.waiting or self.scheduler.running)

    def step(self) -> list[SimpleNamespace]:
        self.scheduler.schedule()
        outputs = []
        for name in list(self.scheduler.running):
            self.scheduler.running[name] += 1
            made = self.scheduler.running[name]
            outputs.append(
                SimpleNamespace(
                    request_id=name,
                    finished=made == 2,
                    prompt_token_ids=[1, 2, 3],
                    outputs=[SimpleNamespace(token_ids=[5] * made)],
                    metrics=SimpleNamespace(first_token_ts=1.5, last_token_ts=1.25 + made),
                )
            )
            if made == 2:
                del self.scheduler.running[name]
        return outputs


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> VllmEngine:
    vllm: Any = ModuleType("vllm")
    vllm.__version__ = "0.21.0"
    vllm.LLM = lambda **options: SimpleNamespace(llm_engine=LLMEngine(options))
    vllm.SamplingParams = SimpleNamespace
    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(
        get_device_name=lambda _index: "NVIDIA H100 80GB HBM3", get_device_capability=lambda _index: (9, 0)
    )
    monkeypatch.setitem(sys.modules, "vllm", vllm)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delenv("CUDA_INJECTION64_PATH", raising=False)
    return open_engine(Workload("facebook/opt-125m", ["p"], max_tokens=2, repeats=2))


def test_steps_tell_kind_tokens_and_the_longest_context(engine: VllmEngine) -> None:
    engine.submit("repeat-1-prompt-1", "abc")
    engine.submit("repeat-1-prompt-10", "abcdef")  # the other id is a prefix of this one

    prefill, decode = engine.step(), engine.step()

    assert (prefill.kind, prefill.num_reqs, prefill.num_scheduled_tokens, prefill.max_context) == (
        "prefill",
        2,
        9,
        6,
    )
    assert (decode.kind, decode.num_reqs, decode.num_scheduled_tokens, decode.max_context) == (
        "decode",
        2,
        2,
        7,
    )
    assert not engine.unfinished()


def test_tokens_carry_the_engine_s_own_stamps(engine: VllmEngine) -> None:
    engine.submit("r", "abc")
    engine.step()
    (output,) = engine.step().outputs

    assert (output.request_id, output.num_output_tokens, output.finished, output.prompt_tokens) == (
        "r",
        2,
        True,
        3,
    )
    assert (output.first_token_ns, output.last_token_ns) == (1_500_000_000, 3_250_000_000)


def test_an_idle_call_schedules_nothing(engine: VllmEngine) -> None:
    assert engine.step().num_scheduled_tokens == 0


def test_the_engine_is_opened_for_repeatable_work_in_one_process(engine: VllmEngine) -> None:
    options = engine._engine.options
    assert options["enable_prefix_caching"] is False, "a cached prefill would do less work in later repeats"
    assert options["async_scheduling"] is False
    assert options["enforce_eager"] is True


def test_facts_hold_what_the_request_model_reads(engine: VllmEngine) -> None:
    facts = engine.facts()

    assert (facts.vllm_version, facts.gpu_name, facts.compute_capability) == (
        "0.21.0",
        "NVIDIA H100 80GB HBM3",
        (9, 0),
    )
    assert facts.model_config == {
        "architectures": ["OPTForCausalLM"],
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "ffn_dim": 3072,
        "num_key_value_heads": 12,
        "head_dim": 64,
        "dtype": "float16",
        "quantization": None,
        "tensor_parallel_size": 1,
        "max_model_len": 2048,
    }


def test_tracing_without_a_tracer_says_what_to_set(engine: VllmEngine) -> None:
    with pytest.raises(CaptureError, match="CUDA_INJECTION64_PATH"):
        engine.trace(on=True)
