"""A sim as the fold of its facts: given facts, when one more, then this state."""

import pytest
from cascade_core.kernels.facts import KernelFinished
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import (
    SimGivenUp,
    SimLaunched,
    SimLaunchFailed,
    SimLogArchived,
    SimMetrics,
    SimOutputStored,
    SimProgressed,
    SimReported,
    SimStepTimelineStored,
    SimWentSilent,
)
from cascade_core.sims.state import SECOND_LOG_ERROR, Sim, SimInput
from cascade_core.sims.transitions import SimState
from cascade_core.testing.builders import (
    ATTEMPT,
    RUN,
    SIM,
    at,
    cancel_requested,
    chunk,
    folded,
    kernel,
    launch_started,
    progressed,
    reported,
    run_requested,
)

S = SimState


def launched(ref: str = "4711") -> SimLaunched:
    return SimLaunched(run_id=RUN, sim_id=SIM, occurred_at=at(1.5), launcher_ref=ref)


def launch_failed(seconds: float) -> SimLaunchFailed:
    return SimLaunchFailed(run_id=RUN, sim_id=SIM, occurred_at=at(seconds), error="no such command")


def silent(seconds: float, *, seen: float | None) -> SimWentSilent:
    return SimWentSilent(
        run_id=RUN,
        sim_id=SIM,
        occurred_at=at(seconds),
        error="no heartbeat for 60s",
        heartbeat_seen_at=at(seen) if seen is not None else None,
    )


def given_up(seconds: float, *, seen: float | None) -> SimGivenUp:
    return SimGivenUp(
        run_id=RUN,
        sim_id=SIM,
        occurred_at=at(seconds),
        error="no heartbeat for 600s",
        heartbeat_seen_at=at(seen) if seen is not None else None,
    )


RUNNING: list[SimInput] = [launch_started(1), launched(), reported(S.RUNNING, 2)]


# ---- launching


def test_a_requested_run_has_pending_sims_in_the_order_of_its_plan() -> None:
    sims = sim_state.sims_of(run_requested(sims=["sim-b", "sim-a"], kernels_total=5))
    assert [(sim.sim_id, sim.replica, sim.state) for sim in sims] == [
        ("sim-b", 0, S.PENDING),
        ("sim-a", 1, S.PENDING),
    ]
    assert {sim.kernels_total for sim in sims} == {5}
    assert {sim.created_at for sim in sims} == {at(0)}
    assert {sim.engine for sim in sims} == {None}


def test_the_sims_of_a_replayed_sample_say_so() -> None:
    fact = run_requested().model_copy(update={"replay": True})
    assert sim_state.sims_of(fact)[0].engine == "replay"


def test_a_launcher_takes_a_pending_sim_once() -> None:
    sim = folded([launch_started(1, attempt="a1"), launch_started(9, attempt="a2")])
    assert (sim.state, sim.launch_attempt, sim.launched_at) == (S.LAUNCHING, "a1", at(1))


def test_the_first_launcher_ref_is_kept() -> None:
    assert folded([launch_started(), launched("1"), launched("2")]).launcher_ref == "1"


def test_a_failed_launch_fails_the_sim_with_its_reason() -> None:
    sim = folded([launch_started(), launch_failed(3)])
    assert (sim.state, sim.error, sim.finished_at) == (S.FAILED, "no such command", at(3))


def test_a_failed_launch_is_set_aside_once_the_sim_was_heard() -> None:
    sim = folded([*RUNNING, launch_failed(3)])
    assert (sim.state, sim.error) == (S.RUNNING, None)


def test_a_pending_sim_that_cannot_be_launched_fails() -> None:
    assert folded([launch_failed(3)]).state is S.FAILED


# ---- heartbeats


def test_the_first_running_heartbeat_starts_the_sim() -> None:
    sim = folded([launch_started(1), reported(S.RUNNING, 2), reported(S.RUNNING, 7)])
    assert (sim.state, sim.started_at, sim.last_heartbeat_at) == (S.RUNNING, at(2), at(7))


