"""Reading the small files of a trace: metadata, real timing, statistics, the processed list."""

from collections.abc import Mapping

import structlog
from cascade_accelsim.traces.kernels_list import parse_kernels_list
from cascade_accelsim.traces.launches import merge_launches, parse_launches
from cascade_accelsim.traces.names import is_stats
from cascade_accelsim.traces.real_timing import parse_real_timing
from cascade_core.errors import NotFound
from cascade_core.ports import Bucket
from cascade_core.traces.facts import KernelLaunch, RealKernel
from pydantic import JsonValue

from cascade_ingest import foreign_json
from cascade_ingest.tree import METADATA, PROCESSED_LIST, REAL_TIMING, TRACES, File, Tree, is_visible

_logger = structlog.get_logger(__name__)

MOST_METADATA_BYTES = 64 * 1024 * 1024
"""A `files` list of 100,000 entries has about 15 MiB."""
MOST_TIMING_BYTES = 256 * 1024 * 1024


class Contents:
    """The parsed small files of one trace, read again only when their ETag changes."""

    def __init__(self, bucket: Bucket, root: str) -> None:
        self._bucket = bucket
        self._root = root
        self._metadata: tuple[str | None, dict[str, JsonValue] | None] = (None, None)
        self._timing: tuple[tuple[str, str] | None, list[RealKernel] | None] = (None, None)

    async def metadata(self, tree: Tree) -> dict[str, JsonValue] | None:
        """`metadata.json`, or None while it is missing or not a whole JSON object."""
        etag = tree.etag(METADATA)
        if etag is None:
            return None
        if self._metadata[0] != etag:
            body = await self._whole(METADATA, etag, MOST_METADATA_BYTES)
            if body is None:
                return None
            parsed = self._json(METADATA, body)
            self._metadata = (etag, parsed if isinstance(parsed, dict) else None)
        return self._metadata[1]

    async def real_timing(
        self, tree: Tree, metadata: Mapping[str, JsonValue] | None
    ) -> list[RealKernel] | None:
        """The measured kernels by kernel_id, or None where the trace has no valid real timing."""
        named = (metadata or {}).get("real_timing")
        path = named if isinstance(named, str) and named in tree.files else REAL_TIMING
        etag = tree.etag(path)
        if etag is None:
            return None
        if self._timing[0] != (path, etag):
            body = await self._whole(path, etag, MOST_TIMING_BYTES)
            if body is None:
                return self._timing[1]
            timing = parse_real_timing(self._json(path, body))
            if timing.problem is not None:
                _logger.warning("real timing is not used", file=path, problem=timing.problem)
            rows = [
                RealKernel(
                    kernel_id=row.kernel_id,
                    kernel_name=row.kernel_name,
                    duration_ns=row.duration_ns,
                    grid=row.grid,
                    block=row.block,
                )
                for row in timing.rows
            ]
            self._timing = ((path, etag), rows if timing.has_real_timing else None)
        return self._timing[1]

    async def with_named_timing(self, top: Tree, metadata: Mapping[str, JsonValue] | None) -> Tree:
        """`top`, a look at the top folder alone, with the timing file that the metadata names in a folder below."""
        named = (metadata or {}).get("real_timing")
        if not (isinstance(named, str) and "/" in named and is_visible(named)):
            return top
        found = await self._bucket.head(self._root + named)
        return top if found is None else Tree({**top.files, named: File(found.size, found.etag)})

    async def kernels(self, tree: Tree) -> list[KernelLaunch]:
        """The rows of every statistics file, by kernel_id. Raises NotFound where one has gone meanwhile."""
        tables = []
        for name in sorted(tree.trace_names()):
            if is_stats(name):
                body = await self._bucket.get(self._root + TRACES + name, end=MOST_TIMING_BYTES)
                text = body.decode("utf-8", "replace")
                tables.append(parse_launches(text.replace("\x00", "\ufffd")))
        return [
            KernelLaunch(
                kernel_id=launch.kernel_id,
                name=launch.name,
                grid=launch.grid,
                block=launch.block,
                instructions=launch.instructions,
            )
            for launch in merge_launches(tables)
        ]

    async def processed_kernel_count(self) -> int:
        """The kernel lines of `kernelslist.g`. Raises NotFound where it has gone meanwhile."""
        body = await self._bucket.get(self._root + PROCESSED_LIST, end=MOST_TIMING_BYTES)
        return parse_kernels_list(body.decode("utf-8", "replace")).kernel_count

    async def _whole(self, path: str, etag: str, most: int) -> bytes | None:
        """The content that `etag` names; None where the file has changed since the listing: the next scan sees it."""
        key = self._root + path
        try:
            body = await self._bucket.get(key, end=most)
        except NotFound:
            return None
        # Without a second look, what was read of a newer content would be remembered under this one's ETag.
        now = await self._bucket.head(key)
        return body if now is not None and now.etag == etag else None

    def _json(self, path: str, body: bytes) -> JsonValue:
        """The file's value; None for anything that is not whole, strict JSON."""
        try:
            return foreign_json.parse(body)
        except foreign_json.NotJson as error:
            _logger.info("file is not used", file=self._root + path, problem=str(error))
            return None
