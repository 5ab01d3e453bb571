"""Repeats at any distance, late arrivals and purges: what they must not change."""

from dataclasses import replace

from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.sims import state as sim_state
from cascade_core.sims.facts import (
    SimGivenUp,
    SimLaunched,
    SimLaunchFailed,
    SimLogArchived,
    SimProgressed,
    SimReported,
    SimWentSilent,
)
from cascade_core.sims.state import Sim, SimInput
from cascade_core.sims.transitions import SIM_TRANSITIONS, SimState
from cascade_core.testing.builders import (
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
)
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = settings(max_examples=50)
S = SimState
# Kinds of facts; what happens more often stands here more often.
KINDS = (
    "start", "launched", "running", "running", "running", "end", "chunk", "chunk", "chunk", "progress", "silent",
    "up", "cancel", "failed", "kernel",
)  # fmt: skip


@st.composite
def histories(draw: st.DrawFn, *, attempts: bool = True) -> list[SimInput]:
    """Facts of one sim in stream order, as services with their own clocks and views may append them."""
    facts: list[SimInput] = []
    starts = ["a1.x", "a1.y", None] if attempts else [None]
    heard: list[float] = []
    for step in range(draw(st.integers(0, 14))):
        now = step * 10 + draw(st.floats(0, 9))
        seen = draw(st.sampled_from([None, *heard]))
        seen_at = None if seen is None else at(seen)
        attempt = draw(st.sampled_from(starts))
        kind = draw(st.sampled_from(KINDS))
        match kind:
            case "start":
                facts.append(launch_started(now, attempt=draw(st.sampled_from(["a1", "a2"]))))
            case "launched":
                facts.append(SimLaunched(run_id=RUN, sim_id=SIM, occurred_at=at(now), launcher_ref=str(step)))
            case "running":
                heard.append(now)
                facts.append(reported(S.RUNNING, now, attempt=attempt))
            case "end":
                end = draw(st.sampled_from([S.SUCCEEDED, S.FAILED]))
                facts.append(reported(end, now, attempt=attempt, exit_code=draw(st.integers(0, 2))))
            case "chunk":
                # What a seq holds depends on the start that sent it.
                seq = draw(st.integers(0, 4))
                facts.append(
                    chunk(seq, [f"{attempt} {seq}"] * draw(st.sampled_from([1, 12])), attempt=attempt)
                )
            case "progress":
                through = draw(st.integers(-1, 5))
                facts.append(
                    progressed(
                        through, kernels_done=max(through, 0), cycles=through, final=draw(st.booleans())
                    )
                )
            case "silent":
                facts.append(
                    SimWentSilent(run_id=RUN, sim_id=SIM, occurred_at=at(now), heartbeat_seen_at=seen_at)
                )
            case "up":
                facts.append(
                    SimGivenUp(
                        run_id=RUN, sim_id=SIM, occurred_at=at(now), error="gone", heartbeat_seen_at=seen_at
                    )
                )
            case "cancel":
                facts.append(cancel_requested(now))
            case "failed":
                facts.append(SimLaunchFailed(run_id=RUN, sim_id=SIM, occurred_at=at(now), error="no"))
            case "kernel":
                facts.append(kernel(draw(st.integers(0, 5))))
    return facts


@given(histories(), st.data())
@EXAMPLES
def test_a_repeat_at_any_distance_changes_nothing(facts: list[SimInput], data: st.DataObject) -> None:
    expected = folded(facts)
    repeated = list(facts)
    # A fact that was set aside at first, such as a heartbeat before the launch, may well count when it comes again.
    counted = [fact for index, fact in enumerate(facts) if took_effect(facts, index)]
    for _ in range(data.draw(st.integers(0, 5)) if counted else 0):
        fact = data.draw(st.sampled_from(counted))
        first = repeated.index(fact)
        repeated.insert(data.draw(st.integers(first + 1, len(repeated))), fact)
    assert folded(repeated) == expected


def took_effect(facts: list[SimInput], index: int) -> bool:
    before = folded(facts[:index])
    return sim_state.apply(before, facts[index]) != before


@given(histories())
@EXAMPLES
def test_every_move_is_one_that_the_table_allows(facts: list[SimInput]) -> None:
    sim = folded([])
    for fact in facts:
        after = sim_state.apply(sim, fact)
        assert after.state is sim.state or after.state in SIM_TRANSITIONS[sim.state]
        assert after.is_terminal == (after.finished_at is not None)
        sim = after


@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=8), st.data())
@EXAMPLES
def test_late_and_repeated_chunks_leave_the_same_sim(
    order: list[int], repeats: list[int], data: st.DataObject
) -> None:
    running: list[SimInput] = [launch_started(), reported(S.RUNNING, 2)]
    in_order: list[SimInput] = [chunk(seq, [f"{seq}.{i}" for i in range(seq * 2)]) for seq in range(8)]
    arrivals = data.draw(st.permutations([in_order[seq] for seq in [*order, *repeats]]))
    assert folded([*running, *arrivals]) == folded([*running, *in_order])


@given(st.permutations(range(8)), st.lists(st.integers(0, 7), max_size=8))
@EXAMPLES
def test_late_and_repeated_progress_leaves_the_same_sim(order: list[int], repeats: list[int]) -> None:
    running: list[SimInput] = [launch_started(), reported(S.RUNNING, 2)]
    in_order: list[SimInput] = [
        progressed(seq, kernels_done=seq // 2, cycles=seq, final=seq == 7) for seq in range(8)
    ]
    assert folded([*running, *(in_order[seq] for seq in [*order, *repeats])]) == folded([*running, *in_order])


@given(histories())
@EXAMPLES
def test_a_rebuild_after_the_purge_gives_what_was_there_before(facts: list[SimInput]) -> None:
    live = folded(facts)
    if not live.is_terminal:
        live = folded([cancel_requested(999)], live)
        facts = [*facts, cancel_requested(999)]
    archive = SimLogArchived(
        run_id=RUN,
        sim_id=SIM,
        occurred_at=at(1000),
        object_key="logs/x.zst",
        chunk_count=5,
        line_count=5,
        size_bytes=5,
        log_tail=live.tail.lines(),
        last_heartbeat_at=live.last_heartbeat_at,
        outcome=sim_state.outcome_of(live),
    )
    assert without_progress(folded([*kept(facts), archive])) == without_progress(folded([archive], live))


def kept(facts: list[SimInput]) -> list[SimInput]:
    """What the archiver leaves in the stream: no chunks, no heartbeats that only repeat the state."""
    left: list[SimInput] = []
    sim: Sim = folded([])
    for fact in facts:
        after = sim_state.apply(sim, fact)
        liveness = isinstance(fact, SimReported) and fact.state is S.RUNNING and sim.state is S.RUNNING
        if not liveness and not isinstance(fact, LogAppended | KernelFinished):
            left.append(fact)
        sim = after
    return left


def without_progress(sim: Sim) -> Sim:
    """Progress is purged but for the newest fact, which a parser writes last; histories here are wilder."""
    return replace(sim, through_seq=0)


@given(st.permutations([SimProgressed, SimReported]))
def test_progress_and_heartbeats_do_not_touch_each_other(order: list[type]) -> None:
    facts: dict[type, SimInput] = {
        SimProgressed: progressed(3, kernels_done=1),
        SimReported: reported(S.RUNNING, 9),
    }
    start: list[SimInput] = [launch_started(), reported(S.RUNNING, 2)]
    assert folded([*start, *(facts[one] for one in order)]) == folded([*start, *facts.values()])
