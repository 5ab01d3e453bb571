"""Logs on disk, and the parse benchmark."""

import gzip
from pathlib import Path

import pytest
from cascade_accelsim.log.bench import bench_parse, measure
from cascade_accelsim.log.files import PIECE_BYTES, log_pieces

TRIES = 10
"""Of a measurement that other work on the machine makes worse and nothing makes better than it is."""
LOGS = Path(__file__).parent / "inputs" / "logs"


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_log_comes_in_pieces_of_whole_lines(tmp_path: Path, ending: str) -> None:
    text = "é" * PIECE_BYTES + "\n" + "short\n" * 100_000 + "last" + ending
    path = tmp_path / "sim.log"
    path.write_text(text, encoding="utf-8", newline="")
    pieces = list(log_pieces(path))
    assert "".join(pieces) == text
    assert all(piece.endswith("\n") for piece in pieces[:-1])


def test_bad_bytes_are_replaced_and_gzip_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "sim.log.gz"
    path.write_bytes(gzip.compress(b"a\xff\nb\xc3"))
    assert list(log_pieces(path)) == ["a\ufffd\n", "b\ufffd"]


def test_an_empty_log_has_no_pieces(tmp_path: Path) -> None:
    path = tmp_path / "sim.log"
    path.write_bytes(b"")
    assert list(log_pieces(path)) == []


def test_the_benchmark_counts_what_the_log_holds() -> None:
    path = LOGS / "rtx3070-babelstream.log.gz"
    result = bench_parse(path)
    here = measure(path)
    assert (result.bytes, result.lines, result.kernels, result.keys) == (467764, 10248, 6, 696 + 5 * 701)
    assert (here.bytes, here.lines, here.kernels, here.keys) == (467764, 10248, 6, 696 + 5 * 701)
    assert result.mb_per_cpu_s > 0
    assert 0 < result.peak_rss_bytes < 64_000_000


def test_a_benchmark_of_a_missing_file_says_which(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing\.log"):
        bench_parse(tmp_path / "nothing.log")


def test_parsing_keeps_well_above_half_the_bar_and_within_memory(tmp_path: Path) -> None:
    # The bar is 60 MB a CPU-second; on a busy machine with other tests beside it, half of it must always hold.
    text = "".join(log_pieces(LOGS / "rtx3070-babelstream.log.gz"))
    path = tmp_path / "big.log"
    path.write_text(text * 40, encoding="utf-8", newline="")
    results = [bench_parse(path)]
    while results[-1].mb_per_cpu_s <= 30 and len(results) < TRIES:
        results.append(bench_parse(path))
    best = results[-1]
    assert best.kernels == 240
    assert best.mb_per_cpu_s > 30
    assert best.peak_rss_bytes < 64_000_000
