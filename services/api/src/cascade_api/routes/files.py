"""Output files: stored whole in the bucket, replaced atomically, never in memory."""

import mimetypes
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress

from cascade_core.errors import NotFound, Refused, Unavailable
from cascade_core.sims.facts import SimOutputStored
from cascade_core.sims.state import Sim
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from cascade_api.auth import AuthedRoute, SimulatorRoute
from cascade_api.gateway import Gate, Gateway
from cascade_api.read_models import queries
from cascade_api.read_models.batch import FileRow
from cascade_api.read_models.database import Database
from cascade_api.reporting import refuse_fenced
from cascade_api.routes.simulator import Attempt
from cascade_api.streams import begun
from cascade_api.wire.problems import documented
from cascade_api.wire.results import RunFile, SimFile

router = APIRouter(route_class=AuthedRoute, tags=["files"])

FILE_NAME_PATTERN = r"^(?!\.\.?$)[A-Za-z0-9._-]{1,128}$"
MOST_FILE_BYTES = 64 * 1024 * 1024
MOST_SIM_BYTES = 256 * 1024 * 1024
MOST_DRAINED_BYTES = 1024 * 1024 * 1024
"""What is read of a body that is refused; past it the connection is cut."""
_FILE_NAME = re.compile(FILE_NAME_PATTERN.replace("$)", r"\Z)").replace("}$", r"}\Z"))
_TYPES = {
    ".csv": "text/csv",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".json": "application/json",
    ".gz": "application/gzip",
}
_COMPRESSED_TYPES = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}
"""By the encoding that `mimetypes` finds: the type it gives beside that is the content's, not the file's."""
_OTHER = "application/octet-stream"


def content_type_of(name: str) -> str:
    """The content type that a file's name implies. spec: types, SimFile"""
    for suffix, content_type in _TYPES.items():
        if name.endswith(suffix):
            return content_type
    guessed, encoding = mimetypes.guess_type(name)
    if encoding is not None:
        return _COMPRESSED_TYPES.get(encoding, _OTHER)
    return guessed or _OTHER


async def store_file(
    sim_id: str, name: str, request: Request, gateway: Gate, attempt: str | None = Attempt
) -> SimFile:
    """Store one of the simulator's output files. Putting the same name again replaces the file."""
    body = request.stream()
    try:
        if _FILE_NAME.match(name) is None:
            raise Refused(f"file name {name!r} must match {FILE_NAME_PATTERN}")
        sim = await gateway.sims.known(sim_id)
        refuse_fenced(sim, attempt)
        return await _stored(gateway, sim, name, body, _announced_size(request))
    except Refused:
        # spec: errors, 413. The whole body is read, so that the client gets the answer and no reset connection.
        with suppress(ClientDisconnect):
            await _drained(body)
        raise
    except ClientDisconnect as error:
        raise Refused(f"the upload of {name} broke off; what was stored before stays", status=400) from error


async def _stored(
    gateway: Gateway, sim: Sim, name: str, body: AsyncIterator[bytes], announced: int
) -> SimFile:
    sim_id = sim.sim_id
    database = await gateway.fresh()
    room = await _room(database, sim_id, name)
    if announced > room:
        raise _too_large(announced, room)
    key = f"files/{sim_id}/{name}/{uuid.uuid4().hex}"
    stored = await gateway.internal_bucket.put_stream(
        key, _bounded(body, room), content_type=content_type_of(name)
    )
    fact = SimOutputStored(
        run_id=sim.run_id,
        sim_id=sim_id,
        occurred_at=gateway.now(),
        name=name,
        size=stored.size,
        content_type=content_type_of(name),
        object_key=key,
    )
    # Looked up again: uploads of the same sim may have ended meanwhile. What the views hold now lies before this fact
    # in the log, so this one or a later one takes its place.
    replaced = [file.object_key for file in await queries.files(database, [sim_id]) if file.name == name]
    if stored.size > (room := await _room(database, sim_id, name)):
        await _dropped(gateway, [key])
        raise _too_large(stored.size, room)
    await gateway.append_and_project(fact)
    await _dropped(gateway, replaced)
    return SimFile(name=name, size=fact.size, content_type=fact.content_type, created_at=fact.occurred_at)


