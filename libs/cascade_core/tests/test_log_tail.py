"""The last lines of a log, whatever the order of its chunks."""

from cascade_core.logs.tail import LogTail
from hypothesis import given, settings
from hypothesis import strategies as st

chunks = st.lists(st.lists(st.text(max_size=3), max_size=25), max_size=12)


def tail_of(log: list[tuple[int, list[str]]]) -> LogTail:
    tail = LogTail()
    for seq, lines in log:
        tail = tail.add(seq, lines)
    return tail


def test_the_tail_is_the_last_twenty_lines() -> None:
    tail = tail_of([(0, [f"a{i}" for i in range(15)]), (1, [f"b{i}" for i in range(10)])])
    assert tail.lines() == [f"a{i}" for i in range(5, 15)] + [f"b{i}" for i in range(10)]


def test_an_empty_log_has_an_empty_tail() -> None:
    assert LogTail().lines() == []
    assert tail_of([(0, [])]).lines() == []


def test_the_first_chunk_of_a_seq_wins() -> None:
    assert tail_of([(0, ["first"]), (0, ["second"])]).lines() == ["first"]


def test_a_late_chunk_takes_its_place() -> None:
    assert tail_of([(0, ["a"]), (2, ["c"]), (1, ["b"])]).lines() == ["a", "b", "c"]


def test_a_repeat_of_a_chunk_that_scrolled_away_changes_nothing() -> None:
    before = tail_of([(0, ["old"]), (1, ["x"] * 20), (2, ["y"] * 20)])
    assert before.add(0, ["other"]) == before
    assert before.add(1, ["other"]) == before


def test_a_huge_chunk_is_not_kept_whole() -> None:
    assert sum(len(piece) for _, piece in tail_of([(0, ["x"] * 100_000)]).pieces) == 20


@given(chunks, st.data())
@settings(max_examples=50)
def test_order_and_repeats_do_not_matter(log: list[list[str]], data: st.DataObject) -> None:
    numbered = list(enumerate(log))
    arrivals = data.draw(
        st.permutations(numbered + data.draw(st.lists(st.sampled_from(numbered or [(0, [])]))))
    )
    in_order = tail_of(numbered or ([(0, [])] if arrivals else []))
    assert tail_of(arrivals) == in_order
    assert in_order.lines() == [line for lines in log for line in lines][-20:]


def test_a_line_of_megabytes_is_kept_in_part_and_says_so() -> None:
    [line] = tail_of([(0, ["x" * 2_500_000])]).lines()
    assert line == "x" * 4000 + "… (2500000 characters)"
