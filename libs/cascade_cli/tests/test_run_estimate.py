"""`GET /api/runs/{id}/estimate` on a whole app: at once, with intervals, and blind to replayed logs."""

import pytest
from cascade_cli.testing import DemoApp
from cascade_client.client import CascadeClient

pytestmark = pytest.mark.slow


def test_the_estimate_of_a_run_agrees_with_what_its_estimating_sims_report(estimate_app: DemoApp) -> None:
    with CascadeClient(estimate_app.url, estimate_app.token) as client:
        found = client.estimate(estimate_app.run_id)
        kernels = client.kernels(estimate_app.run_id)
        run = client.run(estimate_app.run_id)
    assert found.engine.startswith("cascade-estimate ")
    assert [config.gpu_config for config in found.configs] == ["SM80_A100", "SM80_A100_40GB", "SM80_A30"]
    for config in found.configs:
        assert config.state == "ready"
        # A sim that estimates has simulated nothing.
        assert (config.simulated_kernels, config.estimated_kernels) == (0, 8)
        sim = next(sim for sim in run.sims if sim.gpu_config == config.gpu_config)
        reported = [kernel.gpu_sim_cycle for kernel in kernels if kernel.sim_id == sim.id]
        assert [row.cycles for row in config.rows] == reported
        for row in config.rows:
            assert row.low_cycles <= row.cycles <= row.high_cycles
            assert row.bottleneck


def test_a_replayed_log_never_counts_as_simulated(replay_app: DemoApp) -> None:
    with CascadeClient(replay_app.url, replay_app.token) as client:
        found = client.estimate(replay_app.run_id)
    for config in found.configs:
        assert config.state == "ready"
        assert {row.source for row in config.rows} == {"estimated"}
