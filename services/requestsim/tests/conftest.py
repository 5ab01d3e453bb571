"""Profiles for the tests: the three bundled samples, and a small synthetic one on which every term matters."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cascade_requestsim.gpu_spec import GpuSpec
from cascade_requestsim.model_shape import ModelShape
from cascade_requestsim.profile import CalibratedPoint, PerfProfile
from cascade_requestsim.profile_builder import build_profile

REPO = Path(__file__).parents[3]

Documents = dict[str, dict[str, object]]


@pytest.fixture(scope="session")
def samples() -> Path:
    """The bundled samples, reconstructed from published statistics."""
    for directory in (REPO / "samples", REPO.parent / "shared" / "samples"):
        if (directory / "golden").is_dir():
            return directory
    pytest.skip("neither samples/ nor ../shared/samples exists")


@pytest.fixture(scope="session")
def sample_documents(samples: Path) -> Callable[[str], Documents]:
    """GPU config -> fresh copies of timeline, run and workload."""
    directories = {
        "SM90_H100": ("opt125m-h100-e2e", "opt125m-h100-e2e"),
        "SM90_H200": ("opt125m-h100-e2e", "opt125m-h200"),
        "SM80_A100": ("opt125m-a100-e2e", "opt125m-a100-e2e"),
    }

    def load(gpu_config: str) -> Documents:
        trace, sim = directories[gpu_config]
        timeline = (samples / sim / "simulated_timeline.json.gz").read_bytes()
        return {
            "timeline": json.loads(gzip.decompress(timeline)),
            "run": json.loads((samples / trace / "run.json").read_bytes()),
            "workload": json.loads((samples / trace / "workload.json").read_bytes()),
        }

    return load


@pytest.fixture(scope="session")
def sample_profile(sample_documents: Callable[[str], Documents]) -> Callable[[str], PerfProfile]:
    """GPU config -> profile of its sample."""

    @cache
    def build(gpu_config: str) -> PerfProfile:
        documents = sample_documents(gpu_config)
        return build_profile(
            timeline=documents["timeline"],
            run=documents["run"],
            workload=documents["workload"],
            gpu_config=gpu_config,
        )

    return build


@pytest.fixture(scope="session")
def h100(sample_profile: Callable[[str], PerfProfile]) -> PerfProfile:
    return sample_profile("SM90_H100")


@pytest.fixture(scope="session")
def knotted() -> PerfProfile:
    """A slow GPU with sparse decode contexts: floors bend, interpolate and are overtaken within a few tokens."""
    model = ModelShape(
        layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=96, vocabulary=500, dtype_bytes=2
    )

    def point(scale: float) -> CalibratedPoint:
        floors = (811.3 * scale, 143.7 * scale**2, 57.1, 66.7 * scale, 9.3, 301.9)
        return CalibratedPoint(floors, 41.17 * scale)

    return PerfProfile(
        gpu_config="SM90_H100",
        gpu=GpuSpec(peak_flops=2.1e11, bandwidth_bytes_s=3.3e9, memory_bytes=3e9),
        model=model,
        prefill_tokens=9,
        prefill=point(1.3),
        decode_contexts=(10, 13, 21, 34),
        decode=(point(1.0), point(1.21), point(0.93), point(1.4)),
        host_prefill_ns=5311.7,
        host_decode_ns=3127.9,
        gap_prefill_ns=17.3,
        gap_decode_ns=211.1,
        pre_ns=977.7,
        post_ns=-433.3,
        model_limit_tokens=4096,
        gpu_memory_utilization=0.8,
        workload_max_tokens=None,
        assumptions=(),
        source_note=None,
    )


@pytest.fixture(scope="session")
def unlimited(h100: PerfProfile) -> PerfProfile:
    """The H100 sample without the model limit, for load tests."""
    return replace(h100, model_limit_tokens=10_000_000)
