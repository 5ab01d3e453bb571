"""Output files over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cascade_api.gateway import Gateway
from cascade_api.routes import files
from cascade_api.testing.client import Client

PATTERN = r"^(?!\.\.?$)[A-Za-z0-9._-]{1,128}$"


def put(client: Client, sim_id: str, name: str, body: bytes) -> dict[str, Any]:
    reply = client.put(
        f"/api/sims/{sim_id}/files/{name}", content=body, headers={"Content-Type": "application/octet-stream"}
    )
    assert reply.status_code == 200, reply.text
    stored: dict[str, Any] = reply.json()
    return stored


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("kernel-stats.csv", "text/csv"),
        ("exit-status.txt", "text/plain"),
        ("accelsim.log", "text/plain"),
        ("opt125m.json", "application/json"),
        ("perf_counter.csv.gz", "application/gzip"),
        ("plot.png", "image/png"),
        ("page.html", "text/html"),
        ("run.tar.gz", "application/gzip"),
        ("run.tgz", "application/gzip"),
        ("stats.csv.bz2", "application/x-bzip2"),
        ("kernel-1.traceg.xz", "application/x-xz"),
        ("core", "application/octet-stream"),
        ("x" * 128, "application/octet-stream"),
        ("...", "application/octet-stream"),
        (".hidden", "application/octet-stream"),
    ],
)
def test_a_file_comes_back_as_it_was_sent(name: str, content_type: str, client: Client) -> None:
    _, sim_id = client.new_sim()
    body = bytes(range(256)) * 3
    stored = put(client, sim_id, name, body)
    assert stored == {
        "name": name,
        "size": 768,
        "content_type": content_type,
        "created_at": stored["created_at"],
    }
    assert client.body(f"/api/sims/{sim_id}/files") == [stored]
    with client.stream("GET", f"/api/sims/{sim_id}/files/{name}") as reply:
        assert b"".join(reply.iter_raw()) == body
    assert reply.status_code == 200
    assert reply.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert reply.headers["content-type"] == content_type
    assert reply.headers["content-length"] == "768"
    assert "content-encoding" not in reply.headers


def test_an_empty_file_is_a_file(client: Client) -> None:
    _, sim_id = client.new_sim()
    assert put(client, sim_id, "empty.txt", b"")["size"] == 0
    assert client.get(f"/api/sims/{sim_id}/files/empty.txt").content == b""


def test_a_file_put_again_is_replaced(client: Client) -> None:
    _, sim_id = client.new_sim()
    put(client, sim_id, "a.txt", b"one")
    second = put(client, sim_id, "a.txt", b"second")
    assert client.body(f"/api/sims/{sim_id}/files") == [second]
    assert client.get(f"/api/sims/{sim_id}/files/a.txt").content == b"second"


def test_a_file_is_replaced_by_a_gateway_whose_clock_is_behind(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sim_id = client.new_sim()
    put(client, sim_id, "a.txt", b"one")
    monkeypatch.setattr(Gateway, "now", lambda _: datetime.now(UTC) - timedelta(hours=1))
    second = put(client, sim_id, "a.txt", b"second")
    assert client.body(f"/api/sims/{sim_id}/files") == [second]
    assert client.get(f"/api/sims/{sim_id}/files/a.txt").content == b"second"


def test_files_are_listed_by_config_replica_and_name(client: Client) -> None:
    run = client.new_live_run(count=2)
    one, two = (sim["id"] for sim in run["sims"])
    assert client.body(f"/api/runs/{run['id']}/files") == []
    for sim_id, name in ((two, "b.txt"), (one, "b.txt"), (one, "a.txt"), (one, "B.txt"), (two, "Z")):
        put(client, sim_id, name, name.encode())
    listed = client.body(f"/api/runs/{run['id']}/files")
    assert [(file["sim_id"], file["replica"], file["name"]) for file in listed] == [
        (one, 0, "B.txt"),
        (one, 0, "a.txt"),
        (one, 0, "b.txt"),
        (two, 1, "Z"),
        (two, 1, "b.txt"),
    ]
    assert all(file["gpu_config"] == "SM86_RTX3070" for file in listed)
    assert client.body(f"/api/sims/{two}/files") == [
        {key: file[key] for key in ("name", "size", "content_type", "created_at")} for file in listed[3:]
    ]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("my%20file.txt", "my file.txt"),
        ("%C3%A9.txt", "é.txt"),
        ("a%0A", "a\n"),
        ("a%5Cb", "a\\b"),
        ("a%00", "a\x00"),
    ],
)
def test_a_name_that_is_refused_is_shown_with_the_rule(path: str, name: str, client: Client) -> None:
    _, sim_id = client.new_sim()
    reply = client.put(f"/api/sims/{sim_id}/files/{path}", content=b"x")
    assert (reply.status_code, reply.json()) == (422, {"detail": f"file name {name!r} must match {PATTERN}"})


def test_a_name_of_129_characters_is_refused(client: Client) -> None:
    _, sim_id = client.new_sim()
    assert client.put(f"/api/sims/{sim_id}/files/{'x' * 129}", content=b"x").status_code == 422


@pytest.mark.parametrize("path", ["%2e%2e", "%2e", "a%2Fb", "../../x"])
def test_a_name_that_climbs_reaches_nothing(path: str, client: Client) -> None:
    _, sim_id = client.new_sim()
    assert client.put(f"/api/sims/{sim_id}/files/{path}", content=b"x").status_code in (404, 405, 422)


def test_a_missing_file_is_named(client: Client) -> None:
    _, sim_id = client.new_sim()
    reply = client.get(f"/api/sims/{sim_id}/files/nope.txt")
    assert (reply.status_code, reply.json()) == (404, {"detail": f"sim {sim_id} has no file 'nope.txt'"})


@pytest.mark.parametrize(("method", "rest"), [("GET", "/files"), ("GET", "/files/a"), ("PUT", "/files/a")])
def test_files_of_a_missing_sim_are_not_found(method: str, rest: str, client: Client) -> None:
    reply = client.request(method, f"/api/sims/sim-000000000000{rest}")
    assert (reply.status_code, reply.json()) == (404, {"detail": "sim sim-000000000000 not found"})


def test_a_file_over_the_limit_is_read_to_its_end_and_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sim_id = client.new_sim()
    put(client, sim_id, "kept.bin", b"kept")
    size = files.MOST_FILE_BYTES + 1
    for body in (bytes(size), (bytes(1 << 20) for _ in range(65))):  # with a length, and chunked without one
        reply = client.put(f"/api/sims/{sim_id}/files/kept.bin", content=body)
        assert (reply.status_code, reply.json()) == (
            413,
            {"detail": "file is over the 64 MiB per-file limit"},
        )
    assert client.get(f"/api/sims/{sim_id}/files/kept.bin").content == b"kept"


@pytest.mark.timeout(300)  # it writes 320 MiB, and disks stall
def test_a_sims_files_have_a_limit_in_all(client: Client) -> None:
    _, sim_id = client.new_sim()
    quarter = bytes(files.MOST_FILE_BYTES)
    for number in range(4):
        put(client, sim_id, f"{number}.bin", quarter)
    reply = client.put(f"/api/sims/{sim_id}/files/more.txt", content=b"x")
    assert (reply.status_code, reply.json()) == (
        413,
        {"detail": "the sim's files would pass the 256 MiB per-sim limit"},
    )
    reply = client.put(f"/api/sims/{sim_id}/files/more.txt", content=quarter + b"x")
    assert reply.json() == {"detail": "file is over the 64 MiB per-file limit"}
    assert put(client, sim_id, "0.bin", quarter)["size"] == len(quarter)  # what it replaces does not count
    assert put(client, sim_id, "0.bin", b"")["size"] == 0
    assert put(client, sim_id, "more.txt", b"x")["size"] == 1
