"""Uploads and streams into a real S3 store: what lies there afterwards, in which order, and what stays
out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from cascade_cli.embedded.s3 import EmbeddedS3
from cascade_cli.embedded.s3_requests import S3Access, request
from cascade_client.object_store import open_store
from cascade_profiler.cli import app
from cascade_profiler.destination import plan_upload, upload_run
from cascade_profiler.errors import OptionsError, StageFailedError, UploadError
from cascade_profiler.objects import Credentials
from cascade_profiler.options import ProfileOptions, S3Destination
from cascade_profiler.pipeline import Surroundings, profile
from cascade_profiler.remote import run_stream
from cascade_profiler.stream import stream
from cascade_profiler.testing.fake_engine import CONTEXT
from cascade_profiler.testing.fake_tools import FAKE_ENGINE, FakeTools
from cascade_profiler.workload import Workload
from typer.testing import CliRunner

LAYER = "model.decoder.layers.10.self_attn"


def destination(access: S3Access, **more: str) -> S3Destination:
    raw = {"endpoint": access.endpoint, "bucket": access.bucket, "prefix": "accelsim-traces", **more}
    return S3Destination.from_mapping(raw)


def keys(access: S3Access, prefix: str) -> dict[str, int]:
    """Keys below `prefix`, without it, and their sizes."""

    async def listed() -> dict[str, int]:
        async with open_store(
            endpoint=access.endpoint,
            bucket=access.bucket,
            access_key=access.access_key,
            secret_key=access.secret_key,
        ) as store:
            found = await store.list_objects(f"{prefix}/")
        return {key.removeprefix(f"{prefix}/"): item.size_bytes for key, item in found.items()}

    return asyncio.run(listed())


def fetch(access: S3Access, key: str) -> Any:
    status, body = request("GET", access, f"/{access.bucket}/{key}")
    assert status == 200, body
    return json.loads(body)


@pytest.fixture
def owner(around: Surroundings, bucket: S3Access) -> Surroundings:
    """Surroundings with the keys of this test's bucket in the environment, as a Modal secret puts them
    there."""
    assert bucket.access_key is not None
    assert bucket.secret_key is not None
    environ = {"AWS_ACCESS_KEY_ID": bucket.access_key, "AWS_SECRET_ACCESS_KEY": bucket.secret_key}
    return replace(around, environ={**around.environ, **environ})


def test_a_run_in_the_layout_of_a_trace_is_what_an_app_takes_up(
    workload: Workload, around: Surroundings, s3_server: EmbeddedS3
) -> None:
    # The app's own bucket takes unsigned requests.
    access = s3_server.access
    options = ProfileOptions(run_name="app-run", trace_steps=(0, 2), s3=destination(access, layout="cascade"))

    run = profile(workload, options, around)

    prefix = "accelsim-traces/app-run"
    there = keys(access, prefix)
    assert {
        "metadata.json",
        "run.json",
        "corrected_timeline.json",
        "kernel_mapping.json",
        "real_timing.json",
    } < set(there)
    assert {"trace_alignment.json", "workload.json", "traced/trace_steps.json", "traces/kernelslist.g"} < set(
        there
    )
    assert len([key for key in there if key.endswith(".tracez")]) == 15
    assert not [key for key in there if key.endswith((".trace.xz", ".nsys-rep", ".sqlite"))]
    metadata = fetch(access, f"{prefix}/metadata.json")
    assert (metadata["status"], metadata["model"]) == ("ok", "facebook/opt-125m")
    assert metadata["gpu"] == "NVIDIA H100 80GB HBM3"
    assert (metadata["trace_gpu_arch"], metadata["suggested_sim_config"]) == ("sm_90", "SM90_H100")
    assert metadata["real_timing"] == "real_timing.json"
    assert {entry["key"]: entry["bytes"] for entry in metadata["files"]} == {
        f"{prefix}/{key}": size for key, size in there.items() if key not in {"metadata.json", "run.json"}
    }
    uri = "s3://cascade/accelsim-traces/app-run/"
    assert metadata["s3"]["uri"] == uri
    assert fetch(access, f"{prefix}/run.json") == run
    assert run["s3"] == {**destination(access, layout="cascade").to_dict(), "uri": uri}


def test_a_run_in_its_own_layout_keeps_every_file_where_it_was(
    workload: Workload, owner: Surroundings, bucket: S3Access
) -> None:
    options = ProfileOptions(
        run_name="r", trace_steps=(2,), s3=destination(bucket, prefix="profiles", region="auto")
    )

    profile(workload, options, owner)

    run_dir = owner.runs_dir / "r"
    local = {path.relative_to(run_dir).as_posix() for path in run_dir.rglob("*") if path.is_file()}
    assert set(keys(bucket, "profiles/r")) == local
    assert (
        len([name for name in local if name.startswith("traced/traces/") and name.endswith(".trace.xz")]) == 7
    )
    assert "files" not in fetch(bucket, "profiles/r/traced/metadata.json")
    assert (
        fetch(bucket, "profiles/r/traced/metadata.json")["s3"]["uri"] == f"s3://{bucket.bucket}/profiles/r/"
    )


def test_a_failed_run_sends_its_diagnostics_with_status_failed(
    workload: Workload, owner: Surroundings, bucket: S3Access
) -> None:
    failing = replace(owner, environ={**owner.environ, "CASCADE_FAKE_FAIL": "tracer"})
    options = ProfileOptions(run_name="r", trace_steps=(2,), s3=destination(bucket, layout="cascade"))

    with pytest.raises(StageFailedError, match="pretended tracer died"):
        profile(workload, options, failing)

    there = keys(bucket, "accelsim-traces/r")
    assert {"logs/trace.log", "corrected_timeline.json", "metadata.json", "run.json"} < set(there)
    assert not [key for key in there if "kernel-" in key]
    assert fetch(bucket, "accelsim-traces/r/metadata.json")["status"] == "failed"
    assert fetch(bucket, "accelsim-traces/r/run.json")["failed_stage"] == "trace"


def test_a_run_whose_upload_fails_is_kept_and_can_be_uploaded_later(
    workload: Workload, owner: Surroundings, bucket: S3Access
) -> None:
    nowhere = S3Destination(endpoint=bucket.endpoint, bucket="no-such-bucket", layout="cascade")

    with pytest.raises(StageFailedError, match="stage 'upload' failed"):
        profile(workload, ProfileOptions(run_name="r", trace_steps=(2,), s3=nowhere), owner)

    run = json.loads((owner.runs_dir / "r/run.json").read_text(encoding="utf-8"))
    assert (run["status"], run["failed_stage"]) == ("ok", None), "the profile itself is complete"
    assert "no-such-bucket" in run["upload_error"]
    arguments = [
        "upload",
        str(owner.runs_dir / "r"),
        "--s3-endpoint",
        bucket.endpoint,
        "--s3-bucket",
        bucket.bucket,
    ]
    result = CliRunner().invoke(app, arguments, env=dict(owner.environ))
    assert result.exit_code == 0, result.output
    assert result.stdout.split("\n")[-2] == f"s3://{bucket.bucket}/accelsim-traces/r/"
    assert fetch(bucket, "accelsim-traces/r/metadata.json")["status"] == "ok"
    again = CliRunner().invoke(app, arguments, env=dict(owner.environ))
    assert "already there: kernel_mapping.json" in again.stderr, "what arrived before is not sent again"


def test_wrong_keys_are_refused_without_being_repeated(tmp_path: Path, bucket: S3Access) -> None:
    (tmp_path / "run.json").write_text("{}")
    environ = {"AWS_ACCESS_KEY_ID": "nobody", "AWS_SECRET_ACCESS_KEY": "wrong-secret-value"}

    with pytest.raises(UploadError, match="AWS_ACCESS_KEY_ID") as failure:
        upload_run(tmp_path, destination(bucket), "r", environ)
    assert "wrong-secret-value" not in str(failure.value)


def test_half_a_key_pair_is_refused_and_a_token_needs_keys() -> None:
    with pytest.raises(OptionsError, match="set both"):
        Credentials.from_environ({"AWS_ACCESS_KEY_ID": "a"})
    assert Credentials.from_environ({"AWS_SESSION_TOKEN": "t"}) == Credentials(None, None, None)
    assert "secret" not in repr(Credentials("key", "secret", "token"))


def test_run_json_is_last_and_captures_are_refused() -> None:
    names = ["run.json", "zz.json", "traced/metadata.json", "traced/traces/kernel-1.trace.xz"]
    raw = [item.key for item in plan_upload([PurePosixPath(name) for name in names], "cascade")]
    kept = [item.key for item in plan_upload([PurePosixPath(name) for name in names], "run")]
    processed = plan_upload(
        [PurePosixPath(name) for name in [*names, "traced/traces/kernelslist.g"]], "cascade"
    )

    assert raw == ["metadata.json", "traces/kernel-1.trace.xz", "zz.json", "run.json"]
    assert kept == ["traced/metadata.json", "traced/traces/kernel-1.trace.xz", "zz.json", "run.json"]
    assert [item.key for item in processed] == [
        "metadata.json",
        "traces/kernelslist.g",
        "zz.json",
        "run.json",
    ]
    with pytest.raises(OptionsError, match=r"capture\.sqlite holds a process environment"):
        plan_upload([PurePosixPath("run.json"), PurePosixPath("profiled/capture.sqlite")], "run")
    with pytest.raises(OptionsError, match=r"has no run\.json"):
        plan_upload([PurePosixPath("a.json")], "run")


def test_a_stream_ends_with_everything_in_the_bucket(
    around: Surroundings, bucket: S3Access, owner: Surroundings
) -> None:
    workload = Workload("facebook/opt-125m", ["Hello, my name is"], max_tokens=4, repeats=1, warmup_repeats=0)

    result = run_stream(
        workload.to_dict(), [LAYER], s3=destination(bucket).to_dict(), run_name="streamed", around=owner
    )

    # Three kernels of every step are the layer's: a prefill and three decodes.
    assert (result["run_name"], result["kernels"]) == ("streamed", 12)
    there = keys(bucket, "accelsim-traces/streamed")
    traces = [key for key in there if key.endswith(".trace.xz")]
    assert len(traces) == 12
    assert sum(there[key] for key in traces) == result["sent_bytes"]
    assert {f"traces/kernelslist_{CONTEXT}", f"traces/stats_{CONTEXT}", "logs/trace.log"} < set(there)
    assert "spinlock_detection/spinlock_instructions.txt" in there
    metadata = fetch(bucket, "accelsim-traces/streamed/metadata.json")
    assert (metadata["status"], metadata["layers"], metadata["kernels_sent"]) == ("ok", [LAYER], 12)
    assert (metadata["gpu"], metadata["trace_gpu_arch"]) == ("NVIDIA H100 80GB HBM3", "sm_90")
    assert "files" not in metadata
    assert not list(around.scratch_dir.iterdir())


def test_the_stream_command_sends_what_an_app_takes_up(
    around: Surroundings, fake: FakeTools, bucket: S3Access, owner: Surroundings
) -> None:
    arguments = [
        *["stream", "--model", "facebook/opt-125m", "--prompt", "Hello, my name is", "--layers", LAYER],
        *[
            "--s3-endpoint",
            bucket.endpoint,
            "--s3-bucket",
            bucket.bucket,
        ],
        *["--run-name", "typed", "--scratch", str(around.scratch_dir)],
        *["--accelsim-dir", str(fake.accelsim), "--engine", FAKE_ENGINE],
    ]

    result = CliRunner().invoke(app, arguments, env=dict(owner.environ))

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["kernels"] == 12
    there = keys(bucket, "accelsim-traces/typed")
    assert {"metadata.json", f"traces/kernelslist_{CONTEXT}", f"traces/stats_{CONTEXT}"} < set(there)


def test_a_stream_that_fails_leaves_logs_and_a_failed_status(owner: Surroundings, bucket: S3Access) -> None:
    failing = replace(owner, environ={**owner.environ, "CASCADE_FAKE_FAIL": "tracer"})
    workload = Workload("m", ["Hello"], max_tokens=4, repeats=1, warmup_repeats=0)

    with pytest.raises(StageFailedError, match="pretended tracer died"):
        run_stream(
            workload.to_dict(), [LAYER], s3=destination(bucket).to_dict(), run_name="r", around=failing
        )

    there = keys(bucket, "accelsim-traces/r")
    assert {"logs/trace.log", "metadata.json", "spinlock_detection/spinlock_instructions.txt"} < set(there)
    metadata = fetch(bucket, "accelsim-traces/r/metadata.json")
    assert metadata["status"] == "failed"
    assert "pretended tracer died" in metadata["error"]


def test_a_bucket_that_is_not_there_stops_a_stream_before_the_gpu_is_used(
    owner: Surroundings, bucket: S3Access
) -> None:
    workload = Workload("m", ["Hello"], max_tokens=4, repeats=1, warmup_repeats=0)
    s3 = {**destination(bucket).to_dict(), "bucket": "no-such-bucket"}

    with pytest.raises(UploadError, match="no-such-bucket"):
        run_stream(workload.to_dict(), [LAYER], s3=s3, run_name="r", around=owner)
    assert not owner.scratch_dir.exists()


@pytest.mark.parametrize(
    ("layers", "words"), [([], "no layers to trace"), (["no.such"], "has no module no.such")]
)
def test_layers_must_be_the_model_s(
    owner: Surroundings, bucket: S3Access, layers: list[str], words: str
) -> None:
    workload = Workload("m", ["Hello"], max_tokens=2, repeats=1, warmup_repeats=0)

    with pytest.raises((OptionsError, StageFailedError), match=words):
        run_stream(workload.to_dict(), layers, s3=destination(bucket).to_dict(), run_name="r", around=owner)


class Recorder:
    """A store that writes down what is sent, in order, with the bytes."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

    def check(self) -> None:
        """Always there."""

    def put_file(self, key: str, path: Path) -> None:
        self.sent.append((key, path.read_bytes()))

    def put_bytes(self, key: str, body: bytes) -> None:
        self.sent.append((key, body))


