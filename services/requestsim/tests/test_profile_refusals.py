"""A finished sim that is no profile is refused, and the message names the cause."""

import math
from collections.abc import Callable
from typing import cast

import pytest
from cascade_requestsim.documents import TimelineKernel
from cascade_requestsim.errors import ProfileInputMissing, ProfileRefused, ScenarioRefused, UnsupportedModel
from cascade_requestsim.estimate import estimate_request
from cascade_requestsim.profile import PerfProfile
from cascade_requestsim.profile_builder import build_profile, union_ns

Json = dict[str, object]
Edit = Callable[[dict[str, Json]], None]


def documents() -> dict[str, Json]:
    """A small valid run: a warm-up and three steady repeats of one prefill and two decodes."""

    def step(repeat: int, index: int) -> Json:
        return {
            "repeat": repeat,
            "step": index,
            "warmup": repeat == 0,
            "kind": "decode" if index else "prefill",
            "num_reqs": 1,
            "num_scheduled_tokens": 1 if index else 5,
            "baseline_wall_ns": 1000 + repeat,
            "gpu_busy_ns": 400,
            "baseline_gap_before_ns": 7 * repeat if index else None,
            "kernels": [
                {"name": "nvjet_a", "grid": "4x1x1", "duration_ns": 100 * repeat, "start_offset_ns": 0},
                {"name": "copy", "grid": "1x1x1", "duration_ns": 10, "start_offset_ns": 300},
            ],
        }

    return {
        "timeline": {
            "steps": [step(repeat, index) for repeat in range(4) for index in range(3)],
            "requests": [
                {
                    "repeat": repeat,
                    "warmup": repeat == 0,
                    "pre_first_step_ns": 50 * repeat,
                    "post_last_step_ns": -repeat,
                }
                for repeat in range(4)
            ],
        },
        "run": {
            "model_config": {
                "architectures": ["OPTForCausalLM"],
                "hidden_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "dtype": "float16",
            }
        },
        "workload": {"max_tokens": 3},
    }


def build(edited: dict[str, Json], gpu_config: str = "SM90_H100") -> PerfProfile:
    return build_profile(
        timeline=edited.get("timeline"),
        run=edited.get("run"),
        workload=edited.get("workload"),
        gpu_config=gpu_config,
    )


def steps(edited: dict[str, Json]) -> list[Json]:
    return cast("list[Json]", edited["timeline"]["steps"])


def config(edited: dict[str, Json]) -> Json:
    return cast(Json, edited["run"]["model_config"])


def setting(key: str, value: object, *, at: int = 4) -> Edit:
    def edit(edited: dict[str, Json]) -> None:
        steps(edited)[at][key] = value

    return edit


def configured(key: str, value: object) -> Edit:
    def edit(edited: dict[str, Json]) -> None:
        config(edited)[key] = value

    return edit


def without(name: str) -> Edit:
    def edit(edited: dict[str, Json]) -> None:
        del edited[name]

    return edit


def kernel(key: str, value: object) -> Edit:
    def edit(edited: dict[str, Json]) -> None:
        cast("list[Json]", steps(edited)[4]["kernels"])[0][key] = value

    return edit


def all_warm_up(edited: dict[str, Json]) -> None:
    for step in steps(edited):
        step["warmup"] = True


def only_prefills(edited: dict[str, Json]) -> None:
    edited["timeline"]["steps"] = [step for step in steps(edited) if step["kind"] == "prefill"]


def without_last_step(edited: dict[str, Json]) -> None:
    steps(edited).pop()


def without_requests(edited: dict[str, Json]) -> None:
    edited["timeline"]["requests"] = []


def without_model_config(edited: dict[str, Json]) -> None:
    del edited["run"]["model_config"]


def impossible_gaps(edited: dict[str, Json]) -> None:
    for step in steps(edited):
        if step["kind"] == "decode":
            step["baseline_gap_before_ns"] = -5000


def test_the_medians_of_a_small_run_come_out() -> None:
    profile = build(documents())
    assert list(profile.prefill.floors) == [200, 0, 0, 0, 0, 10]
    assert profile.prefill.residual == 400 - 210
    assert profile.decode_contexts == (6, 7)
    assert (profile.host_prefill_ns, profile.host_decode_ns) == (602, 602)
    assert (profile.gap_prefill_ns, profile.gap_decode_ns) == (0, 14)
    assert (profile.pre_ns, profile.post_ns) == (100, -2)
    assert profile.workload_max_tokens == 3


