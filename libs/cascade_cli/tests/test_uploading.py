"""Where `cascade upload` sends to, and how long it waits for what the app makes of it."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import typer
from cascade_cli import running, uploading
from cascade_cli.main import app
from cascade_client.upload import UploadReport
from cascade_client.wire.traces import TraceDetail, TraceState
from typer.testing import CliRunner

START = datetime(2026, 1, 1, tzinfo=UTC)


def trace(state: TraceState, *, changed_s: float = 0) -> TraceDetail:
    return TraceDetail(
        id="t",
        state=state,
        error=None,
        created_at=START,
        updated_at=START + timedelta(seconds=changed_s),
        model=None,
        layers=[],
        source_gpu=None,
        trace_gpu_arch="sm_80",
        suggested_sim_config=None,
        kernel_count=0,
        bytes=0,
        has_real_timing=False,
        has_step_timeline=False,
        sample=False,
        metadata=None,
        kernels=[],
    )


class Clock:
    """Moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(
    ("state", "patience_s", "said"),
    [
        (None, uploading.APPEARS_WITHIN_S, "the app has not seen trace t within 60 s of its upload"),
        (
            TraceState.UPLOADING,
            uploading.UPLOADING_UNCHANGED_S,
            "trace t is uploading and did not change for 600 s",
        ),
        (
            TraceState.PROCESSING,
            uploading.PROCESSED_WITHIN_S,
            "trace t is processing and did not change for 21600 s",
        ),
    ],
)
def test_the_wait_for_a_trace_that_does_not_get_on_ends(
    state: TraceState | None, patience_s: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    with pytest.raises(typer.Exit):
        uploading.settled("t", lambda: trace(state) if state else None, clock=clock, sleep=clock.sleep)
    assert patience_s < clock.now_s <= patience_s + 2 * uploading.POLL_S
    assert said in capsys.readouterr().err


def test_a_trace_that_gets_on_is_waited_for() -> None:
    clock = Clock()

    def look() -> TraceDetail:
        if clock.now_s < 3 * uploading.UPLOADING_UNCHANGED_S:
            return trace(TraceState.UPLOADING, changed_s=clock.now_s // 100)
        return trace(TraceState.READY)

    assert uploading.settled("t", look, clock=clock, sleep=clock.sleep).state is TraceState.READY


@pytest.mark.parametrize(("variable", "prefix"), [(None, "of-the-app"), ("mine", "mine")])
def test_an_upload_goes_below_the_prefix_of_the_app_that_runs_here(
    variable: str | None, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("URL", "TOKEN", "S3_ENDPOINT", "S3_BUCKET", "S3_PREFIX"):
        monkeypatch.delenv(f"CASCADE_{name}", raising=False)
    monkeypatch.setenv("CASCADE_DATA_DIR", str(tmp_path))
    if variable is not None:
        monkeypatch.setenv("CASCADE_S3_PREFIX", variable)
    given: dict[str, object] = {}

    async def upload(directory: Path, **options: object) -> UploadReport:
        given.update(options)
        return UploadReport((), "s3://somewhere/")

    monkeypatch.setattr(uploading, "upload_trace", upload)
    here = running.RunningUrls(
        pid=os.getpid(),
        url="http://127.0.0.1:1",
        token=None,
        nats_url="",
        database_url="",
        s3_endpoint="http://127.0.0.1:2",
        s3_bucket="of-the-app",
        s3_internal_bucket="",
        s3_prefix="of-the-app",
        s3_access_key=None,
        s3_secret_key=None,
    )
    with running.announced(tmp_path, here):
        result = CliRunner().invoke(app, ["upload", str(tmp_path), "--run-name", "t"])
    assert result.exit_code == 0, result.output
    assert (given["endpoint"], given["bucket"], given["prefix"]) == (
        "http://127.0.0.1:2",
        "of-the-app",
        prefix,
    )
