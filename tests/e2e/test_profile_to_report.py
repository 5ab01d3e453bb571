"""Profile with stand-in tools, upload, run, report: the profiler's output goes through a real app to a finished run.

The tools on PATH are fakes and the sims replay a recorded log, so every number here is the stand-in's; the paths,
files, states and words are the product's.
"""

import os
import time
from pathlib import Path

import pytest
from cascade_cli import running
from cascade_cli.testing import DemoApp
from cascade_client.client import CascadeClient
from cascade_client.report_text import markdown
from cascade_client.wire.runs import RunEntry
from cascade_profiler.options import ProfileOptions, S3Destination
from cascade_profiler.pipeline import Surroundings, profile
from cascade_profiler.testing.fake_tools import install
from cascade_profiler.workload import Workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

READY_WITHIN_S = 90.0
ENDED_WITHIN_S = 120.0
POLL_S = 0.2


def profiled(tmp_path: Path, app: DemoApp) -> dict[str, object]:
    urls = running.read(app.data_dir)
    assert urls is not None
    fake = install(tmp_path / "tools")
    around = Surroundings(
        runs_dir=tmp_path / "runs",
        scratch_dir=tmp_path / "scratch",
        environ=fake.environ(os.environ),
        tools=fake.tools(),
        jobs=2,
    )
    for directory in (around.runs_dir, around.scratch_dir):
        directory.mkdir()
    destination = S3Destination(urls.s3_endpoint, urls.s3_bucket, "accelsim-traces", layout="cascade")
    workload = Workload("facebook/opt-125m", ["Hello, my name is"], max_tokens=12, repeats=3)
    return profile(workload, ProfileOptions(run_name="profiled", s3=destination), around)


def test_a_profile_goes_up_is_simulated_and_reported(tmp_path: Path, replay_app: DemoApp) -> None:
    run_record = profiled(tmp_path, replay_app)
    assert run_record["status"] == "ok"
    with CascadeClient(replay_app.url, replay_app.token) as client:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            found = [trace for trace in client.traces() if trace.id == "profiled"]
            if found and found[0].state in ("ready", "failed"):
                break
            assert time.monotonic() < deadline, found
            time.sleep(POLL_S)
        trace = client.trace("profiled")
        assert (trace.state, trace.error) == ("ready", None)
        assert trace.trace_gpu_arch == "sm_90"
        assert trace.has_real_timing
        assert trace.has_step_timeline
        assert trace.kernel_count == len(trace.kernels) > 0

        run = client.launch("profiled", [RunEntry(gpu_config="SM90_H100", count=1)])
        deadline = time.monotonic() + ENDED_WITHIN_S
        while run.state == "active":
            assert time.monotonic() < deadline, run
            time.sleep(POLL_S)
            run = client.run(run.id)
        assert run.state == "succeeded", [sim.error for sim in run.sims]
        comparison = client.comparison(run.id)
        assert comparison.has_real_timing
        assert any(row.real_ns is not None for row in comparison.rows)
        text = markdown(client.report(run.id))
    assert "stand-in" in text or "replayed" in text
    assert run.id in text
