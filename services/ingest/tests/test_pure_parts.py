"""Trees, completeness and foreign JSON: plain calls."""

from contextlib import suppress

import pytest
from cascade_core.ports import ObjectInfo
from cascade_ingest import foreign_json
from cascade_ingest.completeness import Complete, Incomplete, ReportedFailed, Verdict, assess
from cascade_ingest.foreign_json import NotJson
from cascade_ingest.postprocess import safe_name
from cascade_ingest.settings import IngestSettings
from cascade_ingest.tree import Tree, is_visible, tree_of
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

ROOT = "accelsim-traces/t/"
LIST, STATS = "traces/kernelslist_ctx_0x1", "traces/stats_ctx_0x1"


def tree(*paths: str, size: int = 1) -> Tree:
    return tree_of(ROOT, [ObjectInfo(ROOT + path, size, f"etag-{path}") for path in paths])


def judged(
    paths: list[str], metadata: dict[str, JsonValue] | None, *, quiet: bool = True, size: int = 1
) -> Verdict:
    return assess(tree(*paths, size=size), metadata, root=ROOT, quiet=quiet)


# ---- trees


@pytest.mark.parametrize(
    "path",
    ["", "traces/", ".hidden", ".rclone_temp_put_4f1c", "traces/.tmp", ".d/metadata.json", "a/.b/c", "."],
)
def test_markers_and_dotfiles_do_not_count(path: str) -> None:
    assert not is_visible(path)


@pytest.mark.parametrize(
    "path", ["a", "a.b", "traces/kernel-1.trace", "a/b.c/d", "metadata.json.9c41.partial"]
)
def test_ordinary_files_count(path: str) -> None:
    assert is_visible(path)


def test_a_tree_knows_its_size_and_its_kernels() -> None:
    found = tree(
        "metadata.json",
        "traces/kernel-1.trace",
        "traces/kernel-2-ctx_0x1.trace.xz",
        "traces/kernel-3.traceg",
        "traces/kernel-4.trace.xz.03ab.partial",
        "traces/deep/kernel-5.trace",
        "kernel-6.trace",
        "traces/",
        size=10,
    )
    assert (found.size_bytes, found.raw_kernel_count, found.has_processed_list) == (70, 2, False)


def test_step_timing_needs_both_files() -> None:
    assert not tree("corrected_timeline.json").has_step_timeline
    assert not tree("kernel_mapping.json").has_step_timeline
    assert not tree("traces/corrected_timeline.json", "traces/kernel_mapping.json").has_step_timeline
    assert tree("corrected_timeline.json", "kernel_mapping.json").has_step_timeline


# ---- completeness


def test_nothing_is_complete_without_metadata() -> None:
    assert judged([LIST, STATS], None) == Incomplete("metadata.json is not there yet, or not whole")


def test_a_directory_that_holds_only_metadata_is_not_complete() -> None:
    assert isinstance(judged(["metadata.json"], {}), Incomplete)
    assert isinstance(judged(["metadata.json", STATS], {}), Incomplete)


def test_every_list_needs_its_stats_file() -> None:
    paths = ["metadata.json", LIST, STATS]
    assert judged(paths, {}) == Complete()
    missing = judged([*paths, "traces/kernelslist_ctx_0x2"], {})
    assert missing == Incomplete("traces/stats_ctx_0x2 has not arrived yet")
    assert judged([*paths, "traces/kernelslist_ctx_0x2", "traces/stats_ctx_0x2"], {}) == Complete()


def test_a_tree_that_still_changes_is_not_complete() -> None:
    assert judged(["metadata.json", LIST, STATS], {}, quiet=False) == Incomplete(
        "files changed since the scan before"
    )


def test_an_older_tracers_upload_is_complete_with_its_stats_csv() -> None:
    assert judged(["metadata.json", "traces/kernelslist", "traces/stats.csv"], {}) == Complete()
    assert isinstance(judged(["metadata.json", "traces/kernelslist"], {}), Incomplete)


def test_a_processed_upload_needs_no_raw_list() -> None:
    assert judged(["metadata.json", "traces/kernelslist.g", "traces/kernel-1.traceg"], {}) == Complete()


def test_a_failed_profiler_is_believed_at_once() -> None:
    assert judged(["metadata.json"], {"status": "failed"}, quiet=False) == ReportedFailed(
        "profiler reported status 'failed' in metadata.json"
    )
    assert isinstance(judged(["metadata.json"], {"status": "running"}), Incomplete)


