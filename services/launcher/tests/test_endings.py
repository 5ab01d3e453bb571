import pytest
from cascade_launcher.backends.protocol import Ended, Gone
from cascade_launcher.endings import MOST_OUTPUT_CHARS, ending, how_it_ended, last_lines, lines_of


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "the simulator exited with code 0"),
        (3, "the simulator exited with code 3"),
        (-9, "the simulator was ended by SIGKILL"),
        (137, "the simulator exited with code 137 (SIGKILL)"),
        (255, "the simulator exited with code 255"),
        (None, "the simulator ended (its exit code could not be seen)"),
    ],
)
def test_an_exit_code_is_put_in_words(code: int | None, words: str) -> None:
    assert how_it_ended(code) == words


def test_an_early_end_shows_the_last_lines_of_output() -> None:
    over = Ended(1, None, ("", "Traceback", "\x1b[31mKeyError: 'x'\x1b[0m\r", ""))
    assert ending(over, heard=False) == (
        "the simulator exited with code 1 before its first heartbeat; its last output:\nTraceback\nKeyError: 'x'"
    )


def test_the_platforms_own_reason_comes_first() -> None:
    assert ending(Ended(137, "OOMKilled: the container used more memory than its limit"), heard=True) == (
        "OOMKilled: the container used more memory than its limit "
        "(the simulator exited with code 137 (SIGKILL) without a final heartbeat)"
    )


def test_a_reason_without_an_exit_code_stands_alone() -> None:
    assert ending(Ended(None, "the pod was evicted"), heard=True) == "the pod was evicted"


def test_a_sim_that_its_platform_does_not_know_says_so() -> None:
    assert ending(Gone(), heard=True).startswith("the simulator is gone without a final heartbeat")


def test_output_is_bounded_and_holds_nothing_that_a_database_rejects() -> None:
    lines = last_lines(("a\0b", "x" * 5000))
    assert sum(len(line) for line in lines) <= MOST_OUTPUT_CHARS + 1
    assert last_lines(("a\0b",)) == ["ab"]


def test_lines_split_on_newlines_only_and_a_cut_first_line_is_left_out() -> None:
    raw = "cut off\nsecond\u2028still second\nthird".encode()
    assert lines_of(raw, whole=False) == ("second\u2028still second", "third")
    assert lines_of(raw, whole=True)[0] == "cut off"
    assert lines_of(b"\xff only", whole=False) == ("� only",)
