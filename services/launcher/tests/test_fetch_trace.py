"""`python -m cascade_launcher.fetch_trace`, as a sim's own pod or sandbox runs it."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from cascade_cli.embedded.s3_requests import S3Access
from cascade_launcher.bucket_traces import trace_url
from cascade_launcher.testing import PREFIX, TRACE_ID


async def fetch(access: S3Access, trace_id: str, directory: Path, **more: str) -> tuple[int, str]:
    environ = {
        "PATH": os.environ["PATH"],
        "CASCADE_TRACE_URL": trace_url(access.bucket, PREFIX, trace_id),
        "CASCADE_TRACE_DIR": str(directory),
        "CASCADE_S3_ENDPOINT": access.endpoint,
        "CASCADE_S3_ACCESS_KEY": access.access_key or "",
        "CASCADE_S3_SECRET_KEY": access.secret_key or "",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cascade_launcher.fetch_trace",
        env=environ | more,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode is not None
    return process.returncode, stderr.decode()


async def test_it_puts_the_trace_where_the_simulator_looks(filled_bucket: S3Access, tmp_path: Path) -> None:
    directory = tmp_path / "s3" / TRACE_ID
    code, _ = await fetch(filled_bucket, TRACE_ID, directory)
    assert code == 0
    assert (directory / "traces/kernelslist.g").read_text() == "kernel-1.traceg\n"
    assert sorted(path.name for path in directory.iterdir()) == ["metadata.json", "traces"]


async def test_a_trace_that_is_not_there_ends_it_with_one_line(
    filled_bucket: S3Access, tmp_path: Path
) -> None:
    code, said = await fetch(filled_bucket, "100% no such trace", tmp_path / "trace")
    assert code == 1
    assert "launcher prepare: traces/kernelslist.g not found" in said
    assert "100% no such trace/traces/kernelslist.g" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("url", ["", "http://bucket/x", "s3://bucket"])
async def test_a_wrong_address_names_the_variable(filled_bucket: S3Access, tmp_path: Path, url: str) -> None:
    code, said = await fetch(filled_bucket, TRACE_ID, tmp_path / "trace", CASCADE_TRACE_URL=url)
    assert code == 2
    assert "CASCADE_TRACE_URL: " in said