def test_kernels_are_sent_while_tracing_goes_on_between_first_metadata_and_last_statistics(
    around: Surroundings,
) -> None:
    workload = Workload("m", ["Hello"], max_tokens=4, repeats=1, warmup_repeats=0)
    options = ProfileOptions(trace_steps=(), run_name="r")
    # The tracer does not go on before its first file has been sent and deleted.
    waiting = replace(around, environ={**around.environ, "CASCADE_FAKE_WAITS_UNTIL_SENT": "1"})
    recorder = Recorder()

    stream(workload, [LAYER], options, waiting, lambda run_name: nullcontext(recorder))

    order = [key for key, _ in recorder.sent]
    assert order[0] == "metadata.json"
    assert json.loads(recorder.sent[0][1])["status"] == "tracing"
    assert json.loads(recorder.sent[0][1])["gpu"] == "NVIDIA H100 80GB HBM3", "asked of nvidia-smi"
    assert all(key.startswith("traces/kernel-") for key in order[1:13])
    assert order[-3:] == [f"traces/kernelslist_{CONTEXT}", "metadata.json", f"traces/stats_{CONTEXT}"]
    assert json.loads(recorder.sent[-2][1])["status"] == "ok"


class Disturbed(Recorder):
    """A store in whose midst something happens to the stream."""

    def __init__(self, happens: Callable[[Path], None]) -> None:
        super().__init__()
        self._happens = happens

    def put_file(self, key: str, path: Path) -> None:
        if key.startswith("traces/kernel-"):
            self._happens(path)
        super().put_file(key, path)


