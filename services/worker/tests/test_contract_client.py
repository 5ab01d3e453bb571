"""The standard-library client against the contract, so that it can be trusted to test the real gateway
later."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cascade_worker.testing import FakeGateway

CLIENT = Path(__file__).parent / "contract_client.py"


def start(gateway: FakeGateway, script: str) -> "subprocess.Popen[bytes]":
    environ = {
        **os.environ,
        "CASCADE_SIM_ID": gateway.sim_id,
        "CASCADE_MAIN_URL": gateway.url,
        "CASCADE_TOKEN": gateway.token,
        "CONTRACT_CLIENT_PAUSE_S": "0.1",
    }
    return subprocess.Popen([sys.executable, str(CLIENT), sys.executable, "-c", script], env=environ)


@pytest.mark.parametrize("faults", [False, True])
def test_it_forwards_a_commands_output_and_end(gateway: FakeGateway, faults: bool) -> None:
    if faults:
        gateway.fail("heartbeat", 503)
        gateway.fail("logs", "drop-after", times=2)
    assert start(gateway, "print('\\n'.join(map(str, range(400))))").wait(60) == 0
    assert gateway.log == [str(number) for number in range(400)]
    assert gateway.final == {"state": "succeeded", "exit_code": 0, "error": None}
    assert gateway.attempts == set()


def test_it_reports_a_failure(gateway: FakeGateway) -> None:
    assert start(gateway, "raise SystemExit(3)").wait(60) == 3
    assert gateway.final == {"state": "failed", "exit_code": 3, "error": "the command ended with 3"}


def test_it_stops_when_cancelled(gateway: FakeGateway) -> None:
    client = start(gateway, "import time; print('started', flush=True); time.sleep(600)")
    gateway.wait_for(lambda state: len(state.heartbeats) >= 2)
    gateway.cancel = True
    assert client.wait(60) == 0
    assert gateway.final is None
