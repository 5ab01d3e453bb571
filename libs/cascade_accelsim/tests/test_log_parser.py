"""The log parser as a state machine: chunks, ends, limits, overlapping kernels, hostile text."""

import json
from collections.abc import Callable

import pytest
from cascade_accelsim.log import KernelBlock, LogParser, Progress, parse_log
from hypothesis import example, given, settings
from hypothesis import strategies as st

SampleLog = Callable[[str], list[str]]

HEAD = [
    "GPGPU-Sim uArch: clock freqs: 1132000000.000000:1132000000.000000:1132000000.000000:3500500000.000000",
    "launching kernel name: _Z4copyPf uid: 1 cuda_stream_id: 0",
    "Destroy streams for kernel 1: size 0",
]
BLOCK = [
    "kernel_name = _Z4copyPf ",
    "kernel_launch_uid = 1 ",
    "gpu_sim_cycle = 6096",
    "gpu_sim_insn = 114688",
    "gpu_ipc =      18.8136",
    "gpu_tot_sim_cycle = 6096",
    "gpu_tot_sim_insn = 114688",
    "gpu_tot_ipc =      18.8136",
]
TAIL = [
    "gpgpu_simulation_time = 0 days, 0 hrs, 0 min, 1 sec (1 sec)",
    "gpgpu_simulation_rate = 114688 (inst/sec)",
    "gpgpu_simulation_rate = 6096 (cycle/sec)",
    "gpgpu_silicon_slowdown = 185695x",
]
LIMIT = "GPGPU-Sim: ** break due to reaching the maximum cycles (or instructions) **"
EXIT = ["GPGPU-Sim: *** simulation thread exiting ***", "GPGPU-Sim: *** exit detected ***"]

LINES = st.sampled_from(
    [
        *HEAD,
        *BLOCK,
        *TAIL,
        *EXIT,
        LIMIT,
        "Processing kernel /traces/kernel-2.traceg",
        "launching kernel name: void op<(a)1>(x) uid: 7 uid: 2",
        "Destroy streams for kernel 2: size 0",
        "kernel_name = ",
        "kernel_launch_uid = 1 2 ",
        "\x1b[0;32mkernel_name = a b \x1b[0m\r",
        "progress 1%\rprogress 2%\rGPGPU-Sim: *** exit detected ***\r",
        "engine = cascade-estimate 1",
        "unsupported binary version: 90",
        "n_cmd=8 n_nop=8",
        "odd = -nan",
        "",
        "\u2028\x85\x1c= 1e400",
        "\ud800\x00 = \udfff\x00",
    ]
) | st.text(max_size=30).map(lambda text: text.replace("\n", " "))


def read(lines: list[str], sizes: list[int]) -> tuple[list[KernelBlock], Progress]:
    parser = LogParser()
    blocks: list[KernelBlock] = []
    start = 0
    for size in [*sizes, len(lines)]:
        blocks += parser.feed(lines[start : start + size])
        start += size
    return blocks + parser.finish(), parser.progress


@settings(max_examples=50, deadline=None)
@given(lines=st.lists(LINES, max_size=60), sizes=st.lists(st.integers(1, 20), max_size=20))
@example(lines=[*HEAD, *BLOCK, *TAIL, LIMIT, *EXIT], sizes=[1] * 18)
def test_any_text_cut_in_any_way_reads_the_same_and_is_strict_json(
    lines: list[str], sizes: list[int]
) -> None:
    blocks, progress = read(lines, [])
    assert read(lines, sizes) == (blocks, progress)
    assert progress.lines == len(lines)
    assert [block.index for block in blocks] == list(range(len(blocks)))
    for block in blocks:
        json.dumps(
            [block.stats, block.kernel_name, block.gpu_ipc], allow_nan=False, ensure_ascii=False
        ).encode()


