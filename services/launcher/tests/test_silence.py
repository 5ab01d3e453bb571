from dataclasses import replace
from datetime import UTC, datetime, timedelta

from cascade_core.sims.facts import SimGivenUp, SimLaunchFailed, SimReported, SimWentSilent
from cascade_core.sims.state import Sim, apply
from cascade_core.sims.transitions import SimState
from cascade_launcher.silence import Hearing, judge, overdue, still_hearing
from hypothesis import given, settings
from hypothesis import strategies as st

T0 = datetime(2026, 11, 7, 12, tzinfo=UTC)
MINUTE = timedelta(seconds=60)
ALWAYS = Hearing(since=T0 - timedelta(days=1), checked_at=T0)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def sim(state: SimState, *, launched: float | None = 0, heard: float | None = None) -> Sim:
    return Sim(
        sim_id="sim-1",
        run_id="run-1",
        gpu_config="SM90_H100",
        replica=0,
        created_at=T0,
        kernels_total=1,
        state=state,
        launched_at=None if launched is None else at(launched),
        last_heartbeat_at=None if heard is None else at(heard),
    )


def test_a_running_sim_is_lost_after_the_timeout_and_not_before() -> None:
    running = sim(SimState.RUNNING, heard=100)
    assert judge([running], now=at(159.9), hearing=ALWAYS, timeout=MINUTE) == []
    assert judge([running], now=at(160), hearing=ALWAYS, timeout=MINUTE) == [
        SimWentSilent(
            occurred_at=at(160),
            run_id="run-1",
            sim_id="sim-1",
            error="no heartbeat for 60s",
            heartbeat_seen_at=at(100),
        )
    ]


def test_a_sim_that_never_reported_is_lost_after_its_launch() -> None:
    launching = sim(SimState.LAUNCHING, launched=10)
    assert judge([launching], now=at(69), hearing=ALWAYS, timeout=MINUTE) == []
    (fact,) = judge([launching], now=at(70), hearing=ALWAYS, timeout=MINUTE)
    assert isinstance(fact, SimWentSilent)
    assert fact.heartbeat_seen_at is None


def test_a_lost_sim_fails_after_ten_times_the_timeout_with_the_documented_error() -> None:
    lost = sim(SimState.LOST, heard=0)
    assert judge([lost], now=at(599), hearing=ALWAYS, timeout=MINUTE) == []
    assert judge([lost], now=at(600), hearing=ALWAYS, timeout=MINUTE) == [
        SimGivenUp(
            occurred_at=at(600),
            run_id="run-1",
            sim_id="sim-1",
            error="no heartbeat for 600s",
            heartbeat_seen_at=T0,
        )
    ]


def test_pending_and_finished_sims_are_never_silent() -> None:
    quiet = [sim(SimState.PENDING, launched=None), sim(SimState.SUCCEEDED, heard=0)]
    assert judge(quiet, now=at(10_000), hearing=ALWAYS, timeout=MINUTE) == []


def test_silence_counts_only_from_when_the_launcher_could_hear() -> None:
    running, lost = sim(SimState.RUNNING, heard=0), sim(SimState.LOST, heard=0)
    back = Hearing(since=at(5000), checked_at=at(5000))
    assert judge([running, lost], now=at(5059), hearing=back, timeout=MINUTE) == []
    silent, given_up = judge([running, lost], now=at(5060), hearing=back, timeout=MINUTE)
    assert isinstance(silent, SimWentSilent)
    assert isinstance(given_up, SimGivenUp)


def test_a_sim_that_the_platform_has_not_started_owes_no_heartbeat() -> None:
    waiting = sim(SimState.LAUNCHING, launched=0)
    assert judge([waiting], now=at(10_000), hearing=ALWAYS, timeout=MINUTE, waiting={"sim-1"}) == []


def test_silence_counts_from_when_the_platform_had_started_a_sim_that_waited() -> None:
    started = {"sim-1": at(700)}
    launching, lost = sim(SimState.LAUNCHING, launched=0), sim(SimState.LOST, launched=0)
    assert judge([launching], now=at(759), hearing=ALWAYS, timeout=MINUTE, waited_until=started) == []
    (silent,) = judge([launching], now=at(760), hearing=ALWAYS, timeout=MINUTE, waited_until=started)
    assert isinstance(silent, SimWentSilent)
    assert judge([lost], now=at(1299), hearing=ALWAYS, timeout=MINUTE, waited_until=started) == []
    (given_up,) = judge([lost], now=at(1300), hearing=ALWAYS, timeout=MINUTE, waited_until=started)
    assert isinstance(given_up, SimGivenUp)


def test_a_heartbeat_after_the_wait_is_what_silence_counts_from() -> None:
    running = sim(SimState.RUNNING, launched=0, heard=800)
    started = {"sim-1": at(700)}
    assert judge([running], now=at(859), hearing=ALWAYS, timeout=MINUTE, waited_until=started) == []
    assert len(judge([running], now=at(860), hearing=ALWAYS, timeout=MINUTE, waited_until=started)) == 1


def test_a_sim_that_the_platform_never_starts_fails_with_the_platforms_reason() -> None:
    waiting = sim(SimState.LAUNCHING, launched=0)
    reasons = {"sim-1": "0/3 nodes are available"}
    assert overdue([waiting], now=at(3599), waiting=reasons, limit=timedelta(hours=1)) == []
    assert overdue([waiting], now=at(3600), waiting=reasons, limit=timedelta(hours=1)) == [
        SimLaunchFailed(
            occurred_at=at(3600),
            run_id="run-1",
            sim_id="sim-1",
            error="the simulator did not start in 3600s: 0/3 nodes are available",
        )
    ]


def test_hearing_starts_over_when_the_log_was_out_of_reach() -> None:
    gap = timedelta(seconds=20)
    hearing = still_hearing(ALWAYS, at(5), reachable=True, longest_gap=gap)
    assert hearing == Hearing(since=ALWAYS.since, checked_at=at(5))
    assert still_hearing(hearing, at(10), reachable=False, longest_gap=gap).since == at(10)


def test_hearing_starts_over_after_the_process_slept() -> None:
    woken = still_hearing(ALWAYS, at(3600), reachable=True, longest_gap=timedelta(seconds=20))
    assert woken.since == at(3600)


@given(heard=st.floats(0, 2000), later=st.floats(0.001, 2000), judged=st.floats(0, 2000), lost=st.booleans())
@settings(max_examples=50)
def test_a_judgement_that_missed_a_heartbeat_changes_nothing(
    heard: float, later: float, judged: float, lost: bool
) -> None:
    before = sim(SimState.LOST if lost else SimState.RUNNING, heard=heard)
    beat = SimReported(occurred_at=at(heard + later), run_id="run-1", sim_id="sim-1", state=SimState.RUNNING)
    heard_again = apply(before, beat)
    for fact in judge([before], now=at(heard + judged), hearing=ALWAYS, timeout=MINUTE):
        assert apply(heard_again, fact) == heard_again
        assert apply(replace(before), fact).state in (SimState.LOST, SimState.FAILED)