def test_heartbeats_from_two_gateways_keep_the_newest_time() -> None:
    assert folded([*RUNNING, reported(S.RUNNING, 9), reported(S.RUNNING, 8)]).last_heartbeat_at == at(9)


def test_a_final_heartbeat_ends_the_sim() -> None:
    sim = folded([*RUNNING, reported(S.SUCCEEDED, 9, exit_code=0)])
    assert (sim.state, sim.exit_code, sim.error, sim.finished_at) == (S.SUCCEEDED, 0, None, at(9))
    assert sim.last_heartbeat_at == at(9)


def test_a_launching_sim_may_end_without_ever_running() -> None:
    sim = folded([launch_started(1), reported(S.FAILED, 2, error="no configs", exit_code=2)])
    assert (sim.state, sim.error, sim.exit_code, sim.started_at) == (S.FAILED, "no configs", 2, None)


def test_nothing_changes_an_ended_sim() -> None:
    ended = folded([*RUNNING, reported(S.SUCCEEDED, 9, exit_code=0)])
    late: list[SimInput] = [
        reported(S.FAILED, 10, error="late"),
        reported(S.RUNNING, 11),
        cancel_requested(12),
        silent(99, seen=9),
        given_up(999, seen=9),
        launch_failed(13),
        launch_started(14),
    ]
    assert folded(late, ended) == ended


def test_a_heartbeat_of_a_pending_sim_is_a_move_outside_the_table() -> None:
    assert folded([reported(S.RUNNING, 2)]) == folded([])
    assert folded([reported(S.SUCCEEDED, 2)]).state is S.PENDING


def test_a_pending_sim_may_report_that_it_failed_and_is_not_launched_afterwards() -> None:
    failed = folded([reported(S.FAILED, 2, exit_code=2, error="no disk"), launch_started(3), launched()])
    assert (failed.state, failed.error, failed.exit_code) == (S.FAILED, "no disk", 2)
    assert (failed.started_at, failed.launched_at, failed.finished_at) == (None, None, at(2))


def test_a_heartbeat_of_a_pending_sim_does_not_make_its_start_the_owner() -> None:
    sim = folded(
        [
            reported(S.RUNNING, 0.5, attempt="stray"),
            launch_started(1, attempt="a1"),
            reported(S.RUNNING, 2, attempt="a1.x"),
        ]
    )
    assert (sim.state, sim.attempt) == (S.RUNNING, "a1.x")


# ---- silence


def test_a_silent_sim_is_lost_and_a_heartbeat_brings_it_back() -> None:
    lost = folded([*RUNNING, silent(62, seen=2)])
    assert (lost.state, lost.error) == (S.LOST, "no heartbeat for 60s")
    back = folded([reported(S.RUNNING, 70)], lost)
    assert (back.state, back.error, back.started_at) == (S.RUNNING, None, at(2))


@pytest.mark.parametrize("end", [S.SUCCEEDED, S.FAILED])
def test_a_lost_sim_may_report_its_end(end: SimState) -> None:
    assert folded([*RUNNING, silent(62, seen=2), reported(end, 70)]).state is end


def test_a_judgement_older_than_the_last_heartbeat_is_set_aside() -> None:
    assert folded([*RUNNING, reported(S.RUNNING, 61), silent(62, seen=2)]).state is S.RUNNING
    assert folded([*RUNNING, silent(62, seen=None)]).state is S.RUNNING
    lost_then_heard = folded([*RUNNING, silent(62, seen=2), reported(S.RUNNING, 601)])
    assert folded([given_up(602, seen=2)], lost_then_heard).state is S.RUNNING


