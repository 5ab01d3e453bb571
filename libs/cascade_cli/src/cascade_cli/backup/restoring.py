"""`cascade restore DIR`: into an empty log, with no app running. The read models are made anew from the facts."""

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from cascade_api.read_models import database
from cascade_api.read_models.rebuild import rebuild
from cascade_core import facts as fact_codec
from cascade_core.errors import Corrupt
from cascade_core.jetstream.codec import VERSION_HEADER
from cascade_core.jetstream.copying import PAGE, StoredFact, store_facts
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.provision import inspect
from cascade_core.s3.bucket import S3Bucket
from cascade_core.upcasting import CURRENT_VERSION

from cascade_cli.backup.format import (
    FACTS,
    ROLES,
    BackupProblem,
    BucketRole,
    ListedObject,
    Manifest,
    check,
    facts_in,
    listed_in,
    listing_file,
    object_file,
    read_manifest,
)
from cascade_cli.backup.servers import Servers

MOST_NAMED = 20


@dataclass(slots=True)
class Restored:
    """What a restore did."""

    facts: int = 0
    repeats: int = 0
    """Facts that the log had twice, at a distance; one of each was stored."""
    objects: int = 0
    projected: int = 0
    missing: dict[BucketRole, list[str]] = field(default_factory=dict)
    """Keys that the buckets held when the backup was made and do not hold now; at most MOST_NAMED of each."""


def checked(directory: Path) -> Manifest:
    """The manifest, once every file was found as it was written and every fact can be read.

    Raises BackupProblem.
    """
    manifest = read_manifest(directory)
    if manifest.fact_schema > CURRENT_VERSION:
        raise BackupProblem(
            f"{directory} holds facts of schema version {manifest.fact_schema}; this Cascade knows versions up to "
            f"{CURRENT_VERSION}. Upgrade it first"
        )
    check(directory / FACTS, manifest.facts_sha256)
    for role in ROLES:
        check(directory / listing_file(role), manifest.buckets[role].sha256)
    count = 0
    for fact in facts_in(directory):
        try:
            fact_codec.decode(fact.body, version=int(fact.headers.get(VERSION_HEADER, "1")))
        except (Corrupt, ValueError) as error:
            raise BackupProblem(f"{directory / FACTS} holds at position {fact.position}: {error}") from error
        count += 1
    if count != manifest.facts:
        raise BackupProblem(
            f"{directory / FACTS} holds {count} facts, {manifest.facts} were written. Use another backup"
        )
    return manifest


async def restore(servers: Servers, directory: Path, manifest: Manifest) -> Restored:
    """Store what `directory` holds. Objects go first, since facts speak of them. Raises BackupProblem, Unavailable."""
    report = await inspect(servers.nats)
    if report.last_position:
        raise BackupProblem(
            f"the event log is not empty: it has held {report.last_position} facts. Restore into new servers, "
            "or into a CASCADE_DATA_DIR that does not exist yet"
        )
    done = Restored()
    for role in ROLES:
        await _restore_bucket(servers.buckets[role], role, directory, manifest, done)
    done.facts = await store_facts(servers.nats, _pages(directory))
    done.repeats = manifest.facts - done.facts
    await database.migrate(servers.pool)
    done.projected = await rebuild(servers.pool, JetStreamLog(servers.nats), lambda _done, _total: None)
    return done


async def _restore_bucket(
    bucket: S3Bucket, role: BucketRole, directory: Path, manifest: Manifest, done: Restored
) -> None:
    await bucket.ensure()
    missing: list[str] = []
    for entry in listed_in(directory, role):
        if manifest.with_objects:
            await bucket.put_stream(entry.key, _pieces(object_file(directory, role, entry.key)))
            done.objects += 1
        elif not await _is_there(bucket, entry) and len(missing) < MOST_NAMED:
            missing.append(entry.key)
    if missing:
        done.missing[role] = missing


async def _is_there(bucket: S3Bucket, entry: ListedObject) -> bool:
    found = await bucket.head(entry.key)
    return found is not None and found.size == entry.size


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as source:
        while piece := source.read(1 << 20):
            yield piece


async def _pages(directory: Path) -> AsyncIterator[list[StoredFact]]:
    facts = facts_in(directory)
    while page := list(itertools.islice(facts, PAGE)):
        yield page
