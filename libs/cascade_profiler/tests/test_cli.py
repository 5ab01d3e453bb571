"""The command line: plans, refusals with exit codes, and a profile from start to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cascade_profiler.cli import app
from cascade_profiler.pipeline import Surroundings
from cascade_profiler.testing.fake_tools import FAKE_ENGINE, FakeTools
from typer.testing import CliRunner, Result

MODEL = ["--model", "facebook/opt-125m", "--prompt", "Hello, my name is"]


def invoke(around: Surroundings, *arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env=dict(around.environ))


def local(around: Surroundings, fake: FakeTools) -> list[str]:
    return [
        *["--out", str(around.runs_dir), "--scratch", str(around.scratch_dir)],
        *["--accelsim-dir", str(fake.accelsim), "--engine", FAKE_ENGINE],
    ]


def test_a_dry_run_prints_the_commands_and_starts_none(around: Surroundings, fake: FakeTools) -> None:
    s3 = ["--s3-endpoint", "http://localhost:9000", "--run-name", "my-run"]
    result = invoke(around, "profile", *MODEL, *local(around, fake), *s3, "--trace-steps", "0,5", "--dry-run")

    assert result.exit_code == 0, result.output
    lines = result.stdout.split("\n")
    assert [line.split()[1] for line in lines if line.startswith("# ")] == [
        "baseline",
        *["profiled"] * 3,
        *["trace"] * 3,
        "postprocess",
        "collect",
        "upload",
    ]
    assert "--trace-repeat=1 --trace-steps=0,5" in result.stdout
    assert "nsys profile --trace=cuda,nvtx" in result.stdout
    assert "NVBIT_INSTRUMENTATION_ENABLED=0" in result.stdout
    assert "s3://cascade/accelsim-traces/my-run/ (layout cascade), run.json last" in result.stdout
    assert not around.runs_dir.exists()
    assert not around.scratch_dir.exists()


def test_a_dry_run_leaves_the_plan_s_steps_open(around: Surroundings, fake: FakeTools) -> None:
    result = invoke(around, "profile", *MODEL, *local(around, fake), "--dry-run")

    assert "--trace-steps=<plan>" in result.stdout.replace("'", "")


def test_a_profile_runs_from_start_to_end(around: Surroundings, fake: FakeTools) -> None:
    small = ["--max-tokens", "4", "--repeats", "2", "--trace-steps", "0", "--run-name", "r"]
    result = invoke(around, "profile", *MODEL, *local(around, fake), *small)

    assert result.exit_code == 0, result.output
    run = json.loads(result.stdout)
    assert (run["status"], run["trace_steps"]) == ("ok", [0])
    assert Path(run["run_dir"]) == around.runs_dir / "r"
    assert (around.runs_dir / "r/kernel_mapping.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--trace-steps", "all"], 2, "trace_steps is 'all'"),
        (["--repeats", "1"], 2, "would be warm-up"),
        (["--keep-nsys-rep", "--s3-endpoint", "http://localhost:9"], 2, "keep_nsys_rep=True is refused"),
        (["--spinlock-handling", "maybe"], 2, "use mark_region"),
        (["--s3-endpoint", "https://key:secret@host"], 2, "carries credentials"),
        (
            ["--accelsim-dir", "/nonexistent", "--repeats", "2", "--max-tokens", "2"],
            1,
            "stage 'postprocess' failed",
        ),
    ],
)
def test_what_cannot_work_is_one_line_and_an_exit_code(
    *, around: Surroundings, fake: FakeTools, arguments: list[str], code: int, words: str
) -> None:
    result = invoke(around, "profile", *MODEL, *local(around, fake), *arguments)

    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_layers_are_listed_one_a_line(around: Surroundings) -> None:
    scratch = ["--scratch", str(around.scratch_dir), "--engine", FAKE_ENGINE]
    direct = invoke(around, "list-layers", "--model", "m", *scratch)
    legacy = invoke(around, "stream", "--model", "m", "--list-layers", *scratch)

    assert direct.stdout.split("\n")[3] == "model.decoder.layers.10.self_attn"
    assert legacy.stdout == direct.stdout


def test_streaming_needs_an_endpoint(around: Surroundings) -> None:
    result = invoke(around, "stream", *MODEL, "--layers", "model")

    assert result.exit_code == 2
    assert "--s3-endpoint" in result.stderr


def test_uploading_something_else_is_refused(around: Surroundings, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    result = invoke(around, "upload", str(tmp_path / "other"), "--s3-endpoint", "http://localhost:9")

    assert result.exit_code == 2
    assert "has no run.json" in result.stderr


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("no_such_module:open_engine", "cannot load the engine 'no_such_module:open_engine'"),
        ("needy_engine:open_engine", "the engine 'needy_engine:open_engine' needs no_such_vllm"),
    ],
)
def test_the_driver_says_in_one_line_that_vllm_is_missing(tmp_path: Path, engine: str, words: str) -> None:
    (tmp_path / "workload.json").write_text('{"model": "m", "prompts": ["p"]}', encoding="utf-8")
    (tmp_path / "needy_engine.py").write_text("def open_engine(workload):\n    import no_such_vllm\n")
    arguments = ["--mode=baseline", f"--workload={tmp_path / 'workload.json'}", f"--out={tmp_path / 'out'}"]

    ended = subprocess.run(
        [sys.executable, "-m", "cascade_profiler.driver", *arguments, f"--engine={engine}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )

    assert ended.returncode == 1
    assert ended.stderr.startswith(f"cascade-profiler driver: {words}")
    assert ended.stderr.count("\n") == 1