def _announced_size(request: Request) -> int:
    length = request.headers.get("content-length", "")
    return int(length) if length.isdigit() else 0


async def _room(database: Database, sim_id: str, name: str) -> int:
    """How large the file `name` may be beside the sim's others. [bytes]"""
    others = sum(file.size for file in await queries.files(database, [sim_id]) if file.name != name)
    return min(MOST_SIM_BYTES - others, MOST_FILE_BYTES)


def _too_large(size: int, room: int) -> Refused:
    # A file that no sim may have is told so, however little room is left.
    if size > MOST_FILE_BYTES or room >= MOST_FILE_BYTES:
        return Refused("file is over the 64 MiB per-file limit", status=413)
    return Refused("the sim's files would pass the 256 MiB per-sim limit", status=413)


async def _dropped(gateway: Gateway, keys: list[str]) -> None:
    with suppress(Unavailable):  # an object that nobody refers to costs room, not truth
        await gateway.internal_bucket.delete(keys)


async def _drained(body: AsyncIterator[bytes]) -> None:
    left = MOST_DRAINED_BYTES
    async for piece in body:
        left -= len(piece)
        if left < 0:
            return


router.add_api_route(
    "/api/sims/{sim_id}/files/{name}",
    store_file,
    methods=["PUT"],
    route_class_override=SimulatorRoute,
    openapi_extra={"requestBody": {"required": True, "content": {"application/octet-stream": {}}}},
    responses=documented(404, 409, 413, 422),
)


async def _bounded(body: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in body:
        size += len(piece)
        if size > most:
            raise _too_large(size, most)
        yield piece


@router.get("/api/sims/{sim_id}/files", responses=documented(404))
async def list_sim_files(sim_id: str, gateway: Gate) -> list[SimFile]:
    """The output files one sim uploaded, by name."""
    database = await gateway.fresh()
    await queries.sim(database, sim_id)
    return [
        SimFile(name=file.name, size=file.size, content_type=file.content_type, created_at=file.created_at)
        for file in await queries.files(database, [sim_id])
    ]


@router.get("/api/runs/{run_id}/files", responses=documented(404))
async def list_run_files(run_id: str, gateway: Gate) -> list[RunFile]:
    """Every output file the run's sims uploaded, by config, replica, then name."""
    database = await gateway.fresh()
    await queries.run(database, run_id)
    sims = {sim.sim_id: sim for sim in await queries.sims_of_run(database, run_id)}
    return [
        RunFile(
            name=file.name,
            size=file.size,
            content_type=file.content_type,
            created_at=file.created_at,
            sim_id=file.sim_id,
            gpu_config=sims[file.sim_id].gpu_config,
            replica=sims[file.sim_id].replica,
        )
        for file in await queries.files(database, list(sims))
    ]


@router.get(
    "/api/sims/{sim_id}/files/{name}",
    response_class=StreamingResponse,
    responses={200: {"description": "The file's bytes.", "content": {"*/*": {}}}, **documented(404)},
)
async def get_file(sim_id: str, name: str, gateway: Gate) -> StreamingResponse:
    """One output file, as the sim uploaded it. A `.gz` file stays compressed."""
    database = await gateway.fresh()
    await queries.sim(database, sim_id)
    file = await _named(database, sim_id, name)
    try:
        body = await begun(gateway.internal_bucket.stream(file.object_key))
    except NotFound:
        # It was replaced between the look and the fetch; its successor is in the views before it goes.
        file = await _named(database, sim_id, name)
        body = await begun(gateway.internal_bucket.stream(file.object_key))
    return StreamingResponse(
        body,
        headers={
            # As it is stored: the framework would add a charset that nobody knows.
            "Content-Type": file.content_type,
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Length": str(file.size),
        },
    )


async def _named(database: Database, sim_id: str, name: str) -> FileRow:
    files = await queries.files(database, [sim_id])
    file = next((file for file in files if file.name == name), None)
    if file is None:
        raise NotFound(f"sim {sim_id} has no file {name!r}")
    return file
