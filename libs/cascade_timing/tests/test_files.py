"""Files in and out, and what the two commands do with them."""

import gzip
import json
from pathlib import Path

import pytest
from cascade_timing import TimingError, io
from cascade_timing.cli import compare_files, simulate_files
from cascade_timing.errors import FileError, InvalidInputError
from cascade_timing.fields import JsonObject
from cascade_timing.testing import (
    at,
    durations_document,
    kernel_row,
    request_row,
    step_row,
    timeline_document,
)


def measured() -> JsonObject:
    step = step_row(
        0,
        kind="prefill",
        wall_ns=1000,
        busy_ns=400,
        kernels=[kernel_row(0, 400, 50, name="\u2028 µ")],
        start_ns=7,
    )
    document = timeline_document([step], [request_row(0, queued_ms=0.5)])
    return document | {"meta": {"fixture_provenance": "Reconstructed from published statistics."}}


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    path = tmp_path / "corrected_timeline.json"
    path.write_text(json.dumps(measured()))
    return path


@pytest.fixture
def durations(tmp_path: Path) -> Path:
    path = tmp_path / "sim_durations.json.gz"
    path.write_bytes(gzip.compress(json.dumps(durations_document((0, 0, 0, 600))).encode()))
    return path


def test_simulate_then_compare_on_files(timeline: Path, durations: Path, tmp_path: Path) -> None:
    simulated, compared = tmp_path / "simulated_timeline.json.gz", tmp_path / "compare.json"
    result = simulate_files(timeline, durations=durations, output=simulated)
    assert result.summary.split("\n") == [
        "1 of 1 kernels replaced, 100.00 % of GPU time",
        "prefill: 1 steps, wall 0.001200 ms, GPU busy 0.600 µs on average",
        "The timeline says of itself: Reconstructed from published statistics.",
    ]
    assert io.read_json(simulated) == result.document
    comparison = compare_files(timeline, simulated, output=compared)
    assert comparison.summary.split("\n") == [
        "step wall: 1 steps, mean absolute error 0.200 µs (20.000 %)",
        "GPU busy: 1 steps, mean absolute error 0.200 µs (50.000 %)",
        "The timeline says of itself: Reconstructed from published statistics.",
    ]
    assert json.loads(compared.read_text()) == comparison.document
    assert {path.name for path in tmp_path.iterdir()} == {
        "corrected_timeline.json",
        "sim_durations.json.gz",
        "simulated_timeline.json.gz",
        "compare.json",
    }


def test_without_an_output_nothing_is_written(timeline: Path, tmp_path: Path) -> None:
    result = simulate_files(timeline)
    assert at(result.document, "steps", 0, "baseline_wall_ns") == 1000
    assert [path.name for path in tmp_path.iterdir()] == [timeline.name]


def test_an_empty_comparison_says_that_there_was_nothing_to_compare(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text(json.dumps(timeline_document()))
    assert compare_files(path, path).summary.split("\n")[0] == "step wall: no steps to compare"


def test_the_same_result_is_written_as_the_same_bytes(timeline: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "out.json.gz", tmp_path / "b" / "out.json.gz"
    for path in (first, second):
        path.parent.mkdir()
        simulate_files(timeline, output=path)
    assert first.read_bytes() == second.read_bytes()


def test_gzip_is_recognised_by_content_whatever_the_name(tmp_path: Path) -> None:
    packed, plain = tmp_path / "t.json", tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(measured()).encode()))
    plain.write_text(json.dumps(measured()))
    assert io.read_timeline(packed) == io.read_timeline(plain)


@pytest.mark.parametrize("name", ["timeline", "durations"])
def test_a_result_never_replaces_its_own_input(name: str, timeline: Path, durations: Path) -> None:
    output = timeline if name == "timeline" else durations
    before = output.read_bytes()
    with pytest.raises(FileError, match="is also an input"):
        simulate_files(timeline, durations=durations, output=output)
    assert output.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not strict JSON"),
        (b'{"steps": [', "is not strict JSON"),
        (b'{"meta": NaN}', "it holds NaN"),
        (b'{"meta": -Infinity}', "it holds -Infinity"),
        (b'{"meta": 1e999}', "it holds 1e999"),
        (b'{"meta": ' + b"9" * 5000 + b"}", "is not strict JSON"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a": "\xff"}', "is not UTF-8 text"),
        (gzip.compress(b"{}", mtime=0)[:-6], "is a damaged gzip file"),
        (b"\x1f\x8bnonsense", "is a damaged gzip file"),
        (gzip.compress(b"{}", mtime=0)[:12] + b"\xff" * 20, "is a damaged gzip file"),
    ],
)
def test_a_file_that_is_not_strict_json_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as caught:
        io.read_timeline(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_a_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"missing\.json does not exist"):
        io.read_timeline(tmp_path / "missing.json")
    with pytest.raises(FileError, match=r"cannot read .*: Is a directory"):
        io.read_timeline(tmp_path)


def test_a_file_over_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io, "MAX_FILE_BYTES", 1000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 100_000))
    with pytest.raises(FileError, match="holds more than 1000 bytes"):
        io.read_json(path)


@pytest.mark.parametrize("read", [io.read_timeline, io.read_mapping, io.read_durations])
def test_a_wrong_document_is_refused_with_the_files_name(read: object, tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_text("3")
    assert callable(read)
    with pytest.raises(InvalidInputError, match=r"wrong\.json: .* is 3; expected"):
        read(path)


def test_a_result_that_cannot_be_written_leaves_nothing_behind(timeline: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot write .*: No such file or directory"):
        simulate_files(timeline, output=tmp_path / "missing" / "out.json")
    target = tmp_path / "directory.json"
    target.mkdir()
    with pytest.raises(TimingError, match="cannot write"):
        simulate_files(timeline, output=target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corrected_timeline.json", "directory.json"]


def test_a_document_with_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="not strict JSON"):
        io.write_json(tmp_path / "out.json", {"value": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_text_that_utf8_cannot_hold_neither_stops_the_result_nor_reaches_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(measured()).replace("Reconstructed", "\\ud800"))
    summary = simulate_files(path, output=tmp_path / "out.json").summary
    assert summary.endswith("of itself:   from published statistics.")
    assert io.read_json(tmp_path / "out.json")
