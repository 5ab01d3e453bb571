"""Chunks in `seq` order, whatever order they arrive in."""

import sys

from cascade_parser.ordering import ChunkOrder, ChunkPlaces
from hypothesis import given, settings
from hypothesis import strategies as st


def test_a_chunk_that_is_next_is_read_at_once() -> None:
    order = ChunkOrder()
    assert [order.arrived(seq, seq + 10) for seq in range(3)] == [True, True, True]
    assert order.next_seq == 3


def test_an_early_chunk_waits_for_its_turn() -> None:
    order = ChunkOrder()
    assert not order.arrived(1, 11)
    assert order.take_next_early() is None
    assert order.arrived(0, 10)
    assert order.take_next_early() == 11
    assert order.take_next_early() is None
    assert order.next_seq == 2


def test_the_first_chunk_of_a_seq_wins() -> None:
    order = ChunkOrder()
    assert not order.arrived(1, 11)
    assert not order.arrived(1, 99)
    assert order.arrived(0, 10)
    assert not order.arrived(0, 98)
    assert order.take_next_early() == 11


def test_what_lies_behind_a_gap_is_read_at_the_end() -> None:
    order = ChunkOrder()
    for seq in (7, 5, 9):
        assert not order.arrived(seq, 10 + seq)
    assert order.take_rest() == [15, 17, 19]
    assert order.next_seq == 10
    assert order.take_rest() == []
    assert not order.arrived(6, 16)


@given(st.permutations(range(10)), st.lists(st.integers(0, 9), max_size=10), st.data())
@settings(max_examples=50)
def test_any_arrival_gives_every_chunk_once_in_order(
    arrivals: list[int], repeats: list[int], data: st.DataObject
) -> None:
    order = ChunkOrder()
    read: list[int] = []
    first: dict[int, int] = {}
    for position, seq in enumerate(data.draw(st.permutations([*arrivals, *repeats]))):
        first.setdefault(seq, position)
        if order.arrived(seq, position):
            read.append(position)
            while (early := order.take_next_early()) is not None:
                read.append(early)
    assert read == [first[seq] for seq in range(10)]
    assert order.take_rest() == []


@given(st.lists(st.integers(0, 9), max_size=30))
def test_places_of_chunks_are_kept_like_a_dict_of_the_first_of_each(arrivals: list[int]) -> None:
    places = ChunkPlaces()
    first: dict[int, int] = {}
    for position, seq in enumerate(arrivals, start=1):
        assert places.add(seq, position) == (seq not in first)
        first.setdefault(seq, position)
        assert len(places) == len(first)
        assert places.first == min(first.values())
    assert [places.position(seq) for seq in range(11)] == [first.get(seq) for seq in range(11)]


def test_places_cost_next_to_nothing() -> None:
    places = ChunkPlaces()
    for seq in (*range(1, 10_000), 0):  # also where the first comes last
        places.add(seq, 1_000_000_000 + seq)
    assert (len(places), len(places._behind_a_gap)) == (10_000, 0)
    assert sys.getsizeof(places._whole) < 10 * len(places)