@pytest.mark.parametrize(
    ("edit", "error", "message"),
    [
        (without("timeline"), ProfileInputMissing, "no simulated step timeline"),
        (without("run"), ProfileInputMissing, "run.json"),
        (without("workload"), ProfileInputMissing, "workload.json"),
        (all_warm_up, ProfileRefused, "no steady repeat"),
        (setting("num_reqs", 2), ProfileRefused, "ran 2 requests"),
        (setting("kernels", []), ProfileRefused, "holds no kernel"),
        (setting("kind", "prefill"), ProfileRefused, "exactly one prefill step"),
        (setting("kind", "decode", at=3), ProfileRefused, "exactly one prefill step"),
        (setting("kind", "other"), ProfileRefused, "malformed at steps.4.kind"),
        (setting("num_scheduled_tokens", 9, at=3), ProfileRefused, "differ in prompt size"),
        (setting("step", 2), ProfileRefused, "same step twice"),
        (setting("gpu_busy_ns", None), ProfileRefused, "no gpu_busy_ns"),
        (setting("gpu_busy_ns", math.nan), ProfileRefused, "malformed at steps.4.gpu_busy_ns"),
        (setting("baseline_wall_ns", -1), ProfileRefused, "malformed"),
        (setting("baseline_wall_ns", 1e30), ProfileRefused, "malformed"),
        (setting("baseline_gap_before_ns", math.inf), ProfileRefused, "malformed"),
        (kernel("duration_ns", -3), ProfileRefused, "malformed"),
        (kernel("grid", "4xx"), ProfileRefused, "grid '4xx'"),
        (kernel("grid", "0x1x1"), ProfileRefused, "no thread blocks"),
        (without_last_step, ProfileRefused, "differ in step count"),
        (only_prefills, ProfileRefused, "no decode step"),
        (without_requests, ProfileRefused, "pre_first_step_ns"),
        (impossible_gaps, ProfileRefused, "contradict each other"),
        (configured("quantization", "awq"), UnsupportedModel, "quantised"),
        (configured("quantization_config", {"bits": 4}), UnsupportedModel, "quantised"),
        (configured("tensor_parallel_size", 2), UnsupportedModel, "one GPU"),
        (configured("pipeline_parallel_size", 4), UnsupportedModel, "one GPU"),
        (configured("num_local_experts", 8), UnsupportedModel, "dense"),
        (configured("dtype", "float8_e4m3fn"), UnsupportedModel, "float8"),
        (configured("dtype", None), ProfileInputMissing, "dtype"),
        (configured("hidden_size", None), ProfileInputMissing, "hidden_size"),
        (configured("hidden_size", -64), UnsupportedModel, "hidden_size"),
        (configured("hidden_size", "64"), UnsupportedModel, "hidden_size"),
        (configured("num_hidden_layers", 10**12), UnsupportedModel, "num_hidden_layers"),
        (configured("num_attention_heads", 5), UnsupportedModel, "head_dim"),
        (configured("num_key_value_heads", 8), UnsupportedModel, "8 KV heads"),
        (configured("architectures", ["LlamaForCausalLM"]), UnsupportedModel, "vocab_size"),
        (configured("gpu_memory_utilization", 1.2), ProfileRefused, "gpu_memory_utilization"),
        (configured("max_model_len", 0), ProfileRefused, "max_model_len"),
        (without_model_config, ProfileInputMissing, "model_config"),
    ],
)
def test_a_run_outside_the_model_is_refused(edit: Edit, error: type[ProfileRefused], message: str) -> None:
    edited = documents()
    edit(edited)
    with pytest.raises(error, match=message) as caught:
        build(edited)
    assert 400 <= caught.value.status < 500


@pytest.mark.parametrize("gpu_config", ["SM86_RTX3070", "", "sm90_h100"])
def test_a_config_without_a_data_sheet_is_refused(gpu_config: str) -> None:
    with pytest.raises(UnsupportedModel, match="SM90_H100, SM90_H200, SM80_A100"):
        build(documents(), gpu_config)


def test_stated_dimensions_and_limits_need_no_assumption() -> None:
    edited = documents()
    config(edited).update(
        num_key_value_heads=2,
        head_dim=16,
        ffn_dim=300,
        vocab_size=1000,
        max_model_len=99,
        gpu_memory_utilization=0.6,
    )
    profile = build(edited)
    assert (profile.model.ffn, profile.model.vocabulary, profile.model.kv_heads) == (300, 1000, 2)
    assert (profile.model_limit_tokens, profile.gpu_memory_utilization) == (99, 0.6)
    assert not [note for note in profile.assumptions if "missing" in note]


@pytest.mark.parametrize(("prompt", "output"), [(0, 4), (-1, 4), (4, -1), (2000, 49)])
def test_an_estimate_outside_the_limits_is_refused(*, prompt: int, output: int) -> None:
    with pytest.raises(ScenarioRefused):
        estimate_request(build(documents()), prompt, output)


def test_overlapping_kernels_count_once() -> None:
    spans = [(0.0, 100.0), (50.0, 100.0), (60.0, 10.0), (400.0, 5.0)]
    kernels = [
        TimelineKernel(name="k", grid="1", start_offset_ns=start, duration_ns=length)
        for start, length in spans
    ]
    assert union_ns(kernels) == pytest.approx(155.0)
    assert union_ns([]) == 0
