"""The two commands, with their reports."""

import asyncio
from pathlib import Path

import typer
from cascade_core import telemetry
from cascade_core.errors import CascadeError
from cascade_core.settings import TelemetrySettings
from pydantic import JsonValue

from cascade_cli.backup.format import BackupProblem, Manifest
from cascade_cli.backup.restoring import Restored, checked
from cascade_cli.backup.restoring import restore as restore_into
from cascade_cli.backup.servers import opened
from cascade_cli.backup.writing import claimed, write_backup
from cascade_cli.embedded.errors import EmbeddedServerError
from cascade_cli.output import console, fail, print_json
from cascade_cli.serve_settings import DATABASE_PROBLEMS, ServeSettings, loaded_by_operator

_PROBLEMS = (BackupProblem, CascadeError, EmbeddedServerError, *DATABASE_PROBLEMS)


def backup(directory: Path, *, objects: bool, as_json: bool) -> int:
    """Write a backup; the exit code."""
    settings = _settings()

    async def run() -> Manifest:
        async with opened(settings, while_running=True) as servers:
            return await write_backup(servers, directory, with_objects=objects)

    try:
        claimed(directory)
        manifest = asyncio.run(run())
    except _PROBLEMS as error:
        fail(str(error))
    if as_json:
        print_json(manifest.model_dump(mode="json"))
    else:
        kept = "with their bytes" if objects else "listed only; keep the buckets, or use --objects"
        console.print(f"{manifest.facts:,} facts and {_objects(manifest):,} objects ({kept}) in {directory}")
    return 0


def restore(directory: Path, *, as_json: bool) -> int:
    """Restore a backup; the exit code: 1 where objects are missing."""
    settings = _settings()

    async def run() -> Restored:
        manifest = checked(directory)
        async with opened(settings, while_running=False) as servers:
            return await restore_into(servers, directory, manifest)

    try:
        done = asyncio.run(run())
    except _PROBLEMS as error:
        fail(str(error))
    if as_json:
        missing: dict[str, JsonValue] = {role: [*keys] for role, keys in done.missing.items()}
        print_json(
            {
                "facts": done.facts,
                "repeats": done.repeats,
                "objects": done.objects,
                "projected": done.projected,
                "missing": missing,
            }
        )
    else:
        console.print(f"{done.facts:,} facts and {done.objects:,} objects restored")
    for role, keys in done.missing.items():
        typer.echo(
            f"cascade: the {role} bucket lacks objects that it held, such as {', '.join(keys[:3])}. "
            "Next: restore the bucket, or back up with --objects",
            err=True,
        )
    return 1 if done.missing else 0


def _settings() -> ServeSettings:
    settings = loaded_by_operator()
    telemetry.configure(TelemetrySettings(log_level="WARNING"), service="backup")
    return settings


def _objects(manifest: Manifest) -> int:
    return sum(bucket.objects for bucket in manifest.buckets.values())