def test_an_old_heartbeat_that_is_stored_again_does_not_revive_a_lost_sim() -> None:
    sim = folded([*RUNNING, reported(S.RUNNING, 7), silent(67, seen=7), reported(S.RUNNING, 7)])
    assert sim.state is S.LOST
    assert folded([reported(S.RUNNING, 5)], sim).state is S.LOST


def test_a_sim_that_was_launched_and_never_heard_is_lost_as_well() -> None:
    assert folded([launch_started(1), silent(61, seen=None)]).state is S.LOST


def test_a_pending_sim_is_never_lost() -> None:
    assert folded([silent(61, seen=None)]).state is S.PENDING


def test_a_sim_that_stays_lost_is_given_up() -> None:
    sim = folded([*RUNNING, silent(62, seen=2), given_up(602, seen=2)])
    assert (sim.state, sim.error, sim.finished_at) == (S.FAILED, "no heartbeat for 600s", at(602))


# ---- cancelling


@pytest.mark.parametrize("before", [[], [launch_started()], RUNNING, [*RUNNING, silent(62, seen=2)]], ids=str)
def test_cancelling_reaches_every_sim_that_has_not_finished(before: list[SimInput]) -> None:
    sim = folded([*before, cancel_requested(99)])
    assert (sim.state, sim.finished_at) == (S.CANCELLED, at(99))


# ---- the log


def test_chunks_fill_the_tail_in_seq_order() -> None:
    assert folded([*RUNNING, chunk(1, ["b"]), chunk(0, ["a"])]).tail.lines() == ["a", "b"]


def test_the_first_chunk_of_a_seq_wins() -> None:
    assert folded([*RUNNING, chunk(1, ["b"]), chunk(1, ["other"])]).tail.lines() == ["b"]


def test_a_chunk_after_the_end_still_counts() -> None:
    assert folded([*RUNNING, reported(S.SUCCEEDED, 9), chunk(0, ["a"])]).tail.lines() == ["a"]


def test_another_first_chunk_without_attempts_fails_a_sim_that_calls_itself_succeeded() -> None:
    sim = folded([*RUNNING, chunk(0, ["a", "b"]), chunk(0, ["a"]), chunk(1, ["b"])])
    assert (sim.second_log, sim.tail.lines()) == (True, ["a", "b"])
    ended = folded([reported(S.SUCCEEDED, 9, exit_code=0)], sim)
    assert (ended.state, ended.error, ended.exit_code) == (S.FAILED, SECOND_LOG_ERROR, 0)
    failed = folded([reported(S.FAILED, 9, error="exit 1")], sim)
    assert failed.error == "exit 1"


def test_a_repeat_of_the_first_chunk_is_no_second_log() -> None:
    sim = folded([*RUNNING, chunk(0, ["a"]), chunk(1, ["b"]), chunk(0, ["a"])])
    assert (sim.second_log, sim.tail.lines()) == (False, ["a", "b"])


def test_the_digest_tells_line_boundaries_apart() -> None:
    assert sim_state.chunk_digest(["a", "b"]) != sim_state.chunk_digest(["ab"])
    assert sim_state.chunk_digest(["\ud800"]) != sim_state.chunk_digest(["\ufffd"])


# ---- two starts of one sim


def test_the_start_that_speaks_first_owns_the_sim() -> None:
    sim = folded([launch_started(1), reported(S.RUNNING, 2, attempt="a1.x")])
    assert not sim_state.is_fenced(sim, "a1.x")
    assert sim_state.is_fenced(sim, "a1.y")
    assert not sim_state.is_fenced(sim, None)


def test_a_start_of_another_launch_is_fenced_from_the_beginning() -> None:
    sim = folded([launch_started(1, attempt="a1")])
    assert sim_state.is_fenced(sim, "a2.x")
    assert not sim_state.is_fenced(sim, "a1.x")
    assert not sim_state.is_fenced(sim, "a1")


