"""`register` on a faithful stand-in for a Modal app, and on Modal's own classes where they are installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from cascade_profiler import OptionsError, Workload, register
from cascade_profiler.modal_app import PYTHON_MINORS
from cascade_profiler.pipeline import Surroundings

S3: Mapping[str, object] = {"endpoint": "https://s3.example.com", "bucket": "my-runs", "prefix": "profiles"}


@dataclass
class FakeVolume:
    """A volume that counts commits."""

    commits: int = 0

    def commit(self) -> None:
        self.commits += 1


@dataclass
class FakeFunction:
    """What Modal makes of a decorated function: something to call through `.remote`, with JSON in between."""

    raw: Callable[..., object]

    def remote(self, *args: object, **kwargs: object) -> object:
        """Run here; arguments and result must survive the network."""
        sent = json.loads(json.dumps({"args": args, "kwargs": kwargs}))
        return json.loads(json.dumps(self.raw(*sent["args"], **sent["kwargs"])))


@dataclass
class FakeApp:
    """Keeps what each function was registered with. The keywords are those of modal.App.function."""

    registered: dict[str, dict[str, Any]] = field(default_factory=dict)

    def function(self, *, name: str, serialized: bool, **options: Any) -> type[FakeFunction]:
        assert serialized, "a local function cannot be imported in the container"
        self.registered[name] = options
        return FakeFunction


def registered(**options: Any) -> tuple[Any, FakeApp, FakeVolume]:
    app, volume = FakeApp(), FakeVolume()
    prof = register(cast(Any, app), cast(Any, volume), image=cast(Any, "an image"), **options)
    return prof, app, volume


def test_the_functions_are_registered_with_gpu_volumes_secrets_and_the_time_limit() -> None:
    cache, secret = FakeVolume(), object()
    _, app, volume = registered(gpu="A100-80GB", hf_cache=cache, secrets=[secret])

    assert sorted(app.registered) == ["cascade_list_layers", "cascade_profile", "cascade_stream"]
    for options in app.registered.values():
        assert options == {
            "image": "an image",
            "gpu": "A100-80GB",
            "volumes": {"/runs": volume, "/root/.cache/huggingface": cache},
            "secrets": [secret],
            "timeout": 14_400,
        }


def test_a_profile_runs_through_the_registered_function_and_commits_the_volume(
    workload: Workload, around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cascade_profiler.remote.surroundings", lambda: around)
    prof, _, volume = registered()

    run = prof.profile.remote(workload.to_dict(), trace_steps=[0, 5], run_name="r")

    assert (run["run_name"], run["status"], run["trace_steps"]) == ("r", "ok", [0, 5])
    assert "trace_collect" in run["stage_wall_s"]
    assert volume.commits == 1
    layers = prof.list_layers.remote(workload.to_dict())
    assert "lm_head" in layers


def test_a_failed_profile_commits_its_diagnostics(
    workload: Workload, around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cascade_profiler.remote.surroundings", lambda: around)
    prof, _, volume = registered(s3=S3)

    with pytest.raises(OptionsError, match="keep_nsys_rep=True is refused"):
        prof.profile.remote(workload.to_dict(), keep_nsys_rep=True)
    assert volume.commits == 1


def test_streaming_needs_a_destination(workload: Workload) -> None:
    prof, _, _ = registered()

    with pytest.raises(OptionsError, match="streaming needs a bucket"):
        prof.stream.remote(workload.to_dict(), ["lm_head"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu": ""}, "gpu is empty"),
        ({"s3": {**S3, "secret_access_key": "x"}}, "looks like a credential"),
        ({"s3": {"bucket": "my-runs"}}, "lacks 'endpoint'"),
    ],
)
def test_what_cannot_work_is_refused_at_registration(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        registered(**options)


def test_a_python_that_the_image_cannot_match_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))

    with pytest.raises(OptionsError, match=r"Python 3\.10 cannot be matched"):
        registered()
    assert 12 in PYTHON_MINORS


def test_importing_the_package_loads_neither_modal_nor_an_s3_client() -> None:
    code = (
        "import sys, cascade_profiler\n"
        "print(sorted({'modal', 'botocore', 'aiobotocore', 'vllm', 'torch'} & set(sys.modules)))"
    )

    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )


@pytest.mark.filterwarnings("ignore::UserWarning")  # Modal says that a local call has no volumes
def test_modal_s_own_app_takes_the_registration(
    workload: Workload, around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    modal = pytest.importorskip("modal", reason="the extra cascade-profiler[modal] is not installed")
    monkeypatch.setattr("cascade_profiler.remote.surroundings", lambda: around)
    app = modal.App("cascade-profiler-test")
    volume = modal.Volume.from_name("cascade-test-runs", create_if_missing=True)
    cache = modal.Volume.from_name("cascade-test-cache", create_if_missing=True)

    prof = register(app, volume, gpu="H100!", hf_cache=cache, s3=S3, secrets=[modal.Secret.from_dict({})])

    functions = (prof.profile, prof.list_layers, prof.stream)
    assert all(isinstance(function, modal.Function) for function in functions)
    assert "lm_head" in prof.list_layers.local(workload.to_dict())
