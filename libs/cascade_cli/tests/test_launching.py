"""What `cascade launch` says of a run."""

from datetime import UTC, datetime

import pytest
from cascade_cli.launching import launched_line
from cascade_client.wire.runs import RunDetail, RunEntry, RunState, SimMetrics, SimState, SimSummary
from cascade_client.wire.traces import TraceState, TraceSummary

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def launched(count: int) -> RunDetail:
    trace = TraceSummary(
        id="demo", state=TraceState.READY, error=None, created_at=NOW, updated_at=NOW, model=None, layers=[],
        source_gpu=None, trace_gpu_arch="sm_80", suggested_sim_config=None, real_gpu_config=None,
        kernel_count=2, bytes=1, has_real_timing=False, has_step_timeline=False, sample=False,
    )  # fmt: skip
    sims = [
        SimSummary(
            id=f"sim-{replica}", run_id="run-1", gpu_config="A", replica=replica, state=SimState.PENDING, error=None,
            launcher_ref=None, created_at=NOW, started_at=None, finished_at=None, last_heartbeat_at=None,
            exit_code=None, kernels_done=0, kernels_total=2, current_kernel=None, latest=SimMetrics(), log_tail=[],
        )
        for replica in range(count)
    ]  # fmt: skip
    return RunDetail(
        id="run-1", trace_id="demo", created_at=NOW, state=RunState.ACTIVE,
        entries=[RunEntry(gpu_config="A", count=count)], sim_counts={SimState.PENDING: count}, sample=False,
        replay=False, trace=trace, sims=sims,
    )  # fmt: skip


@pytest.mark.parametrize(("count", "line"), [(1, "run-1: 1 sim on A"), (3, "run-1: 3 sims on A")])
def test_a_launch_counts_its_sims_in_words(count: int, line: str) -> None:
    assert launched_line(launched(count), [RunEntry(gpu_config="A", count=count)]) == line
