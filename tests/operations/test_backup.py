"""A backup, brought back on empty servers, answers as before; so does a log that an older Cascade wrote."""

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from cascade_cli import app_stack, bundled
from cascade_cli.backup import format as backup_format
from cascade_cli.backup.restoring import checked
from cascade_cli.demo import healthy
from cascade_cli.embedded.nats import EmbeddedNats
from cascade_cli.embedded.process import free_ports
from cascade_cli.serve_settings import ServeSettings
from cascade_cli.testing import DemoApp
from cascade_cli.testing_serve import eventually
from cascade_core import subjects
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.copying import StoredFact, store_facts, stored_facts
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import provision
from cascade_core.settings import NatsSettings
from cascade_core.testing.builders import SIM, chunk, kernel
from pydantic import SecretStr

TOKEN = "backup-tests"
STILL_FOR_S = 3.0


def cascade(*arguments: str, data_dir: Path) -> subprocess.CompletedProcess[str]:
    """Run a command on the servers of a data directory; where it starts them itself, on a port that is free."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
    return subprocess.run(
        [sys.executable, "-m", "cascade_cli", *arguments],
        env=environment | {"CASCADE_DATA_DIR": str(data_dir), "CASCADE_S3_PORT": str(*free_ports(1))},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@asynccontextmanager
async def app_on(data_dir: Path) -> AsyncIterator[str]:
    """An app on what lies in `data_dir`; its URL."""
    port, s3_port = free_ports(2)
    settings = ServeSettings(
        token=SecretStr(TOKEN),
        data_dir=data_dir,
        accelsim_dir=bundled.CONFIGS,
        sim_cmd=shlex.join([sys.executable, "-c", "raise SystemExit(1)"]),
        host="127.0.0.1",
        port=port,
        s3_port=s3_port,
        samples=False,
        public_url=f"http://127.0.0.1:{port}",
    )
    with (data_dir.parent / "services.log").open("ab") as output:
        async with app_stack.running_app(settings, log_to=output.fileno()) as app:
            await healthy(app.url)
            yield app.url


def answers(url: str, token: str) -> dict[str, Any]:
    """Everything that the API tells of traces, runs and their sims."""
    told: dict[str, Any] = {}
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:

        def get(path: str) -> Any:
            reply = client.get(path)
            reply.raise_for_status()
            is_json = reply.headers["content-type"].startswith("application/json")
            told[path] = reply.json() if is_json else reply.content
            return told[path]

        get("/api/gpu-configs")
        for trace in get("/api/traces"):
            get(f"/api/traces/{trace['id']}")
        for run in get("/api/runs"):
            detail = get(f"/api/runs/{run['id']}")
            for view in ("kernels", "comparison", "step-timelines", "files"):
                get(f"/api/runs/{run['id']}/{view}")
            for sim in detail["sims"]:
                get(f"/api/sims/{sim['id']}/log")
                for file in get(f"/api/sims/{sim['id']}/files"):
                    get(f"/api/sims/{sim['id']}/files/{file['name']}")
    return told


async def settled(app: DemoApp) -> dict[str, Any]:
    """The answers of an app that other tests have used, too, once nothing of what they began goes on.

    A parser may read the end of a log after the end of its sim, and a sim may say something after it was cancelled.
    """
    told: list[dict[str, Any]] = [{}]

    async def still() -> bool:
        await asyncio.sleep(STILL_FOR_S)
        told.append(answers(app.url, app.token))
        return told[-1] == told[-2] and all(run["state"] != "active" for run in told[-1]["/api/runs"])

    await eventually(still, "nothing goes on in the app")
    return told[-1]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_backup_brought_back_on_empty_servers_answers_as_before(
    replay_app: DemoApp, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)  # noqa: ASYNC240 - Postgres may run as another user
    kept, fresh = tmp_path / "kept", tmp_path / "fresh" / "data"
    fresh.mkdir(parents=True)
    before = await settled(replay_app)
    assert f"/api/runs/{replay_app.run_id}/kernels" in before
    done = cascade("backup", str(kept), "--objects", "--json", data_dir=replay_app.data_dir)
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["facts"] > 50
    assert manifest["buckets"]["uploads"]["objects"] > 0
    assert answers(replay_app.url, replay_app.token) == before, "something ran on while the backup was made"

    again = cascade("restore", str(kept), data_dir=replay_app.data_dir)
    assert again.returncode == 1
    assert "Stop it first" in again.stderr

    restored = cascade("restore", str(kept), "--json", data_dir=fresh)
    assert restored.returncode == 0, restored.stderr
    report = json.loads(restored.stdout)
    assert (report["facts"] + report["repeats"], report["missing"]) == (manifest["facts"], {})
    async with app_on(fresh) as url:
        assert answers(url, TOKEN) == before
        rebuilt = cascade("rebuild", "--json", data_dir=fresh)
        assert rebuilt.returncode == 0, rebuilt.stderr
        assert answers(url, TOKEN) == before

    twice = cascade("restore", str(kept), data_dir=fresh)
    assert twice.returncode == 1
    assert "not empty" in twice.stderr


def test_a_folder_that_is_used_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    done = cascade("backup", str(tmp_path), data_dir=tmp_path / "data")
    assert (done.returncode, [one.name for one in tmp_path.iterdir()]) == (1, ["notes.txt"])
    assert "is not empty" in done.stderr


async def test_big_facts_and_repeats_travel(fresh_nats: EmbeddedNats) -> None:
    async with connected(NatsSettings(nats_url=fresh_nats.url), name="test") as client:
        await provision(client)
        log = JetStreamLog(client)
        await log.append(chunk(0, ["x" * 700_000]), event_id="log:big")
        await log.append_all([(kernel(i), f"kernel:{SIM}:{i}") for i in range(300)])
        before = await log.read([subjects.ALL])
        pages = [page async for page in stored_facts(client)]
        assert sum(len(page) for page in pages) == 301
        await client.jetstream().delete_stream(subjects.STREAM)
        await client.jetstream().delete_object_store(subjects.CLAIMS)
        await provision(client)

        async def told() -> AsyncIterator[list[StoredFact]]:
            for page in pages:
                yield page

        assert await store_facts(client, told()) == 301
        after = await log.read([subjects.ALL])
        assert [(one.fact, one.event_id) for one in after] == [(one.fact, one.event_id) for one in before]
        assert await store_facts(client, told()) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_log_that_version_1_wrote_is_served_today(tmp_path: Path) -> None:
    """The stored facts of `golden/v1.jsonl`, as a backup of that time would hold them."""
    tmp_path.chmod(0o755)  # noqa: ASYNC240
    kept, fresh = tmp_path / "kept", tmp_path / "fresh" / "data"
    fresh.mkdir(parents=True)
    golden = Path(__file__).parents[2] / "libs" / "cascade_core" / "tests" / "golden" / "v1.jsonl"
    bodies = [line for line in golden.read_text("utf-8").split("\n") if line]
    write_backup_of(kept, bodies)
    restored = cascade("restore", str(kept), "--json", data_dir=fresh)
    assert restored.returncode == 0, restored.stderr
    assert json.loads(restored.stdout)["facts"] == len(bodies)
    async with app_on(fresh) as url:
        told = runs_of(url)
    asked = [json.loads(body) for body in bodies if json.loads(body)["type"] == "run.requested"]
    assert {run["id"] for run in told} == {fact["run_id"] for fact in asked}


def runs_of(url: str) -> list[dict[str, Any]]:
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
        listed: list[dict[str, Any]] = client.get("/api/runs").raise_for_status().json()
        for run in listed:
            client.get(f"/api/runs/{run['id']}").raise_for_status()
            client.get(f"/api/runs/{run['id']}/kernels").raise_for_status()
        return listed


def write_backup_of(directory: Path, bodies: list[str]) -> None:
    from cascade_core import facts

    directory.mkdir()
    with (directory / backup_format.FACTS).open("wb") as target:
        writer = backup_format.LineWriter(target)
        for position, body in enumerate(bodies, 1):
            subject = subjects.subject_of(facts.decode(body.encode()))
            headers = {"Nats-Msg-Id": f"v1-{position}", "Cascade-Version": "1"}
            writer.fact(StoredFact(position, subject, headers, body.encode()))
        digest = writer.close()
    buckets: dict[backup_format.BucketRole, backup_format.BucketSummary] = {}
    for role in backup_format.ROLES:
        with (directory / backup_format.listing_file(role)).open("wb") as target:
            listing = backup_format.LineWriter(target).close()
        buckets[role] = backup_format.BucketSummary(name=role, objects=0, bytes=0, sha256=listing)
    manifest = backup_format.Manifest(
        format=1,
        created_at="2026-11-07T12:00:00Z",
        cascade="0.1.0",
        fact_schema=1,
        migrations=[],
        facts=len(bodies),
        last_position=len(bodies),
        facts_sha256=digest,
        with_objects=False,
        buckets=buckets,
    )
    (directory / backup_format.MANIFEST).write_text(manifest.model_dump_json(), "utf-8")


def test_a_backup_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    with pytest.raises(backup_format.BackupProblem, match="it is no backup"):
        checked(tmp_path)
    kept = tmp_path / "kept"
    write_backup_of(
        kept, ['{"type":"trace.upload-completed","occurred_at":"2026-11-07T12:00:00Z","trace_id":"a"}']
    )
    checked(kept)
    facts = kept / backup_format.FACTS
    facts.write_bytes(facts.read_bytes()[:-1])
    with pytest.raises(backup_format.BackupProblem, match="damaged"):
        checked(kept)
    manifest = kept / backup_format.MANIFEST
    manifest.write_text(manifest.read_text("utf-8").replace('"fact_schema":1', '"fact_schema":99'), "utf-8")
    with pytest.raises(backup_format.BackupProblem, match="Upgrade it first"):
        checked(kept)