def test_a_start_owns_the_sim_from_its_first_chunk_on_even_before_a_heartbeat() -> None:
    sim = folded(
        [
            launch_started(1),
            chunk(0, ["a", "b"], attempt="a1.x"),
            reported(S.RUNNING, 3, attempt="a1.y"),
            chunk(0, ["a"], attempt="a1.y"),
            chunk(1, ["b"], attempt="a1.y"),
        ]
    )
    assert (sim.attempt, sim.state, sim.tail.lines()) == ("a1.x", S.LAUNCHING, ["a", "b"])
    assert not sim.second_log


def test_nothing_of_a_fenced_start_counts() -> None:
    owner = folded(
        [launch_started(1), reported(S.RUNNING, 2, attempt="a1.x"), chunk(0, ["a"], attempt="a1.x")]
    )
    other: list[SimInput] = [
        reported(S.RUNNING, 5, attempt="a1.y"),
        chunk(0, ["z"], attempt="a1.y"),
        chunk(1, ["z"], attempt="a1.y"),
        reported(S.FAILED, 6, attempt="a1.y", error="preempted"),
    ]
    assert folded(other, owner) == owner


# ---- progress


def test_progress_is_taken_whole() -> None:
    fact = SimProgressed(
        run_id=RUN,
        sim_id=SIM,
        occurred_at=at(3),
        through_seq=4,
        kernels_done=2,
        current_kernel="k2",
        latest=SimMetrics(gpu_tot_sim_cycle=10.0, sim_rate_ips=3.5),
        log_clock_mhz=1410.0,
        partial_kernel=1,
    )
    sim = folded([*RUNNING, fact])
    assert (sim.kernels_done, sim.current_kernel, sim.latest, sim.log_clock_mhz, sim.partial_kernel) == (
        2,
        "k2",
        fact.latest,
        1410.0,
        1,
    )
    assert sim.through_seq == 4


def test_older_progress_changes_nothing() -> None:
    newer = folded([*RUNNING, progressed(5, kernels_done=3, cycles=30)])
    assert folded([progressed(4, kernels_done=2, cycles=20)], newer) == newer


def test_nothing_follows_final_progress() -> None:
    final = folded([*RUNNING, progressed(5, kernels_done=3, final=True)])
    assert final.parsed_to_end
    assert folded([progressed(6, kernels_done=4), progressed(9, kernels_done=0, final=True)], final) == final


@pytest.mark.parametrize(
    ("line", "engine"), [("cascade-estimate 0.1", "estimate"), ("accel-sim 1.3", "accel-sim"), (None, None)]
)
def test_the_log_names_its_engine(line: str | None, engine: str | None) -> None:
    fact = progressed(0).model_copy(update={"engine": line})
    assert folded([*RUNNING, fact]).engine == engine


def test_the_clock_is_the_registrys_else_the_logs_own() -> None:
    sim = sim_state.sims_of(run_requested())[0]
    assert sim.clock_mhz == 1132.0
    fact = progressed(0).model_copy(update={"log_clock_mhz": 1410.0})
    assert folded([fact], sim).clock_mhz == 1132.0
    unknown = Sim(sim_id=SIM, run_id=RUN, gpu_config="X", replica=0, created_at=at(0), kernels_total=0)
    assert unknown.clock_mhz is None
    assert folded([fact], unknown).clock_mhz == 1410.0


@pytest.mark.parametrize(
    "fact",
    [
        kernel(0),
        SimOutputStored(
            run_id=RUN,
            sim_id=SIM,
            occurred_at=at(3),
            name="a.csv",
            size=1,
            content_type="text/csv",
            object_key="k",
        ),
        SimStepTimelineStored(run_id=RUN, sim_id=SIM, occurred_at=at(3), simulated={}),
    ],
    ids=lambda fact: str(fact.type),
)
def test_kernels_and_files_are_kept_elsewhere(
    fact: KernelFinished | SimOutputStored | SimStepTimelineStored,
) -> None:
    running = folded(RUNNING)
    assert folded([fact], running) is running


