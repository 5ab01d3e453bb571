"""Upload a trace directory to Cascade's bucket, `metadata.json` last.

    uv run python scripts/upload_trace.py DIR --run-name NAME [--meta KEY=VALUE ...] [--status STATUS]

An upload that broke off goes on where it stopped: run the same command again. Without keys in
CASCADE_S3_ACCESS_KEY and CASCADE_S3_SECRET_KEY, requests are unsigned.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from cascade_client.object_store import UploadError
from cascade_client.upload import UploadedFile, UploadReport, parse_meta, upload_trace
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn


class ProgressLines:
    """One line a file on stdout, and a bar on stderr where that is a terminal."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("uploading", total=None)

    def started(self, *, files: int, size_bytes: int) -> None:
        """The directory has been read."""
        self._bar.update(self._task, total=size_bytes, description=f"uploading {files} files")

    def advanced(self, size_bytes: int) -> None:
        """More bytes are in the bucket."""
        self._bar.advance(self._task, size_bytes)

    def finished(self, file: UploadedFile) -> None:
        """A file is complete."""
        what = "already there" if file.already_there else "uploaded"
        print(f"{what} {file.path} ({file.size_bytes} bytes)", flush=True)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; exits with 2 and a usage line for a wrong one."""
    environ = os.environ
    parser = argparse.ArgumentParser(description="Upload a trace directory, metadata.json last.")
    parser.add_argument(
        "directory", nargs="?", metavar="DIR", help="the trace's directory, which holds traces/"
    )
    parser.add_argument("--run-name", required=True, metavar="NAME", help="the trace's id in the app")
    parser.add_argument(
        "--meta",
        action="append",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="an entry of metadata.json, such as trace_gpu_arch=sm_80; a list or object may be given as JSON",
    )
    parser.add_argument(
        "--status", default="ok", help="'failed' marks the trace failed without processing it"
    )
    parser.add_argument(
        "--endpoint",
        default=environ.get("CASCADE_S3_ENDPOINT", "http://127.0.0.1:9000"),
        metavar="URL",
        help="the S3 endpoint (default: $CASCADE_S3_ENDPOINT, then http://127.0.0.1:9000)",
    )
    parser.add_argument(
        "--bucket", default=environ.get("CASCADE_S3_BUCKET", "cascade"), help="default: cascade"
    )
    parser.add_argument(
        "--prefix",
        default=environ.get("CASCADE_S3_PREFIX", "accelsim-traces"),
        help="default: accelsim-traces",
    )
    given = parser.parse_args(arguments)
    entries: list[str] = [entry for group in given.meta for entry in group]
    if given.directory is None and entries and "=" not in entries[-1]:
        given.directory = entries.pop()  # DIR after --meta KEY=VALUE
    if given.directory is None:
        parser.error("DIR is missing: give the trace's directory")
    given.directory = Path(given.directory)
    try:
        given.meta = dict(map(parse_meta, entries))
    except ValueError as error:
        parser.error(str(error))
    return given


async def upload(given: argparse.Namespace) -> UploadReport:
    """Upload as the command line says."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=sys.stdout.isatty(),
    )
    with bar:
        return await upload_trace(
            given.directory,
            endpoint=given.endpoint,
            bucket=given.bucket,
            prefix=given.prefix,
            run_name=given.run_name,
            meta=given.meta,
            status=given.status,
            access_key=os.environ.get("CASCADE_S3_ACCESS_KEY") or None,
            secret_key=os.environ.get("CASCADE_S3_SECRET_KEY") or None,
            progress=ProgressLines(bar),
        )


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    given = parse_arguments(arguments)
    try:
        report = asyncio.run(upload(given))
    except UploadError as error:
        print(f"upload_trace: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("upload_trace: interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    print(f"uploaded metadata.json ({len(report.files)} files listed) to {report.uri}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
