"""A rolling restart, as an upgrade does it: each service ends in order and comes back in the middle of a run."""

import os
import signal

import pytest

from . import conftest
from .conftest import CrashApp

IN_ORDER = ("api", "ingest", "parser", "requestsim")
"""Services whose orderly end leaves sims alone."""


@pytest.fixture(autouse=True)
def slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sims send more of their logs while services restart, and the rest once all have."""
    monkeypatch.setattr(conftest, "DELAY_S", 0.4)


async def restart(app: CrashApp, service: str) -> None:
    """End a service as an orchestrator does, and wait until the app answers with its successor."""
    before = app.pid_of(service)
    os.kill(before, signal.SIGTERM)
    await app.until(app._is_another(service, before))
    await app.healthy()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_rolling_restart_in_the_middle_of_a_run_loses_nothing(crash_app: CrashApp) -> None:
    await crash_app.upload()
    await crash_app.trace_is("ready")
    await crash_app.launch()
    await crash_app.kernels_seen(1)
    for service in IN_ORDER:
        await restart(crash_app, service)
    # Local sims end with an orderly stop of their launcher, which runs them. A launcher that is replaced without
    # one finds them again; on every other backend both do.
    await crash_app.kill("launcher")
    assert (await crash_app.get(f"/api/runs/{crash_app.run_id}"))["state"] == "active"
    await crash_app.ends_exactly()