# ---- archiving


def archived(sim: Sim, *, chunks: int = 1, tail: tuple[str, ...] = ("a",)) -> SimLogArchived:
    return SimLogArchived(
        run_id=RUN,
        sim_id=SIM,
        occurred_at=at(100),
        object_key="logs/x.zst",
        chunk_count=chunks,
        line_count=len(tail),
        size_bytes=2,
        log_tail=list(tail),
        last_heartbeat_at=sim.last_heartbeat_at,
        outcome=sim_state.outcome_of(sim),
    )


def test_an_archived_sim_keeps_its_tail_and_takes_no_more_chunks() -> None:
    ended = folded([*RUNNING, chunk(0, ["a"]), reported(S.SUCCEEDED, 9)])
    sim = folded([archived(ended), chunk(1, ["late"])], ended)
    assert (sim.archive_key, sim.tail.lines(), sim.state) == ("logs/x.zst", ["a"], S.SUCCEEDED)


def test_a_second_archive_of_what_was_purged_already_changes_nothing() -> None:
    ended = folded([*RUNNING, chunk(0, ["a"]), reported(S.SUCCEEDED, 9)])
    sim = folded([archived(ended)], ended)
    assert folded([archived(ended, chunks=0, tail=())], sim) == sim


def test_a_sim_that_runs_is_not_archived_by_a_fact_without_an_outcome() -> None:
    running = folded(RUNNING)
    assert folded([archived(running)], running) == running


def test_the_archive_keeps_the_last_heartbeat_of_those_that_were_purged() -> None:
    ended = folded([*RUNNING, reported(S.RUNNING, 50), cancel_requested(60)])
    assert ended.last_heartbeat_at == at(50)
    rebuilt = folded([*RUNNING, cancel_requested(60), archived(ended)])
    assert rebuilt.last_heartbeat_at == at(50)


def test_a_replay_without_the_purged_chunks_still_knows_of_the_second_log() -> None:
    chunks: list[SimInput] = [chunk(0, ["a"]), chunk(0, ["b"])]
    end: list[SimInput] = [reported(S.SUCCEEDED, 9, exit_code=0)]
    live = folded([*RUNNING, *chunks, *end])
    assert live.state is S.FAILED
    rebuilt = folded([*RUNNING, *end, archived(live)])
    assert rebuilt == folded([archived(live)], live)
    assert (rebuilt.state, rebuilt.error) == (S.FAILED, SECOND_LOG_ERROR)


def test_a_replay_without_the_purged_heartbeats_is_not_given_up() -> None:
    beat = reported(S.RUNNING, 601)
    rest: list[SimInput] = [given_up(602, seen=2), reported(S.SUCCEEDED, 700, exit_code=0)]
    live = folded([*RUNNING, silent(62, seen=2), beat, *rest])
    assert live.state is S.SUCCEEDED
    rebuilt = folded([*RUNNING, silent(62, seen=2), *rest, archived(live)])
    assert rebuilt == folded([archived(live)], live)


def test_a_replay_without_the_purged_chunks_keeps_the_owner() -> None:
    chunks: list[SimInput] = [chunk(0, ["a"], attempt="a1.x")]
    facts: list[SimInput] = [
        reported(S.RUNNING, 2, attempt="a1.y"),
        reported(S.SUCCEEDED, 9, attempt="a1.x"),
    ]
    live = folded([launch_started(1), *chunks, *facts])
    assert (live.state, live.attempt) == (S.SUCCEEDED, "a1.x")
    rebuilt = folded([launch_started(1), *facts, archived(live)])
    assert rebuilt == folded([archived(live)], live)


def test_the_fold_is_total_over_reports_of_every_state() -> None:
    for state in (S.RUNNING, S.SUCCEEDED, S.FAILED):
        fact: SimReported = reported(state, 1, attempt=ATTEMPT)
        assert isinstance(folded([fact]), Sim)
