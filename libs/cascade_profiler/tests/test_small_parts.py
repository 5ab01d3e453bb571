"""Secrets, collection, GPU names and clocks, commands and processes."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cascade_profiler.collect import collect, diagnostics_only, everything, everything_but_captures
from cascade_profiler.commands import Command, Layout, Tools, planned_commands
from cascade_profiler.errors import CommandFailedError
from cascade_profiler.gpus import gpu_arch, parse_clocks, parse_gpu, sim_config
from cascade_profiler.process import log_tail, run
from cascade_profiler.secrets import REMOVED, is_secret_name, redact, secret_values, without_secrets


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "HF_TOKEN",
        "OPENAI_API_KEY",
        "DB_PASSWORD",
        "MODAL_TOKEN_SECRET",
    ],
)
def test_names_of_credentials_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["PATH", "AWS_REGION", "TOKENIZERS_PARALLELISM", "CUDA_VISIBLE_DEVICES", "HOME"]
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret_name(name)


def test_an_environment_loses_its_secrets_except_those_named() -> None:
    environ = {"PATH": "/bin", "HF_TOKEN": "hf_x", "AWS_SECRET_ACCESS_KEY": "y"}

    assert without_secrets(environ) == {"PATH": "/bin"}
    assert without_secrets(environ, keep=("HF_TOKEN",)) == {"PATH": "/bin", "HF_TOKEN": "hf_x"}


def test_longer_secrets_are_removed_before_the_shorter_ones_inside_them() -> None:
    values = secret_values({"A_TOKEN": "secret-value", "B_TOKEN": "secret-value-longer", "C_TOKEN": "short"})

    assert values == ("secret-value-longer", "secret-value")
    assert redact("x secret-value-longer y", values) == f"x {REMOVED} y"


def test_collection_takes_what_is_asked_for_and_cleans_text(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    for name, content in {
        "logs/trace.log": b"token=secret-value \xff\n",
        "traced/traces/kernel-1.trace.xz": b"\x00secret-value",
        "traced/traces/kernelslist_ctx_0xa": b"kernel-1.trace.xz\n",
        "profiled/capture.sqlite": b"x",
        "profiled/capture.nsys-rep": b"x",
        "profiled/capture.sqlite-wal": b"x",
    }.items():
        path = scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (scratch / "link").symlink_to("/etc/passwd")

    taken = collect(scratch, tmp_path / "run", secrets=["secret-value"], include=everything_but_captures)

    assert [path.as_posix() for path in taken] == [
        "logs/trace.log",
        "traced/traces/kernel-1.trace.xz",
        "traced/traces/kernelslist_ctx_0xa",
    ]
    assert (tmp_path / "run/logs/trace.log").read_bytes() == f"token={REMOVED} ".encode() + b"\xff\n"
    assert (tmp_path / "run/traced/traces/kernel-1.trace.xz").read_bytes() == b"\x00secret-value"
    assert not diagnostics_only(Path("traced/traces/kernel-1.trace.xz"))
    assert diagnostics_only(Path("traced/traces/stats_ctx_0xa"))
    assert everything(Path("profiled/capture.sqlite"))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("NVIDIA H100 80GB HBM3", "SM90_H100"),
        ("NVIDIA H200", "SM90_H200"),
        ("NVIDIA A100-SXM4-80GB", "SM80_A100"),
        ("NVIDIA B200", None),
    ],
)
def test_only_gpus_that_the_simulator_has_a_configuration_for_get_one(name: str, config: str | None) -> None:
    assert sim_config(name) == config


def test_gpu_queries_are_read() -> None:
    assert gpu_arch((9, 0)) == "sm_90"
    assert parse_gpu("NVIDIA H100 80GB HBM3, 9.0\nNVIDIA H100 80GB HBM3, 9.0\n") == (
        "NVIDIA H100 80GB HBM3",
        (9, 0),
    )
    assert parse_gpu("No devices were found\n") is None


def test_clocks_are_medians_of_the_lines_that_hold_numbers() -> None:
    assert parse_clocks("1980, 2619\n[N/A], [N/A]\n1965, 2619\n1980, 2619\n198") == (1980, 2619)
    assert parse_clocks("1980, 2619\n1971, 2619\n") == (1975.5, 2619)
    assert parse_clocks("") == (None, None)


def test_the_plan_lists_every_stage_in_order_and_no_trace_where_none_is_wanted(tmp_path: Path) -> None:
    tools, layout = Tools.in_accelsim(tmp_path), Layout(tmp_path / "scratch")

    def stages(steps: tuple[int, ...] | None) -> list[str]:
        return [
            stage
            for stage, _ in planned_commands(
                tools, layout, repeat=1, steps=steps, handling="mark_region", postprocess=True, jobs=4
            )
        ]

    assert stages((0,)) == ["baseline", *["profiled"] * 3, *["trace"] * 3, "postprocess"]
    assert stages(()) == ["baseline", *["profiled"] * 3]


def test_a_rendered_command_can_be_pasted_into_a_shell() -> None:
    command = Command(argv=("echo", "a b", "$HOME"), log=Path("x"), env={"NAME": "it's"})

    assert command.render() == """NAME='it'"'"'s' echo 'a b' '$HOME'"""


def python(code: str, tmp_path: Path) -> Command:
    return Command(argv=(sys.executable, "-c", code), log=tmp_path / "logs/x.log")


def test_a_failing_command_quotes_the_end_of_its_log(tmp_path: Path) -> None:
    command = python("print('one'); print('two'); raise SystemExit(3)", tmp_path)

    with pytest.raises(CommandFailedError, match=r"exited with 3; its log ends with:\none\ntwo") as failure:
        run(command, os.environ, timeout_s=30)
    assert failure.value.log == command.log


@pytest.mark.parametrize(
    ("ending", "limit_s", "said"),
    [("time.sleep(600)", 2, "ran past its limit of 2 s"), ("raise SystemExit(3)", 60, "exited with 3")],
)
def test_a_command_that_fails_is_ended_with_its_children(
    tmp_path: Path, ending: str, limit_s: float, said: str
) -> None:
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {str(tmp_path)!r}])\n"
        f"{ending}"
    )
    command = python(code, tmp_path)

    with pytest.raises(CommandFailedError, match=said):
        run(command, os.environ, timeout_s=limit_s)

    # Known by its last argument and not by what the command says of it: it may not come to that within its limit.
    deadline = time.monotonic() + 60
    while any(_ends_with(str(tmp_path), process) for process in Path("/proc").iterdir()):
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.02)


def _ends_with(argument: str, process: Path) -> bool:
    """Whether that is a running process's last argument; a zombie has none."""
    try:
        return (process / "cmdline").read_bytes().endswith(argument.encode() + b"\0")
    except OSError:
        return False


def test_a_command_sees_no_secrets_but_those_it_keeps(tmp_path: Path) -> None:
    command = python(
        "import os; print(sorted(n for n in os.environ if 'TOKEN' in n or n == 'MINE'))", tmp_path
    )
    command = replace(command, env={"MINE": "1"}, keep_secrets=("HF_TOKEN",))

    run(command, {"HF_TOKEN": "a", "OTHER_TOKEN": "b"}, timeout_s=30)

    assert log_tail(command.log) == "['HF_TOKEN', 'MINE']"


def test_a_missing_log_is_said_to_be_missing(tmp_path: Path) -> None:
    assert log_tail(tmp_path / "none.log") == "(no log)"
