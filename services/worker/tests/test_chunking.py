"""The chunker: full chunks, old chunks, odd bytes, and any split of the output giving the same text."""

import itertools

from cascade_worker.chunking import Chunker, LogChunk
from hypothesis import given, settings
from hypothesis import strategies as st


def drain(chunker: Chunker, output: bytes, *, now: float = 0.0) -> list[LogChunk]:
    return list(chunker.feed(output, now=now))


def test_two_hundred_lines_make_a_chunk_at_once() -> None:
    chunker = Chunker()
    chunks = drain(chunker, b"x\n" * 401)
    assert [len(chunk.lines) for chunk in chunks] == [200, 200]
    assert [chunk.seq for chunk in chunks] == [0, 1]
    last = chunker.close()
    assert last == LogChunk(2, ("x",))


def test_lines_wait_half_a_second_for_company() -> None:
    chunker = Chunker()
    assert drain(chunker, b"first\n", now=10.0) == []
    assert drain(chunker, b"second\n", now=10.3) == []
    assert chunker.flush_if_due(now=10.49) is None
    assert chunker.flush_if_due(now=10.5) == LogChunk(0, ("first", "second"))
    assert chunker.flush_if_due(now=20.0) is None


def test_an_unfinished_line_is_not_sent_before_it_ends() -> None:
    chunker = Chunker()
    assert drain(chunker, b"gpu_sim_cy", now=0.0) == []
    assert chunker.flush_if_due(now=9.0) is None
    assert drain(chunker, b"cle = 1\n", now=9.0) == []
    assert chunker.flush_if_due(now=9.5) == LogChunk(0, ("gpu_sim_cycle = 1",))


def test_a_last_line_without_newline_is_sent_at_the_end() -> None:
    chunker = Chunker()
    drain(chunker, b"whole\ncut in mid-li")
    assert chunker.close() == LogChunk(0, ("whole", "cut in mid-li"))


def test_no_output_makes_no_chunk() -> None:
    assert Chunker().close() is None


def test_only_line_feeds_end_lines() -> None:
    chunker = Chunker()
    text = "a\u2028b\x85c\x0bd\x0ce\r\nf\x00g\n"
    drain(chunker, text.encode())
    assert chunker.close() == LogChunk(0, ("a\u2028b\x85c\x0bd\x0ce\r", "f\x00g"))


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    chunker = Chunker()
    drain(chunker, b"ok \xff\xfe \xe2\x82\n\xac\n")
    assert chunker.close() == LogChunk(0, ("ok \ufffd\ufffd \ufffd", "\ufffd"))


def test_a_character_cut_between_two_reads_stays_whole() -> None:
    chunker = Chunker()
    drain(chunker, b"\xe2\x82")
    drain(chunker, b"\xac\n")
    assert chunker.close() == LogChunk(0, ("€",))


def test_very_long_lines_close_a_chunk_early_but_stay_whole() -> None:
    chunker = Chunker(max_bytes=1000)
    chunks = drain(chunker, b"y" * 5000 + b"\n" + b"z\n")
    assert [len(chunk.lines[0]) for chunk in chunks] == [5000]
    assert chunker.close() == LogChunk(1, ("z",))


@settings(max_examples=50, deadline=None)
@given(
    output=st.binary(max_size=300) | st.lists(st.binary(max_size=9), max_size=60).map(b"\n".join),
    cuts=st.lists(st.integers(0, 300), max_size=12),
    max_lines=st.integers(1, 9),
)
def test_any_split_of_the_output_gives_the_same_lines(output: bytes, cuts: list[int], max_lines: int) -> None:
    chunker = Chunker(max_lines=max_lines)
    edges = [0, *sorted(min(cut, len(output)) for cut in cuts), len(output)]
    chunks: list[LogChunk] = []
    for step, (start, end) in enumerate(itertools.pairwise(edges)):
        chunks += drain(chunker, output[start:end], now=float(step))
        due = chunker.flush_if_due(now=float(step) + 0.6)
        chunks += [due] if due else []
    last = chunker.close()
    chunks += [last] if last else []

    expected = output.decode("utf-8", errors="replace").split("\n")
    if expected[-1] == "":
        expected.pop()
    assert [line for chunk in chunks for line in chunk.lines] == expected
    assert [chunk.seq for chunk in chunks] == list(range(len(chunks)))
    assert all(1 <= len(chunk.lines) <= max_lines for chunk in chunks)
