"""`cascade backup DIR`: may run beside a working app. A folder without a manifest is a backup that broke off."""

from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import asyncpg
from cascade_core.errors import NotFound
from cascade_core.jetstream.copying import stored_facts
from cascade_core.s3.bucket import S3Bucket
from cascade_core.upcasting import CURRENT_VERSION

from cascade_cli.backup.format import (
    FACTS,
    FORMAT,
    MANIFEST,
    ROLES,
    BackupProblem,
    BucketRole,
    BucketSummary,
    LineWriter,
    ListedObject,
    Manifest,
    listing_file,
    object_file,
)
from cascade_cli.backup.servers import Servers


def claimed(directory: Path) -> None:
    """Make the folder. Raises BackupProblem where something is in it already."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise BackupProblem(f"{directory} is not empty. Name a folder that does not exist yet")
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)


async def write_backup(servers: Servers, directory: Path, *, with_objects: bool) -> Manifest:
    """Write everything into `directory`, which is there and empty. Raises Unavailable, Corrupt.

    Facts go first: an object is stored before the fact that speaks of it, so every object that the facts speak of
    is there when the buckets are listed.
    """
    facts, last, digest = await _write_facts(servers, directory)
    manifest = Manifest(
        format=FORMAT,
        created_at=datetime.now(UTC).isoformat(),
        cascade=metadata.version("cascade-cli"),
        fact_schema=CURRENT_VERSION,
        migrations=await _migrations(servers),
        facts=facts,
        last_position=last,
        facts_sha256=digest,
        with_objects=with_objects,
        buckets={
            role: await _write_bucket(servers.buckets[role], role, directory, with_objects=with_objects)
            for role in ROLES
        },
    )
    draft = directory / f"{MANIFEST}.draft"
    draft.write_text(manifest.model_dump_json(indent=1) + "\n", "utf-8")
    draft.replace(directory / MANIFEST)
    return manifest


async def _write_facts(servers: Servers, directory: Path) -> tuple[int, int, str]:
    count = last = 0
    with (directory / FACTS).open("xb") as target:
        writer = LineWriter(target)
        async for page in stored_facts(servers.nats):
            for fact in page:
                writer.fact(fact)
            count, last = count + len(page), page[-1].position
        return count, last, writer.close()


async def _write_bucket(
    bucket: S3Bucket, role: BucketRole, directory: Path, *, with_objects: bool
) -> BucketSummary:
    objects = size = 0
    with (directory / listing_file(role)).open("xb") as target:
        writer = LineWriter(target)
        async for page in bucket.objects(""):
            for info in page:
                if with_objects and not await _copied(bucket, role, info.key, directory):
                    continue  # replaced or removed since it was listed
                writer.listed(ListedObject.of(info))
                objects, size = objects + 1, size + info.size
        digest = writer.close()
    return BucketSummary(name=bucket.name, objects=objects, bytes=size, sha256=digest)


async def _copied(bucket: S3Bucket, role: BucketRole, key: str, directory: Path) -> bool:
    path = object_file(directory, role, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("wb") as target:
            async for piece in bucket.stream(key):
                target.write(piece)
    except NotFound:
        path.unlink()
        return False
    return True


async def _migrations(servers: Servers) -> list[str]:
    try:
        rows = await servers.pool.fetch("SELECT name FROM schema_migration ORDER BY name")
    except asyncpg.UndefinedTableError:
        return []
    return [row["name"] for row in rows]
