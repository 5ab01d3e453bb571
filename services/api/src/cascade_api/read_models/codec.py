"""Rows and states: each document's writer beside its reader."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import zstandard
from cascade_core.runs.state import Run
from cascade_core.sims.state import Sim
from cascade_core.traces.state import Trace
from pydantic import TypeAdapter
from pydantic_core import to_json

_SIM: TypeAdapter[Sim] = TypeAdapter(Sim)
_RUN: TypeAdapter[Run] = TypeAdapter(Run)
_TRACE: TypeAdapter[Trace] = TypeAdapter(Trace)
_LEVEL = 3
# Made once: making one costs more than a small document. The gateway compresses on its event loop only.
_COMPRESSOR = zstandard.ZstdCompressor(level=_LEVEL)
_DECOMPRESSOR = zstandard.ZstdDecompressor()
_LARGEST_DOCUMENT_BYTES = 1 << 31


def encode_sim(sim: Sim) -> bytes:
    """A folded sim as JSON."""
    return _SIM.dump_json(sim)


def decode_sim(document: bytes) -> Sim:
    """A folded sim."""
    return _SIM.validate_json(document)


def decode_engine(document: bytes) -> str | None:
    """The engine that a sim's row has cut out of its document; empty where an older one has none."""
    engine: str | None = orjson.loads(document or b"null")
    return engine


def encode_run(run: Run) -> bytes:
    """A folded run as JSON."""
    return _RUN.dump_json(run)


def decode_run(document: bytes) -> Run:
    """A folded run."""
    return _RUN.validate_json(document)


def encode_trace(trace: Trace) -> bytes:
    """A folded trace as zstd JSON."""
    return compress(_TRACE.dump_json(trace))


def decode_trace(document: bytes) -> Trace:
    """A folded trace."""
    return _TRACE.validate_json(decompress(document))


def compress(document: bytes) -> bytes:
    """zstd, with the size in the frame."""
    return _COMPRESSOR.compress(document)


def decompress(document: bytes) -> bytes:
    """The inverse of `compress`."""
    return _DECOMPRESSOR.decompress(document, max_output_size=_LARGEST_DOCUMENT_BYTES)


def pieces(document: bytes) -> Iterator[bytes]:
    """What `decompress` gives, in pieces that keep nothing else waiting and are not in memory at once."""
    return zstandard.ZstdDecompressor().read_to_iter(document)


def compress_stats(stats: Mapping[str, float | str]) -> bytes:
    """A kernel's stats as zstd JSON. Floats and text only, so the fastest writer will do."""
    return compress(orjson.dumps(stats))


def compress_json(value: Any) -> bytes:
    """Any JSON value, strict, as zstd JSON."""
    # Not orjson: it refuses integers beyond 64 bits, which clients may send and counters may reach.
    return compress(to_json(value, inf_nan_mode="null"))