def test_listed_files_must_be_there_with_their_sizes() -> None:
    listed: dict[str, JsonValue] = {
        "files": [
            {"key": ROOT + "traces/kernelslist.g", "bytes": 1},
            {"key": "traces/kernel-1.traceg", "bytes": 1},
        ]
    }
    paths = ["metadata.json", "traces/kernelslist.g", "traces/kernel-1.traceg"]
    assert judged(paths, listed, quiet=False) == Complete()
    assert judged(paths[:2], listed) == Incomplete("traces/kernel-1.traceg is listed but has not arrived")
    assert judged(paths, listed, size=0) == Incomplete(
        "traces/kernelslist.g is listed with 1 bytes and has 0"
    )
    framed = judged(paths, listed, size=44)
    assert isinstance(framed, Incomplete)
    assert framed.reason.startswith("traces/kernelslist.g is listed with 1 bytes and has 44")
    assert "checksum framing" in framed.reason


@pytest.mark.parametrize(
    "entry",
    ["traces/kernel-1.trace", None, {}, {"key": 1, "bytes": 1}, {"key": "a"}, {"key": "a", "bytes": "1"},
     {"key": "a", "bytes": True}, {"key": "a", "bytes": 1.0}],
)  # fmt: skip
def test_a_list_that_cannot_be_read_keeps_the_upload_waiting(entry: JsonValue) -> None:
    verdict = judged(["metadata.json", "a", LIST, STATS], {"files": [entry]})
    assert isinstance(verdict, Incomplete)
    assert "files" in verdict.reason


@pytest.mark.parametrize("files", [[], None, "all", {}, 3])
def test_a_list_that_lists_nothing_tells_nothing(files: JsonValue) -> None:
    assert isinstance(judged(["metadata.json"], {"files": files}), Incomplete)
    assert judged(["metadata.json", LIST, STATS], {"files": files}) == Complete()


# ---- foreign JSON


def test_ordinary_json_is_read_as_it_is() -> None:
    body = b'{"model": "caf\xc3\xa9", "layers": ["a", 1, 2.5, true, null], "n": {"m": 18446744073709551616}}'
    assert foreign_json.parse(body) == {
        "model": "café",
        "layers": ["a", 1, 2.5, True, None],
        "n": {"m": 18446744073709551616},
    }


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'["\\ud800", "\\ud83d\\ude80"]', ["\ufffd", "\U0001f680"]),
        (b'{"\\udfff": 1}', {"\ufffd": 1}),
        (b"[1e400, -1e400]", [None, None]),
        (b'{"a": NaN, "b": [Infinity, -Infinity]}', {"a": None, "b": [None, None]}),
        (b"[" + b"9" * 5000 + b"]", [None]),
        (b'"\\u0000"', "\x00"),
        (b"[[[]]]", [[[]]]),
    ],
)
def test_what_could_not_be_stored_is_replaced(body: bytes, value: JsonValue) -> None:
    assert foreign_json.parse(body) == value


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"a": 1', b'{"a": Na', b"[Infinit]", b"\xff\xfe", b"{'a': 1}", b"[" * 100_000,
     b"[" * 65 + b"]" * 65, b'{"a":' * 65 + b"1" + b"}" * 65],
    ids=lambda body: str(body[:12]),
)  # fmt: skip
def test_what_is_not_whole_or_too_deep_is_no_json(body: bytes) -> None:
    with pytest.raises(NotJson):
        foreign_json.parse(body)


def test_the_deepest_json_that_is_taken() -> None:
    assert foreign_json.parse(b"[" * 64 + b"]" * 64) != []


@given(st.binary(max_size=200))
@settings(max_examples=50)
def test_any_bytes_give_a_value_or_are_no_json(body: bytes) -> None:
    with suppress(NotJson):
        foreign_json.parse(body)


# ---- names on the disk

NAMES = [
    "a", "a b", "a/b", "..", ".", ".a", "%2Ea", "a%2Fb", "é", "e\u0301", "x" * 300, "x" * 301, "a~b", "\x00", "a\nb",
]  # fmt: skip


def test_any_trace_id_has_a_file_name_of_its_own() -> None:
    made = [safe_name(name) for name in NAMES]
    assert len(set(made)) == len(made)
    for name in made:
        assert "/" not in name
        assert "\x00" not in name
        assert not name.startswith(".")
        assert len(name.encode()) <= 200


def test_an_ordinary_trace_id_is_its_own_file_name() -> None:
    name = "20261107-120000__facebook_opt-125m__model.decoder.layers.10.self_attn"
    assert safe_name(name) == name


def test_the_post_processor_is_found_below_accel_sim_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CASCADE_ACCELSIM_DIR", "/opt/x")
    path = "/opt/x/util/tracer_nvbit/tracer_tool/traces-processing/post-traces-processing"
    assert IngestSettings().postprocess_command == path
    monkeypatch.setenv("CASCADE_POSTPROCESS_CMD", "python post.py --fast")
    assert IngestSettings().postprocess_command == "python post.py --fast"
