from pathlib import Path, PurePosixPath

import pytest
from cascade_launcher.trace_paths import directory_name, index_name, relative_path, trace_dir
from hypothesis import given, settings
from hypothesis import strategies as st

HOSTILE = [
    "",
    ".",
    "..",
    "...",
    "../../etc",
    "a/b",
    "a\0b",
    "a%2Fb",
    "*",
    ">",
    "a b",
    "\u2028",
    "é" * 200,
    "-rf",
]
IDS = st.one_of(st.text(max_size=60), st.sampled_from(HOSTILE), st.text(alphabet="./%sha256-", max_size=20))


def test_a_profilers_run_name_is_its_own_directory() -> None:
    name = "20261107-120000__facebook_opt-125m__model.decoder.layers.10.self_attn"
    assert directory_name(name) == name
    assert trace_dir(Path("/data"), bucket="cascade", prefix="accelsim-traces", trace_id=name) == Path(
        f"/data/s3/cascade/accelsim-traces/{name}"
    )


@pytest.mark.parametrize("trace_id", HOSTILE)
def test_a_hostile_id_stays_inside_the_directory(trace_id: str) -> None:
    base = Path("/data/s3/cascade/accelsim-traces")
    path = trace_dir(Path("/data"), bucket="cascade", prefix="accelsim-traces", trace_id=trace_id)
    assert path.parent == base
    assert path.name not in ("", ".", "..")
    assert len(path.name.encode()) <= 255
    assert "\0" not in path.name


@given(IDS, IDS)
@settings(max_examples=50)
def test_two_ids_never_share_a_directory(one: str, other: str) -> None:
    assert (directory_name(one) == directory_name(other)) == (one == other)


def test_a_key_becomes_a_path_below_the_trace() -> None:
    assert relative_path("p/t/traces/kernelslist.g", "p/t/") == PurePosixPath("traces/kernelslist.g")


@pytest.mark.parametrize(
    "key",
    [
        "p/t/", "p/t/traces/", "p/t/../../etc/passwd", "p/t/a/../../x", "p/t//etc/passwd", "p/t/.hidden",
        "p/t/a\0b", "p/other/file", "p/t/" + "x" * 300,
    ],
)  # fmt: skip
def test_a_key_that_must_not_be_stored_is_left_out(key: str) -> None:
    assert relative_path(key, "p/t/") is None


def test_an_indexs_name_is_the_directorys_unless_no_ending_would_fit_behind_it() -> None:
    assert index_name("20261107-120000__opt") == "20261107-120000__opt"
    longest = ["é" * 110, "t" * 240 + "a", "t" * 240 + "b"]
    names = {index_name(name) for name in longest}
    assert len(names) == 3
    assert all(len(name) < 100 for name in names)
