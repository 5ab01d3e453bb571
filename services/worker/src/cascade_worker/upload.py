"""Output files on their way to the gateway: which, under what name, within what limits.

A failed or refused upload costs that file and one log line, never the sim (spec: simulator, Output files).
"""

import asyncio
import gzip
import logging
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cascade_worker.errors import FencedOffError, GatewayError
from cascade_worker.gateway import Gateway
from cascade_worker.rundir import LOG_NAME, changed_files

FILE_LIMIT_BYTES = 64 * 1024 * 1024
"""The app keeps no larger file. [bytes]"""

SIM_LIMIT_BYTES = 256 * 1024 * 1024
"""The app keeps no more for one sim. [bytes]"""

GZIP_ABOVE_BYTES = 1024 * 1024
"""A larger text file is gzipped. [bytes]"""

_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,128}")
_SNIFF_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


def is_accepted_name(name: str) -> bool:
    """Whether the app takes a file of this name (spec: api-simulator, Upload an output file)."""
    return _NAME.fullmatch(name) is not None


def looks_like_text(head: bytes) -> bool:
    """Whether a file that starts with `head` is text: UTF-8 without NUL, a character cut at the end
    forgiven."""
    if b"\0" in head:
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(head) - 3 and error.reason == "unexpected end of data"
    return True


@dataclass(slots=True)
class Allowance:
    """What the limits still let through; one instance per sim."""

    used_bytes: int = 0

    def refusal(self, size_bytes: int) -> str | None:
        """Why a file of this size cannot go up, or None if it can."""
        if size_bytes > FILE_LIMIT_BYTES:
            return f"{size_bytes} bytes are over the {FILE_LIMIT_BYTES // 2**20} MiB per-file limit"
        if self.used_bytes + size_bytes > SIM_LIMIT_BYTES:
            return f"with it the sim's files would pass {SIM_LIMIT_BYTES // 2**20} MiB"
        return None


async def upload_outputs(gateway: Gateway, *, run_dir: Path, before: Mapping[str, str]) -> None:
    """Upload every file that the simulator created or changed, in name order, then accelsim.log.gz.

    before: what `make_run_dir` returned. Raises FencedOffError only; everything else that goes wrong with a
    file is one log line.
    """
    try:
        names = await asyncio.to_thread(changed_files, run_dir, before=before)
    except OSError as error:
        _log.warning("the output files cannot be listed: %s", error)
        names = []
    allowance = Allowance()
    for name in names:
        path = run_dir / name
        # A sibling of the compressed name keeps its own: x.txt stays plain where x.txt.gz exists.
        compress = f"{name}.gz" not in names and await asyncio.to_thread(_is_large_text, path)
        await _upload(
            gateway, path, name=f"{name}.gz" if compress else name, compress=compress, allowance=allowance
        )
    await _upload(gateway, run_dir / LOG_NAME, name=f"{LOG_NAME}.gz", compress=True, allowance=allowance)


async def _upload(gateway: Gateway, path: Path, *, name: str, compress: bool, allowance: Allowance) -> None:
    if not is_accepted_name(name):
        _log.warning(
            "output file %r is skipped: its name must be 1 to 128 of letters, digits, '.', '_', '-'", name
        )
        return
    try:
        with tempfile.NamedTemporaryFile(prefix="cascade-worker-", suffix=".gz") as packed:
            source = path
            if compress:
                source = Path(packed.name)
                # In a thread: heartbeats go on while a gigabyte is compressed.
                await asyncio.to_thread(_gzip, path, source)
            size_bytes = source.stat().st_size
            refusal = allowance.refusal(size_bytes)
            if refusal is not None:
                _log.warning("output file %s is skipped: %s", name, refusal)
                return
            await gateway.put_file(name, source, size_bytes=size_bytes)
    except FencedOffError:
        raise
    except (GatewayError, OSError) as error:
        _log.warning("output file %s could not be uploaded: %s", name, error)
    else:
        allowance.used_bytes += size_bytes


def _is_large_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return path.stat().st_size > GZIP_ABOVE_BYTES and looks_like_text(file.read(_SNIFF_BYTES))
    except OSError:
        return False  # the upload meets the same error and says so


def _gzip(source: Path, target: Path) -> None:
    # No file name and no time inside: the same log gives the same bytes in every attempt.
    with (
        source.open("rb") as plain,
        target.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
    ):
        shutil.copyfileobj(plain, packed, 1024 * 1024)
