"""The token comes before everything else of a request."""

import httpx
import pytest
from cascade_api.settings import ApiSettings
from cascade_api.testing.client import Client, eventually
from cascade_api.testing.running import RunningApi
from cascade_api.testing.servers import TOKEN, Servers
from pydantic import ValidationError

RUN, SIM = "run-000000000000", "sim-000000000000"
ROUTES = [
    ("GET", "/api/traces"),
    ("GET", "/api/traces/demo"),
    ("GET", "/api/gpu-configs"),
    ("POST", "/api/runs"),
    ("GET", "/api/runs"),
    ("GET", f"/api/runs/{RUN}"),
    ("POST", f"/api/runs/{RUN}/cancel"),
    ("GET", f"/api/runs/{RUN}/comparison"),
    ("GET", f"/api/runs/{RUN}/kernels"),
    ("GET", f"/api/runs/{RUN}/step-timelines"),
    ("GET", f"/api/runs/{RUN}/results"),
    ("GET", f"/api/sims/{SIM}/results"),
    ("GET", f"/api/sims/{SIM}/log"),
    ("GET", f"/api/runs/{RUN}/files"),
    ("GET", f"/api/runs/{RUN}/perfetto"),
    ("GET", f"/api/sims/{SIM}/files"),
    ("GET", f"/api/sims/{SIM}/files/a.txt"),
    ("GET", f"/api/runs/{RUN}/events"),
    ("POST", f"/api/sims/{SIM}/heartbeat"),
    ("POST", f"/api/sims/{SIM}/logs"),
    ("POST", f"/api/sims/{SIM}/step-timeline"),
    ("PUT", f"/api/sims/{SIM}/files/a.txt"),
]
WRONG = [
    {},
    {"Authorization": f"bearer {TOKEN}"},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": TOKEN},
    {"Authorization": "Bearer"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer  {TOKEN}"},
    {"X-Token": TOKEN},
]


def is_unauthorized(reply: httpx.Response) -> bool:
    return (reply.status_code, reply.json(), reply.headers["www-authenticate"]) == (
        401,
        {"detail": "missing or wrong token"},
        "Bearer",
    )


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_refuses_a_missing_token(method: str, path: str, stranger: Client) -> None:
    assert is_unauthorized(stranger.request(method, path))


@pytest.mark.parametrize("headers", WRONG)
def test_a_wrong_token_is_refused_however_it_is_sent(headers: dict[str, str], stranger: Client) -> None:
    assert is_unauthorized(stranger.get("/api/runs", headers=headers))


def test_a_token_of_other_bytes_is_refused(stranger: Client) -> None:
    assert is_unauthorized(stranger.get("/api/runs", headers={b"Authorization": b"Bearer \xff\xfe\x80"}))


@pytest.mark.parametrize(("method", "path"), [route for route in ROUTES if route[0] != "GET"])
def test_the_token_is_looked_at_before_the_body(method: str, path: str, stranger: Client) -> None:
    assert is_unauthorized(stranger.request(method, path, content=b"\xff not json {"))


def test_only_the_event_stream_takes_the_token_as_a_parameter(stranger: Client) -> None:
    run_id = stranger.new_trace()  # facts need no token
    assert is_unauthorized(stranger.get("/api/runs", params={"token": TOKEN}))
    assert is_unauthorized(stranger.get(f"/api/runs/{run_id}/events", params={"token": "wrong"}))
    reply = stranger.get(f"/api/runs/{RUN}/events", params={"token": TOKEN})
    assert (reply.status_code, reply.json()) == (404, {"detail": f"run {RUN} not found"})


def test_a_token_parameter_is_checked_instead_of_the_header(client: Client) -> None:
    assert is_unauthorized(client.get(f"/api/runs/{RUN}/events", params={"token": "wrong"}))
    assert is_unauthorized(client.get(f"/api/runs/{RUN}/events?token="))


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/api/nope", "/api/runs/x/nope", "/api/sims", "/api/", "/api/x?token=1"])
def test_an_unknown_path_is_not_found_without_a_token_check(method: str, path: str, stranger: Client) -> None:
    reply = stranger.request(method, path)
    assert reply.status_code == 404
    assert "www-authenticate" not in reply.headers
    if method != "HEAD":
        assert reply.json() == {"detail": "Not Found"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/api/runs", {"GET", "POST"}),
        ("PUT", "/api/traces", {"GET"}),
        ("GET", f"/api/sims/{SIM}/heartbeat", {"POST"}),
        ("GET", f"/api/sims/{SIM}/logs", {"POST"}),
        ("GET", f"/api/runs/{RUN}/cancel", {"POST"}),
        ("DELETE", f"/api/sims/{SIM}/files/a.txt", {"GET", "PUT"}),
        ("POST", "/api/health", {"GET"}),
    ],
)
def test_a_wrong_method_is_named_with_the_right_ones(
    method: str, path: str, allowed: set[str], client: Client
) -> None:
    reply = client.request(method, path)
    assert (reply.status_code, reply.json()) == (405, {"detail": "Method Not Allowed"})
    assert set(reply.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_wrong_method_of_openais_routes_is_told_in_openais_shape(
    method: str, path: str, client: Client
) -> None:
    reply = client.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    if method != "HEAD":
        assert reply.json()["error"]["message"] == f"{path} takes POST, not {method}"


def test_an_empty_body_of_openais_routes_is_called_so(client: Client) -> None:
    reply = client.post("/v1/completions", content=b"")
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "the body is empty; send JSON with at least a model"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nope", "/v1/models/a/b"])
def test_nothing_under_v1_is_the_dashboard(method: str, path: str, client: Client, stranger: Client) -> None:
    assert client.request(method, path).status_code in (404, 405)
    assert stranger.request(method, path).status_code == 401
    for caller in (client, stranger):
        reply = caller.request(method, path)
        assert reply.headers["content-type"] == "application/json"
        if method != "HEAD":
            assert set(reply.json()) == {"error"}


def test_health_needs_no_token_and_says_where_uploads_go(stranger: Client) -> None:
    assert stranger.body("/api/health") == {
        "ok": True,
        "auth": True,
        "workspace": "acme-lab",
        "s3_endpoint": stranger.api.settings.s3_endpoint,
    }


def test_readiness_looks_behind_the_gateway(stranger: Client) -> None:
    def ready() -> httpx.Response | None:
        reply = stranger.get("/api/ready")
        return reply if reply.status_code == 200 else None  # a server may stall for longer than a probe waits

    assert eventually(ready, what="readiness").json() == {
        "ok": True,
        "nats": "ok",
        "postgres": "ok",
        "s3": "ok",
        "projection": "ok",
    }


def test_without_auth_every_route_is_open(own_servers: Servers) -> None:
    settings = own_servers.settings(
        token=None, no_auth=True, workspace=None, s3_public_url="https://s3.example"
    )
    with RunningApi(settings) as api, Client(api) as client:
        assert client.body("/api/health") == {
            "ok": True,
            "auth": False,
            "workspace": None,
            "s3_endpoint": "https://s3.example",
        }
        assert client.body("/api/runs") == []
        assert client.get("/api/runs", headers={"Authorization": "Bearer anything"}).status_code == 200
        reply = client.get(f"/api/runs/{RUN}/events", params={"token": "anything"})
        assert reply.json() == {"detail": f"run {RUN} not found"}


def test_a_token_beyond_ascii_is_accepted_in_header_and_parameter(own_servers: Servers) -> None:
    token = "schlüssel"
    with RunningApi(own_servers.settings(token=token)) as api, Client(api, token=False) as client:
        for encoding in ("utf-8", "latin-1"):  # as curl sends it, and as Python's urllib and browsers do
            header = {b"Authorization": b"Bearer " + token.encode(encoding)}
            assert client.get("/api/runs", headers=header).status_code == 200
        assert is_unauthorized(client.get("/api/runs", headers={"Authorization": "Bearer schlssel"}))
        assert client.get(f"/api/runs/{RUN}/events", params={"token": token}).status_code == 404


def test_a_gateway_without_a_token_does_not_start(servers: Servers) -> None:
    values = servers.settings().model_dump(exclude={"token"})
    with pytest.raises(ValidationError, match="CASCADE_TOKEN is not set"):
        ApiSettings(**values, _env_file=None)
