"""The verbs on a whole app: what they print, what they refuse, and what scripts get."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from cascade_api.app import build_app
from cascade_api.settings import ApiSettings
from cascade_cli.main import app
from cascade_cli.testing import DemoApp
from cascade_client.upload import upload_trace
from typer.testing import CliRunner, Result

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

Run = Callable[..., Result]


@pytest.fixture
def cascade(replay_app: DemoApp, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("CASCADE_URL", replay_app.url)
    monkeypatch.setenv("CASCADE_TOKEN", replay_app.token)
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def printed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_report_of_a_replay_has_the_logs_numbers_and_says_whose_they_are(
    cascade: Run, replay_app: DemoApp
) -> None:
    report = printed(cascade("report", replay_app.run_id, "--json"))
    assert report["statements"][0]["kind"] == "stand-in"
    assert report["comparable"] is False
    assert report["fastest"] == []
    # 39,328 cycles over six kernels in the recorded log; 1410 and 1440 MHz are the configs' clocks.
    found = {config["gpu_config"]: config for config in report["configs"]}
    assert found["SM80_A100"]["median_ns"] == pytest.approx(39328 / 1410 * 1000)
    assert found["SM80_A30"]["median_ns"] == pytest.approx(39328 / 1440 * 1000)
    assert [found["SM80_A100"][key] for key in ("succeeded", "replicas", "kernels")] == [2, 2, 6]
    assert found["SM80_A100"]["lowest_ns"] == found["SM80_A100"]["highest_ns"]
    assert found["SM80_A100"]["gpu_tot_sim_cycle"] == 39328
    assert report["worst_kernels"][0]["name"] == "dot_kernel"
    assert report["failed_sims"] == []
    text = cascade("report", replay_app.run_id).stdout
    assert text.index("stand-in simulator") < text.index("27.9 µs")
    assert "cannot be compared" in text
    assert "> **stand-in**" in cascade("report", replay_app.run_id, "--markdown").stdout


def test_the_report_of_an_estimate_says_that_nothing_was_simulated(
    estimate_app: DemoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADE_URL", estimate_app.url)
    monkeypatch.setenv("CASCADE_TOKEN", estimate_app.token)
    report = printed(CliRunner().invoke(app, ["report", "--json"]))
    assert report["run_id"] == estimate_app.run_id
    assert report["statements"][0]["kind"] == "estimate"
    assert "No simulator ran" in report["statements"][0]["text"]
    assert report["comparable"] is True
    medians = {config["gpu_config"]: config["median_ns"] for config in report["configs"]}
    expected = {name: config["total_sim_ns"] for name, config in estimate_app.summary["configs"].items()}
    assert medians == pytest.approx(expected)
    assert report["fastest"][0] == min(medians, key=lambda name: medians[name])


def test_lists_are_tables_or_json(cascade: Run, replay_app: DemoApp) -> None:
    assert "demo" in {trace["id"] for trace in printed(cascade("traces", "--json"))}
    assert "demo/transformer-block" in cascade("traces").stdout
    assert "gemv_kernel" in cascade("traces", "demo").stdout
    assert {config["arch"] for config in printed(cascade("configs", "--arch", "sm_80", "--json"))} == {
        "sm_80"
    }
    assert replay_app.run_id in cascade("runs").stdout
    assert printed(cascade("runs", "--trace", "nothing", "--json")) == []
    assert "no runs of trace nothing" in cascade("runs", "--trace", "nothing").stdout
    assert "no config of sm_99" in cascade("configs", "--arch", "sm_99").stdout
    sims = printed(cascade("sims", replay_app.run_id, "--json"))
    assert [sim["engine"] for sim in sims] == ["replay"] * 4
    assert "6 of 8" in cascade("sims", replay_app.run_id).stdout


def test_results_are_compared_and_saved(cascade: Run, replay_app: DemoApp, tmp_path: Path) -> None:
    result = cascade(
        "results", replay_app.run_id, "-o", str(tmp_path / "all.json"), "--perfetto", str(tmp_path / "p.json"),
        "--files", str(tmp_path / "files"),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert result.stdout.index("stand-in simulator") < result.stdout.index("Replayed time")
    assert "triad_kernel" in result.stdout
    said = printed(cascade("results", replay_app.run_id, "--json"))["statements"]
    assert said[0]["kind"] == "stand-in"
    assert json.loads((tmp_path / "all.json").read_text())["run"]["id"] == replay_app.run_id
    assert json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    logs = sorted((tmp_path / "files").glob("*/sim.log"))
    assert [log.parent.name for log in logs] == ["SM80_A100-0", "SM80_A100-1", "SM80_A30-0", "SM80_A30-1"]
    assert "gpu_tot_sim_cycle = 39328" in logs[0].read_text()
    assert (logs[0].parent / "outputs" / "accelsim.log.gz").stat().st_size > 0


def test_each_sim_gets_a_folder_of_its_own_where_a_config_was_given_twice(
    cascade: Run, tmp_path: Path
) -> None:
    launched = printed(cascade("launch", "demo", "SM80_A30", "SM80_A100", "SM80_A30", "--json"))
    assert cascade("watch", launched["id"]).exit_code == 0
    assert cascade("results", launched["id"], "--files", str(tmp_path)).exit_code == 0
    doubled = sorted(f"SM80_A30-0-{sim['id']}" for sim in launched["sims"] if sim["gpu_config"] == "SM80_A30")
    assert len(doubled) == 2
    assert sorted(path.parent.name for path in tmp_path.glob("*/sim.log")) == ["SM80_A100-0", *doubled]


def test_a_launch_is_watched_to_its_end(cascade: Run) -> None:
    result = cascade("launch", "demo", "SM80_A30", "--watch", "--json")
    assert result.exit_code == 0, result.output
    first, *events = [json.loads(line) for line in result.stdout.strip().split("\n")]
    assert [entry["gpu_config"] for entry in first["entries"]] == ["SM80_A30"]
    assert events[0]["type"] == "snapshot"
    # A snapshot where the sim had ended before the stream was opened, else the event that it ended with.
    last = events[-1]
    assert (last["run"]["sims"][0] if last["type"] == "snapshot" else last["sim"])["state"] == "succeeded"
    assert all(event["stat"]["stats"] == {} for event in events if event["type"] == "kernel")
    watched = cascade("watch", first["id"])
    assert watched.exit_code == 0
    assert f"Next: cascade report {first['id']}" in watched.stdout


def test_more_than_four_sims_are_not_launched_unasked(cascade: Run) -> None:
    before = {run["id"] for run in printed(cascade("runs", "--json"))}
    result = cascade("launch", "demo", "SM80_A100=3", "SM80_A30=3")
    assert result.exit_code == 1
    assert "6 sims: SM80_A100 × 3, SM80_A30 × 3" in result.stderr
    assert "--yes" in result.stderr
    assert {run["id"] for run in printed(cascade("runs", "--json"))} == before
    launched = printed(cascade("launch", "demo", "SM80_A100=3", "SM80_A30=3", "--yes", "--json"))
    assert len(launched["sims"]) == 6
    cancelled = printed(cascade("cancel", launched["id"], "--json"))
    assert sum(cancelled["sim_counts"].values()) == 6


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["report", "run-000000000000"],
            1,
            "run run-000000000000 not found. Next: see what there is with `cascade runs`",
        ),
        (["launch", "demo", "SM90_H100"], 1, "SM90_H100 is sm_90 but trace demo is sm_80. Next: "),
        (["launch", "demo", "SM99_X"], 1, "see which configs fit with `cascade configs`"),
        (["launch", "demo", "SM80_A100=65"], 2, "count from 1 to 64"),
        (["launch", "nothing"], 1, "trace nothing not found. Next: see what there is with `cascade traces`"),
        (["mcp", "--transport", "carrier-pigeon"], 1, "choose stdio or http"),
    ],
)
def test_a_mistake_ends_in_one_clear_sentence(
    cascade: Run, arguments: list[str], code: int, said: str
) -> None:
    result = cascade(*arguments)
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_wrong_token_says_what_to_set(cascade: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_TOKEN", "not-the-token")
    result = cascade("runs")
    assert result.exit_code == 1
    assert "set CASCADE_TOKEN" in result.stderr
    assert "not-the-token" not in result.output


def test_an_app_that_serves_here_is_found_without_being_named(
    cascade: Run, replay_app: DemoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASCADE_URL")
    monkeypatch.setenv("CASCADE_TOKEN", "meant-for-another-app")
    monkeypatch.setenv("CASCADE_DATA_DIR", str(replay_app.data_dir))
    assert "demo" in {trace["id"] for trace in printed(cascade("traces", "--json"))}


def test_without_any_app_the_next_step_is_named(
    cascade: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASCADE_URL")
    monkeypatch.setenv("CASCADE_DATA_DIR", str(tmp_path))
    result = cascade("traces")
    assert result.exit_code == 1
    assert "export CASCADE_URL" in result.stderr


def test_an_upload_becomes_a_ready_trace(
    cascade: Run, replay_app: DemoApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASCADE_URL")
    monkeypatch.setenv("CASCADE_DATA_DIR", str(replay_app.data_dir))
    demo_trace = str(Path(__file__).parents[3] / "examples" / "demo-trace")
    upload = ("upload", demo_trace, "--run-name", "by hand", "--meta", "model=a/model", "--wait", "--json")
    uploaded = printed(cascade(*upload))
    assert (uploaded["trace_id"], uploaded["state"]) == ("by hand", "ready")
    assert printed(cascade("traces", "by hand", "--json"))["model"] == "a/model"
    again = printed(cascade(*upload))
    assert again["sent_bytes"] == 0
    wrong = cascade("upload", demo_trace, "--run-name", "x", "--meta", "nothing")
    assert wrong.exit_code == 2
    assert "KEY=VALUE" in wrong.stderr


def test_what_the_app_has_settled_is_not_uploaded_over(
    cascade: Run, replay_app: DemoApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASCADE_URL")
    monkeypatch.setenv("CASCADE_DATA_DIR", str(replay_app.data_dir))
    mine = tmp_path / "mine"
    (mine / "traces").mkdir(parents=True)
    (mine / "traces" / "kernel-1.traceg").write_text("another kernel")
    refused = cascade("upload", str(mine), "--run-name", "demo", "--wait")
    assert refused.exit_code == 1
    assert "the app has taken up a trace demo already" in refused.stderr
    monkeypatch.setattr("cascade_cli.uploading.upload_trace", partial(upload_trace, status="failed"))
    failed = cascade("upload", str(mine), "--run-name", "given up", "--wait")
    assert failed.exit_code == 1
    assert "trace given up is failed: profiler reported status" in failed.stdout
    again = cascade("upload", str(mine), "--run-name", "given up", "--wait")
    assert again.exit_code == 1
    assert "the app has given up a trace given up (profiler reported status" in again.stderr
    assert "Next: choose another --run-name, or remove the trace's objects" in again.stderr


def test_the_served_document_is_the_one_that_the_client_is_checked_against(replay_app: DemoApp) -> None:
    served = httpx.get(f"{replay_app.url}/api/openapi.json", timeout=60).json()
    assert served == json.loads(json.dumps(build_app(ApiSettings(no_auth=True)).openapi()))
