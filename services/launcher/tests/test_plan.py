from datetime import UTC, datetime

from cascade_core.sims.state import Sim
from cascade_core.sims.transitions import SimState
from cascade_launcher import plan

AT = datetime(2026, 11, 7, tzinfo=UTC)


def sim(number: int, run: str = "run-1", state: SimState = SimState.PENDING, ref: str | None = None) -> Sim:
    return Sim(
        sim_id=f"sim-{number}",
        run_id=run,
        gpu_config="SM90_H100",
        replica=number,
        created_at=AT,
        kernels_total=1,
        state=state,
        launcher_ref=ref,
    )


def ids(sims: list[Sim]) -> list[str]:
    return [one.sim_id for one in sims]


def test_at_most_eight_launches_are_in_flight() -> None:
    sims = [sim(number) for number in range(20)]
    chosen = plan.next_launches(sims, prepared={"run-1"}, taken=set(), in_flight=0)
    assert ids(chosen) == [f"sim-{number}" for number in range(8)]
    assert len(plan.next_launches(sims, prepared={"run-1"}, taken=set(ids(chosen)), in_flight=6)) == 2
    assert plan.next_launches(sims, prepared={"run-1"}, taken=set(), in_flight=8) == []


def test_a_sim_waits_until_its_run_is_prepared() -> None:
    sims = [sim(1, "run-1"), sim(2, "run-2")]
    assert ids(plan.next_launches(sims, prepared={"run-2"}, taken=set(), in_flight=0)) == ["sim-2"]


def test_a_sim_that_this_launcher_has_taken_is_not_started_again() -> None:
    sims = [sim(1), sim(2)]
    assert ids(plan.next_launches(sims, prepared={"run-1"}, taken={"sim-1"}, in_flight=1)) == ["sim-2"]


def test_a_sim_that_a_killed_launcher_took_is_looked_after() -> None:
    left = sim(1, state=SimState.LAUNCHING)
    assert ids(plan.next_launches([left], prepared={"run-1"}, taken=set(), in_flight=0)) == ["sim-1"]


def test_a_started_sim_is_left_alone() -> None:
    started = sim(1, state=SimState.LAUNCHING, ref="4711")
    assert plan.next_launches([started], prepared={"run-1"}, taken=set(), in_flight=0) == []


def test_a_reporting_sim_whose_start_was_never_written_down_is_only_started_where_it_can_be_found() -> None:
    import dataclasses

    reporting = dataclasses.replace(sim(1, state=SimState.RUNNING), last_heartbeat_at=AT)
    assert plan.next_launches([reporting], prepared={"run-1"}, taken=set(), in_flight=0) == []
    found = plan.next_launches([reporting], prepared=set(), taken=set(), in_flight=0, found={"sim-1"})
    assert ids(found) == ["sim-1"]


def test_two_runs_are_prepared_at_a_time_the_oldest_first() -> None:
    sims = [sim(1, "run-1"), sim(2, "run-1"), sim(3, "run-2"), sim(4, "run-3")]
    assert plan.runs_to_prepare(sims, settled=set(), preparing=set()) == ["run-1", "run-2"]
    assert plan.runs_to_prepare(sims, settled={"run-1"}, preparing={"run-2"}) == ["run-3"]
    assert plan.runs_to_prepare(sims, settled=set(), preparing={"run-1", "run-2"}) == []


def test_a_run_whose_sims_all_run_needs_no_preparation() -> None:
    sims = [sim(1, state=SimState.RUNNING, ref="1"), sim(2, "run-2", state=SimState.LAUNCHING)]
    assert plan.runs_to_prepare(sims, settled=set(), preparing=set(), found={"sim-2"}) == []
