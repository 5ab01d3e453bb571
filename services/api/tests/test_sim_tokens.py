"""With the token of one sim, that sim's simulator routes are open and nothing else is."""

import httpx
import pytest
from cascade_api.testing.client import Client
from cascade_core.sim_tokens import sim_token

Call = tuple[str, str, object]
CALLS: list[Call] = [
    ("POST", "/api/sims/{sim}/heartbeat", {"state": "running"}),
    ("POST", "/api/sims/{sim}/logs", {"seq": 0, "lines": ["x"]}),
    ("POST", "/api/sims/{sim}/step-timeline", {"simulated": {"steps": [], "summary": {}}}),
    ("PUT", "/api/sims/{sim}/files/a.csv", None),
]
OTHERS: list[Call] = [
    ("GET", "/api/runs", None),
    ("GET", "/api/runs/{run}", None),
    ("POST", "/api/runs/{run}/cancel", None),
    ("GET", "/api/sims/{sim}/files", None),
    ("GET", "/api/sims/{sim}/files/a.csv", None),
    ("GET", "/api/sims/{sim}/log", None),
    ("GET", "/api/metrics", None),
    ("POST", "/api/scenarios", {}),
]


def status(client: Client, call: Call, sim_id: str, token: str, run_id: str = "run-x") -> int:
    """What the call is answered with this token."""
    method, path, body = call
    reply: httpx.Response = client.request(
        method,
        path.format(sim=sim_id, run=run_id),
        json=body,
        headers={"Authorization": f"Bearer {token}"},
    )
    return reply.status_code


@pytest.fixture
def app_token(client: Client) -> str:
    secret = client.api.settings.token
    assert secret is not None
    return secret.get_secret_value()


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[1]))
def test_a_sims_token_opens_its_own_routes(call: Call, client: Client, app_token: str) -> None:
    _, sim_id = client.new_sim()
    assert status(client, call, sim_id, sim_token(app_token, sim_id)) in (200, 204)
    assert status(client, call, sim_id, app_token) in (200, 204)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call[1]))
def test_a_sims_token_opens_no_other_sims_routes(call: Call, client: Client, app_token: str) -> None:
    _, mine = client.new_sim()
    _, other = client.new_sim()
    assert status(client, call, other, sim_token(app_token, mine)) == 401
    assert status(client, call, mine, sim_token(app_token + "x", mine)) == 401
    assert status(client, call, mine, sim_token(app_token, mine) + "x") == 401
    assert status(client, call, mine, "sim1.") == 401


@pytest.mark.parametrize("call", OTHERS, ids=lambda call: str(call[1]))
def test_a_sims_token_opens_nothing_else(call: Call, client: Client, app_token: str) -> None:
    run_id, sim_id = client.new_sim()
    assert status(client, call, sim_id, sim_token(app_token, sim_id), run_id) == 401


def test_a_sims_token_is_no_token_of_an_event_stream(client: Client, app_token: str) -> None:
    run_id, sim_id = client.new_sim()
    reply = client.get(f"/api/runs/{run_id}/events", params={"token": sim_token(app_token, sim_id)})
    assert reply.status_code == 401
