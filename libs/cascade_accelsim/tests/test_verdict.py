"""Which runs count as succeeded, and what is said about the others."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_accelsim.log import Progress, parse_log
from cascade_accelsim.verdict import Verdict, judge

ReadLines = Callable[[Path], list[str]]

WHOLE = Progress(kernels_done=6, saw_exit=True, last_line="GPGPU-Sim: *** exit detected ***")

# What the reason must name, for every real run that is not a success; the 28 others are.
FAILED = {
    "a100-fail-hopper-opcodes": "undefined instruction",
    "fail-empty-config": "SIGABRT",
    "h100-abort-ipoly-hash": "memory_partition_indexing error",
    "h100-fail-cluster-lines-new-tracer": "vector::_M_range_check",
    "h100s-fail-missing-icnt": "config_hopper_islip.icnt",
    "h200-fail-unknown-option": "Unknown Option: '-gpgpu_n_chiplet_partition'",
    "rtx3070-empty-kernelslist": "no kernel line",
    "rtx3070-fail-bad-clock-domains": "deadlock detected",
    "rtx3070-fail-bad-memcpy-line": "params.size() == 3",
    "rtx3070-fail-block-too-big": "launching kernel name",
    "rtx3070-fail-corrupt-xz": "Unexpected end of input",
    "rtx3070-fail-deadlock": "deadlock detected",
    "rtx3070-fail-empty-traceg": "unsupported binary version: 0",
    "rtx3070-fail-empty-warp": "warp_traces.size() > 0",
    "rtx3070-fail-garbled-line": "reg_dsts_num <= MAX_DST",
    "rtx3070-fail-missing-config-file": "./not-there.config",
    "rtx3070-fail-missing-kernel-trace": "kernel-3.traceg: No such file",
    "rtx3070-fail-missing-kernelslist": "Unable to open file",
    "rtx3070-fail-no-trace-config": "spec_id <",
    "rtx3070-fail-out-of-memory": "std::bad_alloc",
    "rtx3070-fail-sm89-binary-version": "sm_89",
    "rtx3070-fail-sm90-binary-version": "sm_90",
    "rtx3070-fail-tracez-unsupported": "Unsupported file type",
    "rtx3070-fail-truncated-at-line": "warp_traces.size() > 0",
    "rtx3070-fail-truncated-mid-inst": "Assertion",
    "rtx3070-fail-unknown-option": "-gpgpu_no_such_option",
    "rtx3070-fail-warp-without-exit": "139 (SIGSEGV)",
    "rtx3070-killed-sigint": "130 (SIGINT)",
    "rtx3070-killed-sigkill": "137 (SIGKILL)",
    "rtx3070-killed-sigkill-after-kernels": "19 of 40 kernels",
    "rtx3070-killed-sigterm": "143 (SIGTERM)",
    "rtx3070-killed-sigterm-after-kernels": "22 of 40 kernels",
    "rtx3070-limit-max-cta": "maximum cycles",
    "rtx3070-limit-max-cycle": "2 of 6 kernels",
    "rtx3070-limit-max-insn": "1 of 6 kernels",
    "rtx3070-memcpy-only": "Assertion `k' failed",
    "v2022-qv100-streams-concurrent-hang": "4 of 5 kernels",
    "v2022-rtx3070-fail-ldsm-shared-space": "Assertion `0' failed",
    "v2022-rtx3070-fail-missing-kernel-trace": "Unable to open file",
    "v2022-rtx3070-fail-truncated-mid-inst": "Assertion",
    "v2022-rtx3070-fail-xz-unsupported": "unsupported binary version: 0",
    "v2022-rtx3070-limit-max-cycle": "2 of 6 kernels",
}


def kernels_in_list(log: str) -> int | None:
    for words, kernels in (
        ("many", 40),
        ("killed", None),
        ("streams", 5),
        ("mixed", 4),
        ("hopper-opcodes", 2),
    ):
        if words in log and kernels is not None:
            return kernels
    if log.startswith("rtx3070-killed"):
        return 1 if log in {"rtx3070-killed-sigkill", "rtx3070-killed-sigterm"} else 40
    return 6 if "babelstream" in log or "limit" in log or log.endswith("-xz") else None


def test_every_real_run_is_judged_right(shared: Path, read_lines: ReadLines) -> None:
    folder = shared / "accelsim" / "logs"
    index = (folder / "INDEX.md").read_text(encoding="utf-8")
    rows = [row.strip("| ").split(" | ") for row in index.split("\n") if re.match(r"\| \S+\.log", row)]
    exit_codes = {
        row[0].removesuffix(".gz").removesuffix(".log"): (folder / row[0], int(row[3])) for row in rows
    }
    assert len(exit_codes) == 70
    assert set(exit_codes) >= set(FAILED)
    for name, (path, exit_code) in exit_codes.items():
        stderr = folder / f"{name}.stderr"
        verdict = judge(
            parse_log(read_lines(path), with_stats=False).progress,
            exit_code=exit_code,
            expected_kernels=kernels_in_list(name),
            stderr=stderr.read_text(encoding="utf-8") if stderr.exists() else "",
        )
        assert verdict.ok == (name not in FAILED), f"{name}: {verdict}"
        assert FAILED.get(name, "") in (verdict.reason or ""), f"{name}: {verdict}"


def test_a_whole_run_has_no_reason() -> None:
    assert judge(WHOLE, exit_code=0, expected_kernels=6) == Verdict(ok=True, reason=None)
    assert judge(WHOLE, exit_code=0).ok


def test_fewer_kernels_than_the_list_is_no_success() -> None:
    verdict = judge(WHOLE, exit_code=0, expected_kernels=8)
    assert verdict.reason == "the simulator ended normally but finished only 6 of 8 kernels of the list"


def test_a_partial_block_is_not_a_finished_kernel() -> None:
    cut = Progress(
        kernels_done=3, partial_kernel=2, saw_exit=True, break_line="GPGPU-Sim: ** break due to x **"
    )
    verdict = judge(cut, exit_code=0, expected_kernels=3)
    assert verdict.reason == (
        "a limit stopped the simulation after 2 of 3 kernels: GPGPU-Sim: ** break due to x **"
    )


def test_exit_code_zero_without_the_exit_line_is_no_success() -> None:
    progress = Progress(kernels_done=6, last_line="gpgpu_silicon_slowdown = 5x")
    reason = judge(progress, exit_code=0, expected_kernels=6).reason
    assert reason is not None
    assert "lacks the exit line" in reason
    assert "gpgpu_silicon_slowdown" in reason


@pytest.mark.parametrize(
    ("exit_code", "told"), [(134, "134 (SIGABRT)"), (-11, "-11 (SIGSEGV)"), (3, "with 3 after")]
)
def test_signals_are_named_in_both_spellings(exit_code: int, told: str) -> None:
    assert told in (judge(WHOLE, exit_code=exit_code).reason or "")


def test_a_run_that_never_ended_says_so() -> None:
    assert "did not end by itself" in (judge(Progress(), exit_code=None).reason or "")


def test_a_reason_is_one_short_line() -> None:
    reason = judge(Progress(), exit_code=1, stderr="boom\x00\x1b " + "x" * 5000).reason
    assert reason is not None
    assert len(reason) <= 500
    assert reason.isprintable()