def _interrupt(_kernel: Path) -> None:
    raise KeyboardInterrupt


def _cut_off_engine(kernel: Path) -> None:
    kernel.parents[1].joinpath("engine.json").write_text("{")


@pytest.mark.parametrize(
    ("happens", "ends_with", "told"),
    [
        (_interrupt, KeyboardInterrupt, "KeyboardInterrupt"),
        (_cut_off_engine, StageFailedError, "CaptureError: engine.json is not what the driver writes"),
    ],
)
def test_a_stream_that_breaks_off_is_not_left_tracing(
    around: Surroundings, happens: Callable[[Path], None], ends_with: type[BaseException], told: str
) -> None:
    workload = Workload("m", ["Hello"], max_tokens=4, repeats=1, warmup_repeats=0)
    options = ProfileOptions(trace_steps=(), run_name="r")
    recorder = Disturbed(happens)

    with pytest.raises(ends_with):
        stream(workload, [LAYER], options, around, lambda run_name: nullcontext(recorder))

    sent = dict(recorder.sent)
    metadata = json.loads(sent["metadata.json"])
    assert metadata["status"] == "failed"
    assert metadata["error"].startswith(told)
    assert "logs/trace.log" in sent


def test_secrets_are_cut_out_of_streamed_logs(around: Surroundings) -> None:
    workload = Workload("m", ["Hello"], max_tokens=1, repeats=1, warmup_repeats=0)
    environ = {**around.environ, "HF_TOKEN": "secret-value-1", "CASCADE_FAKE_SAYS": "secret-value-1"}
    recorder = Recorder()
    options = ProfileOptions(trace_steps=(), run_name="r")

    stream(
        workload, [LAYER], options, replace(around, environ=environ), lambda run_name: nullcontext(recorder)
    )

    logs = dict(recorder.sent)
    assert b"removed by cascade-profiler" in logs["logs/trace.log"]
    assert not any(b"secret-value-1" in body for body in logs.values())