@pytest.mark.parametrize("name", ["rtx3070-babelstream", "rtx3070-streams-concurrent", "h100s-babelstream"])
def test_a_real_log_reads_the_same_in_chunks_of_any_size(name: str, sample_log: SampleLog) -> None:
    lines = sample_log(name)
    whole = read(lines, [])
    assert len(whole[0]) in {5, 6}
    for size in (1, 7, 200, 1701):
        assert read(lines, [size] * (len(lines) // size + 1)) == whole


def test_the_block_is_handed_back_with_the_line_that_ends_it() -> None:
    parser = LogParser()
    assert parser.feed([*HEAD, *BLOCK]) == []
    before = parser.progress
    (block,) = parser.feed(TAIL[:1])
    assert (before.kernels_done, before.gpu_tot_sim_cycle) == (0, None)
    assert (block.gpu_sim_cycle, block.gpu_sim_insn, block.gpu_ipc) == (6096, 114688, 18.8136)
    assert (block.kernel_launch_uid, block.finished_uid, block.finished_name) == (1, 1, "_Z4copyPf")
    assert block.complete
    assert not block.since_last_completion
    assert parser.progress.gpu_tot_sim_cycle == 6096
    parser.feed(TAIL[1:])
    assert parser.progress.sim_rate_ips == 114688
    assert parser.progress.core_clock_hz == 1132e6


@pytest.mark.parametrize(
    "ending",
    ["launching kernel name: x uid: 2", "Processing kernel a", "Header info loaded a", EXIT[1], LIMIT],
)
def test_other_lines_close_a_block_too_but_it_is_not_complete(ending: str) -> None:
    (block,) = LogParser().feed([*HEAD, *BLOCK, ending])
    assert not block.complete
    assert block.gpu_sim_cycle == 6096


def test_the_end_of_the_log_closes_an_open_block_once() -> None:
    parser = LogParser()
    parser.feed([*HEAD, *BLOCK[:3]])
    (block,) = parser.finish()
    assert (block.gpu_sim_cycle, block.gpu_sim_insn, block.complete) == (6096, None, False)
    assert parser.finish() == []
    assert parser.progress.kernels_done == 1


def test_a_name_may_hold_the_words_that_end_it_on_the_launch_line() -> None:
    parser = LogParser()
    parser.feed(
        ["launching kernel name: void f<(k) uid: 3>(int = 4) uid: 12 cuda_stream_id: 18446744073709551615"]
    )
    assert parser.progress.current_kernel == "void f<(k) uid: 3>(int = 4)"


def test_a_kernel_name_stays_text_even_when_it_reads_like_a_number() -> None:
    (block,) = LogParser().feed(["kernel_name = 1e5 ", "a = 1e5", TAIL[0]])
    assert block.stats == {"kernel_name": "1e5", "a": 1e5}


def test_a_name_may_hold_an_equals_sign() -> None:
    (block,) = LogParser().feed(["kernel_name = void f<&(ns::operator==(int))>(a = 1, b = 2) ", TAIL[0]])
    assert block.kernel_name == "void f<&(ns::operator==(int))>(a = 1, b = 2)"


def test_counts_that_are_no_counts_are_null_and_the_text_is_kept() -> None:
    lines = [
        "kernel_name = k",
        "gpu_sim_cycle = -5",
        "gpu_sim_insn = 1e30",
        "gpu_ipc = inf",
        "gpu_tot_ipc = -nan",
    ]
    parser = LogParser()
    parser.feed([*HEAD, *BLOCK, *TAIL])
    (block,) = parser.feed([*lines, TAIL[0]])
    assert (block.gpu_sim_cycle, block.gpu_sim_insn, block.gpu_ipc) == (None, None, None)
    assert block.stats["gpu_ipc"] == "inf"
    assert parser.progress.gpu_tot_ipc is None
    assert parser.progress.gpu_tot_sim_cycle == 6096


def test_concurrent_kernels_are_told_apart_by_the_streams_that_were_destroyed(sample_log: SampleLog) -> None:
    log = parse_log(sample_log("rtx3070-streams-concurrent"))
    assert [block.finished_uid for block in log.blocks] == [2, 3, 5, 1, 4]
    assert [block.kernel_launch_uid for block in log.blocks] == [None, None, None, None, 4]
    assert [block.since_last_completion for block in log.blocks] == [True, True, True, True, False]
    assert [(block.finished_name or "")[:11] for block in log.blocks] == [
        "_ZN3red13re",
        "_Z16histogr",
        "_ZN7cutlass",
        "_ZN7cutlass",
        "_ZN3red13re",
    ]
    assert log.blocks[1].kernel_name == ""


def test_kernels_that_run_one_by_one_are_durations(sample_log: SampleLog) -> None:
    log = parse_log(sample_log("rtx3070-babelstream"))
    assert [block.finished_uid for block in log.blocks] == [1, 2, 3, 4, 5, 6]
    assert not any(block.since_last_completion for block in log.blocks)


def test_the_block_before_a_limit_line_is_partial(sample_log: SampleLog) -> None:
    log = parse_log(sample_log("rtx3070-limit-max-cycle"))
    assert [block.partial for block in log.blocks] == [False, False, True]
    assert log.progress.partial_kernel == 2
    assert log.progress.break_line == LIMIT
    assert log.progress.kernels_finished == 2
    assert log.progress.saw_exit


def test_a_limit_that_prints_no_block_leaves_the_last_kernel_whole() -> None:
    # The 2022 simulator prints only the rate lines for the kernel that it cuts off.
    lines = [*HEAD, *BLOCK, *TAIL, "launching kernel name: b uid: 2", "", *TAIL, LIMIT, *EXIT]
    log = parse_log(lines)
    assert [block.partial for block in log.blocks] == [False]
    assert log.progress.break_line == LIMIT


def test_a_deadlock_report_adds_nothing_to_the_totals(sample_log: SampleLog) -> None:
    progress = parse_log(sample_log("rtx3070-fail-deadlock")).progress
    assert progress.kernels_done == 0
    assert progress.gpu_tot_sim_cycle is None
    assert progress.fault_line is not None
    assert "deadlock detected" in progress.fault_line


def test_an_estimate_says_which_engine_wrote_its_log() -> None:
    parser = LogParser()
    parser.feed(["engine = cascade-estimate 0.1.0", *HEAD])
    assert parser.progress.engine == "cascade-estimate 0.1.0"


def test_without_stats_the_typed_fields_are_the_same(sample_log: SampleLog) -> None:
    lines = sample_log("rtx3070-babelstream")
    full, quick = parse_log(lines), parse_log(lines, with_stats=False)
    assert quick.progress == full.progress
    assert [block.gpu_sim_cycle for block in quick.blocks] == [block.gpu_sim_cycle for block in full.blocks]
    assert all(block.stats == {} for block in quick.blocks)


def test_a_block_without_an_end_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cascade_accelsim.log.parser.MAX_BLOCK_CHARS", 64)
    parser = LogParser()
    parser.feed(["kernel_name = k", "a = 1", *["noise"] * 100, "b = 2"])
    (block,) = parser.feed(TAIL[:1])
    assert block.stats == {"kernel_name": "k", "a": 1.0}
    assert not block.complete


def test_what_a_carriage_return_hides_is_no_statistic() -> None:
    blocks, _ = read([*HEAD, *BLOCK[:4], "note\rgpu_sim_insn = 2", *BLOCK[4:], *TAIL], [])
    assert blocks[0].gpu_sim_insn == 114688
    ended, _ = read([*HEAD, *BLOCK, "99%\rGPGPU-Sim: *** exit detected ***", "gpu_sim_insn = 2", *TAIL], [])
    assert ended[0].gpu_sim_insn == 114688


@pytest.mark.timeout(60)  # a search that takes the square of a run's length would need hours
@pytest.mark.parametrize(
    "piece",
    [
        "\r",
        "\r\r\rx",
        "\x1b[",
        "\x1b]",
        "\x1b[0",
        " ",
        "1",
        "1/",
        "=",
        "a=",
        " a",
        " = 1,",
        "kernel_name ",
        "engine\t",
        "\x00",
    ],
)
@pytest.mark.parametrize("in_block", [False, True])
def test_a_line_of_any_length_takes_time_in_proportion(piece: str, in_block: bool) -> None:
    parser = LogParser()
    if in_block:
        parser.feed([*HEAD, *BLOCK])
    parser.feed([piece * (4_000_000 // len(piece)) + "x"])
    parser.feed(TAIL)
    assert parser.progress.kernels_done == in_block
