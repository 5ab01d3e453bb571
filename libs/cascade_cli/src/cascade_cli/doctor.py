"""`cascade doctor`: which servers are reachable, in which version and state, and what to do where one is not."""

import asyncio
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import asyncpg
import httpx
from cascade_accelsim.configs_io import read_configs
from cascade_api.read_models.database import migrations
from cascade_core.errors import CascadeError
from cascade_core.jetstream.connection import connected
from cascade_core.jetstream.provision import inspect
from cascade_core.s3 import bucket as s3
from cascade_core.settings import BucketSettings, NatsSettings
from rich.table import Table

from cascade_cli import bundled, running, web_commands
from cascade_cli.output import console, print_json
from cascade_cli.serve_settings import ACCELSIM_BINARY, DATABASE_PROBLEMS, ServeSettings

TIMEOUT_S = 5.0
LITTLE_DISK_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `ok` None: neither good nor bad, just so."""

    what: str
    ok: bool | None
    found: str
    next_step: str = ""


def run_doctor(settings: ServeSettings, *, as_json: bool) -> int:
    """Print the report; 0 if nothing is wrong."""
    findings = asyncio.run(_findings(settings))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        table = Table(title="cascade doctor", show_lines=False)
        for heading in ("", "what", "found", "next step"):
            table.add_column(heading, overflow="fold")
        for finding in findings:
            mark = {True: "[green]ok[/]", False: "[red]no[/]", None: "·"}[finding.ok]
            table.add_row(mark, finding.what, finding.found, finding.next_step)
        console.print(table)
    return 1 if any(finding.ok is False for finding in findings) else 0


async def _findings(settings: ServeSettings) -> list[Finding]:
    urls = running.read(settings.data_dir)
    nats_url = settings.nats_url or (urls.nats_url if urls else None)
    database_url = (
        settings.database_url.get_secret_value()
        if settings.database_url
        else (urls.database_url if urls else None)
    )
    findings = [_app(urls)]
    findings += await asyncio.gather(_nats(nats_url), _postgres(database_url), _s3(settings, urls))
    if urls is not None:
        findings.append(await _ready(urls))
    findings += [_configs(settings), _simulator(settings), _disk(settings.data_dir), _dashboard()]
    return findings


def _app(urls: running.RunningUrls | None) -> Finding:
    if urls is None:
        return Finding("app", None, "not running on this data directory", "cascade serve")
    return Finding("app", True, f"running, pid {urls.pid}, {urls.url}")


def _embedded(what: str, variable: str) -> Finding:
    return Finding(
        what,
        None,
        "embedded, starts with the app",
        f"cascade serve, or set {variable} to use a server of your own",
    )


async def _nats(url: str | None) -> Finding:
    if url is None:
        return _embedded("NATS", "CASCADE_NATS_URL")
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            connected(NatsSettings(nats_url=url), name="cascade-doctor") as client,
        ):
            version = client.connected_server_version
            report = await inspect(client)
    except (CascadeError, TimeoutError) as error:
        return Finding(
            "NATS", False, str(error) or "no answer", "start nats-server -js, or check CASCADE_NATS_URL"
        )
    if not report.exists:
        return Finding("NATS", True, f"{version}, no stream yet", "the first service makes it")
    found = (
        f"{version}, {report.messages} facts, {report.bytes / 1e6:.1f} MB, position {report.last_position}"
    )
    if report.differences:
        return Finding(
            "NATS", False, f"{found}; " + "; ".join(report.differences), "nats stream edit CASCADE"
        )
    return Finding("NATS", True, found)


async def _postgres(url: str | None) -> Finding:
    if url is None:
        return _embedded("Postgres", "CASCADE_DATABASE_URL")
    try:
        connection = await asyncpg.connect(url, timeout=TIMEOUT_S)
    except DATABASE_PROBLEMS as error:
        return Finding(
            "Postgres",
            False,
            f"{type(error).__name__}: {error}",
            "start Postgres, or check CASCADE_DATABASE_URL",
        )
    try:
        version = (await connection.fetchval("SHOW server_version")).split()[0]
        if await connection.fetchval("SELECT to_regclass('schema_migration')") is None:
            return Finding("Postgres", True, f"{version}, no schema yet", "the api makes it when it starts")
        done = {row["name"] for row in await connection.fetch("SELECT name FROM schema_migration")}
        position = await connection.fetchval(
            "SELECT position FROM projection_checkpoint WHERE projection = 'views'"
        )
    except DATABASE_PROBLEMS as error:
        return Finding("Postgres", False, f"{type(error).__name__}: {error}", "cascade rebuild")
    finally:
        await connection.close()
    known = {name for name, _ in migrations()}
    found = f"{version}, schema {max(done, default='none')}, views at position {position}"
    if foreign := done - known:
        return Finding("Postgres", False, f"{found}; unknown {sorted(foreign)}", "upgrade this Cascade")
    if missing := known - done:
        return Finding(
            "Postgres", None, f"{found}; not applied yet {sorted(missing)}", "the api applies it at its start"
        )
    return Finding("Postgres", True, found)


async def _s3(settings: ServeSettings, urls: running.RunningUrls | None) -> Finding:
    endpoint = settings.s3_endpoint or (urls.s3_endpoint if urls else None)
    if endpoint is None:
        return _embedded("S3", "CASCADE_S3_ENDPOINT")
    secret = settings.s3_secret_key.get_secret_value() if settings.s3_secret_key else None
    bucket_settings = BucketSettings.model_validate(
        {
            "s3_endpoint": endpoint,
            "s3_bucket": settings.s3_bucket,
            "s3_access_key": settings.s3_access_key or (urls.s3_access_key if urls else None),
            "s3_secret_key": secret or (urls.s3_secret_key if urls else None),
        }
    )
    try:
        async with asyncio.timeout(TIMEOUT_S), s3.opened(bucket_settings) as bucket:
            traces = await bucket.directories(f"{settings.s3_prefix}/")
    except (CascadeError, TimeoutError) as error:
        return Finding(
            "S3", False, str(error) or "no answer", "check CASCADE_S3_ENDPOINT, the bucket and the keys"
        )
    return Finding("S3", True, f"{endpoint}, bucket {settings.s3_bucket}, {len(traces)} trace directories")


async def _ready(urls: running.RunningUrls) -> Finding:
    try:
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            reply = await client.get(f"{urls.url}/api/ready")
            states = reply.json()
    except (httpx.HTTPError, ValueError) as error:
        return Finding(
            "readiness", False, f"{type(error).__name__}: {error}", "read the output of cascade serve"
        )
    bad = {name: state for name, state in states.items() if name != "ok" and state != "ok"}
    return Finding("readiness", reply.status_code == 200, "all parts answer" if not bad else str(bad))


def _configs(settings: ServeSettings) -> Finding:
    directory = settings.resolved_accelsim_dir()
    registry = read_configs(directory)
    found = f"{len(registry.configs)} in {directory}"
    if registry.skipped:
        found += f"; skipped {', '.join(f'{item.name} ({item.reason})' for item in registry.skipped)}"
    if not registry.configs:
        return Finding("GPU configs", False, found, "set CASCADE_ACCELSIM_DIR to an Accel-Sim checkout")
    return Finding("GPU configs", True, found)


def _simulator(settings: ServeSettings) -> Finding:
    command = settings.resolved_sim_cmd()
    binary = settings.resolved_accelsim_dir() / ACCELSIM_BINARY
    if settings.sim_cmd is None and not binary.is_file():
        return Finding(
            "simulator",
            None,
            f"{command} (no Accel-Sim at {binary})",
            "numbers are estimates; set CASCADE_ACCELSIM_DIR",
        )
    return Finding("simulator", True, command)


def _disk(data_dir: Path) -> Finding:
    place = data_dir.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    found = f"{free / 1e9:.1f} GB free at {data_dir.absolute()}"
    if free < LITTLE_DISK_BYTES:
        return Finding("disk", False, found, "free some, or set CASCADE_DATA_DIR")
    return Finding("disk", True, found)


def _dashboard() -> Finding:
    if web_commands.built_digest() is None:
        return Finding("dashboard", None, "not built", "cascade web build")
    return Finding("dashboard", True, f"built at {bundled.WEB_BUILD}, Python {sys.version.split()[0]}")
