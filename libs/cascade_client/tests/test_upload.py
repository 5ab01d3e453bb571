"""Uploading a trace directory to a real S3 store."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cascade_cli.embedded.s3_requests import S3Access
from cascade_client import upload
from cascade_client.object_store import StoredObject, StoreError, UploadError, open_store
from cascade_client.upload import JsonValue, UploadedFile, UploadReport, parse_meta, upload_trace

SCRIPT = Path(__file__).parents[3] / "scripts" / "upload_trace.py"


async def send(
    store: S3Access,
    trace: Path,
    prefix: str,
    *,
    status: str = "ok",
    progress: "Heard | None" = None,
    settled: bool = False,
    **meta: JsonValue,
) -> UploadReport:
    return await upload_trace(
        trace,
        endpoint=store.endpoint,
        bucket=store.bucket,
        prefix=prefix,
        run_name=trace.name,
        meta=meta,
        status=status,
        progress=progress,
        settled=settled,
    )


async def objects(store: S3Access, prefix: str) -> dict[str, StoredObject]:
    async with open_store(endpoint=store.endpoint, bucket=store.bucket) as bucket:
        return dict(await bucket.list_objects(prefix))


async def metadata(store: S3Access, key: str) -> dict[str, object]:
    async with open_store(endpoint=store.endpoint, bucket=store.bucket) as bucket:
        reply = await bucket._call("get_object", Key=key)
        content: dict[str, object] = json.loads(await reply["Body"].read())
        return content


class Heard:
    """Notes what an upload says of itself."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.sent_bytes = 0
        self.files: list[tuple[str, bool]] = []

    def started(self, *, files: int, size_bytes: int) -> None:
        self.total_bytes = size_bytes

    def advanced(self, size_bytes: int) -> None:
        self.sent_bytes += size_bytes

    def finished(self, file: UploadedFile) -> None:
        self.files.append((file.path, file.already_there))


async def test_the_metadata_lists_every_file_with_its_full_key_and_size(
    store: S3Access, trace: Path, prefix: str
) -> None:
    report = await send(store, trace, prefix, trace_gpu_arch="sm_86", layers=["a", "b"])
    assert report.uri == f"s3://cascade/{prefix}/my-run/"
    assert await metadata(store, f"{prefix}/my-run/metadata.json") == {
        "run_name": "my-run",
        "trace_gpu_arch": "sm_86",
        "layers": ["a", "b"],
        "status": "ok",
        "files": [
            {"key": f"{prefix}/my-run/real_timing.json", "bytes": 2},
            {"key": f"{prefix}/my-run/traces/kernel-1.traceg", "bytes": 1700},
            {"key": f"{prefix}/my-run/traces/kernel-2.traceg", "bytes": 3400},
            {"key": f"{prefix}/my-run/traces/kernelslist.g", "bytes": 32},
        ],
    }
    there = await objects(store, f"{prefix}/")
    assert {key: entry.size_bytes for key, entry in there.items() if not key.endswith("metadata.json")} == {
        f"{prefix}/my-run/real_timing.json": 2,
        f"{prefix}/my-run/traces/kernel-1.traceg": 1700,
        f"{prefix}/my-run/traces/kernel-2.traceg": 3400,
        f"{prefix}/my-run/traces/kernelslist.g": 32,
    }


async def test_a_second_upload_sends_only_what_changed(store: S3Access, trace: Path, prefix: str) -> None:
    await send(store, trace, prefix)
    (trace / "traces" / "kernel-1.traceg").write_bytes(b"-kernel name = c\n" * 100)  # the same size
    heard = Heard()
    report = await send(store, trace, prefix, progress=heard)
    assert report.sent_bytes == 1700
    assert heard.files == [
        ("real_timing.json", True),
        ("traces/kernel-1.traceg", False),
        ("traces/kernel-2.traceg", True),
        ("traces/kernelslist.g", True),
    ]
    assert heard.sent_bytes == heard.total_bytes == 5134


async def test_a_broken_upload_leaves_no_metadata_and_goes_on_where_it_stopped(
    store: S3Access, trace: Path, prefix: str
) -> None:
    await send(store, trace, prefix)
    (trace / "traces" / "kernel-1.traceg").write_bytes(b"new")

    class Break(Heard):
        def finished(self, file: UploadedFile) -> None:
            super().finished(file)
            if file.path == "traces/kernel-1.traceg":
                raise ConnectionResetError("the line is cut")

    with pytest.raises(ConnectionResetError):
        await send(store, trace, prefix, progress=Break())
    assert f"{prefix}/my-run/metadata.json" not in await objects(store, f"{prefix}/")
    report = await send(store, trace, prefix)
    assert report.sent_bytes == 0
    assert f"{prefix}/my-run/metadata.json" in await objects(store, f"{prefix}/")


async def test_a_file_larger_than_a_part_travels_in_parts_and_is_recognised_again(
    store: S3Access, trace: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "PART_BYTES", 5 * 2**20)
    content = os.urandom(2**20) * 12
    (trace / "traces" / "kernel-1.traceg").write_bytes(content)
    heard = Heard()
    report = await send(store, trace, prefix, progress=heard)
    assert report.sent_bytes == heard.sent_bytes == len(content) + 3434
    there = await objects(store, f"{prefix}/")
    assert there[f"{prefix}/my-run/traces/kernel-1.traceg"].size_bytes == len(content)
    assert (await send(store, trace, prefix)).sent_bytes == 0


async def test_a_large_file_in_one_part_is_recognised_again(
    store: S3Access, trace: Path, prefix: str
) -> None:
    (trace / "traces" / "kernel-1.traceg").write_bytes(os.urandom(2**20) * 12)
    await send(store, trace, prefix)
    assert (await send(store, trace, prefix)).sent_bytes == 0


async def test_metadata_in_the_directory_is_the_base_and_arguments_win(
    store: S3Access, trace: Path, prefix: str
) -> None:
    own = {
        "model": "facebook/opt-125m",
        "status": "running",
        "files": [{"key": "old", "bytes": 1}],
        "gpu": "H100",
    }
    (trace / "metadata.json").write_text(json.dumps(own))
    await send(store, trace, prefix, status="failed", gpu="A100")
    sent = await metadata(store, f"{prefix}/my-run/metadata.json")
    assert sent["model"] == "facebook/opt-125m"
    assert sent["gpu"] == "A100"
    assert sent["status"] == "failed"
    assert isinstance(sent["files"], list)
    assert len(sent["files"]) == 4


async def test_more_files_than_one_listing_page_are_recognised(
    store: S3Access, tmp_path: Path, prefix: str
) -> None:
    directory = tmp_path / "many"
    directory.mkdir()
    for number in range(1100):
        (directory / f"kernel-{number}.traceg").touch()
    report = await send(store, directory, prefix)
    assert [file.path for file in report.files] == sorted(file.path for file in report.files)
    again = await send(store, directory, prefix)
    assert len(again.files) == 1100
    assert all(file.already_there for file in again.files)


async def test_names_with_blanks_and_unicode_arrive_as_they_are(
    store: S3Access, trace: Path, prefix: str
) -> None:
    (trace / "a b+c%20é#?.txt").write_text("x")
    await send(store, trace, prefix)
    assert f"{prefix}/my-run/a b+c%20é#?.txt" in await objects(store, f"{prefix}/")


async def test_a_file_that_changes_meanwhile_stops_the_upload(
    store: S3Access, trace: Path, prefix: str
) -> None:
    class Grow(Heard):
        def started(self, *, files: int, size_bytes: int) -> None:
            with (trace / "traces" / "kernelslist.g").open("a") as kernels:
                kernels.write("kernel-3.traceg\n")

    with pytest.raises(
        UploadError, match=r"traces/kernelslist.g changed while it was uploaded \(32 bytes before, 48"
    ):
        await send(store, trace, prefix, progress=Grow())
    assert f"{prefix}/my-run/metadata.json" not in await objects(store, f"{prefix}/")


@pytest.mark.parametrize("run_name", ["", ".", "..", ".hidden", "a/b", "a\0"])
async def test_a_run_name_that_the_app_would_not_see_is_refused(trace: Path, run_name: str) -> None:
    with pytest.raises(UploadError, match="the run name is"):
        await upload_trace(
            trace, endpoint="http://127.0.0.1:1", bucket="cascade", prefix="p", run_name=run_name, meta={}
        )


async def test_what_cannot_be_uploaded_says_why(
    store: S3Access, trace: Path, prefix: str, tmp_path: Path
) -> None:
    with pytest.raises(UploadError, match="is no directory"):
        await send(store, tmp_path / "nothing", prefix)
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UploadError, match="holds no files"):
        await send(store, empty, prefix)
    (trace / "broken-link").symlink_to("/nowhere")
    with pytest.raises(UploadError, match="is no regular file"):
        await send(store, trace, prefix)
    (trace / "broken-link").unlink()
    (trace / "metadata.json").write_text("{")
    with pytest.raises(UploadError, match="is not JSON"):
        await send(store, trace, prefix)


async def test_a_settled_trace_takes_late_side_files_but_no_other_kernels(
    store: S3Access, trace: Path, prefix: str
) -> None:
    await send(store, trace, prefix)
    (trace / "real_timing.json").write_text("[1]")
    (trace / "corrected_timeline.json").write_text("{}")
    report = await send(store, trace, prefix, settled=True, model="late")
    assert [file.path for file in report.files if not file.already_there] == [
        "corrected_timeline.json",
        "real_timing.json",
    ]
    before = await objects(store, f"{prefix}/")
    (trace / "traces" / "kernel-1.traceg").write_bytes(b"new")
    (trace / "real_timing.json").write_text("[2]")
    with pytest.raises(
        UploadError, match=r"1 of these files differ from its own, such as traces/kernel-1.traceg: choose"
    ):
        await send(store, trace, prefix, settled=True)
    assert await objects(store, f"{prefix}/") == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), ["\ud800"]])
async def test_metadata_that_strict_json_cannot_say_is_refused_before_anything_is_sent(
    trace: Path, value: JsonValue
) -> None:
    with pytest.raises(UploadError, match="the metadata cannot be written as JSON"):
        await upload_trace(
            trace, endpoint="http://127.0.0.1:1", bucket="b", prefix="p", run_name="r", meta={"entry": value}
        )


async def test_nan_is_no_json_in_metadata(trace: Path) -> None:
    with pytest.raises(ValueError, match=r"the value of entry looks like JSON but is not: it holds NaN"):
        parse_meta("entry=[NaN]")
    (trace / "metadata.json").write_text('{"entry": -Infinity}')
    with pytest.raises(UploadError, match=r"is not JSON \(it holds -Infinity\): correct or remove it"):
        await upload_trace(
            trace, endpoint="http://127.0.0.1:1", bucket="b", prefix="p", run_name="r", meta={}
        )


@pytest.mark.parametrize("sent_before", [False, True])
async def test_a_file_that_vanishes_meanwhile_is_named(
    store: S3Access, trace: Path, prefix: str, sent_before: bool
) -> None:
    class Remove(Heard):
        def started(self, *, files: int, size_bytes: int) -> None:
            (trace / "traces" / "kernelslist.g").unlink()

    if sent_before:
        await send(store, trace, prefix)
    with pytest.raises(UploadError, match=r"traces/kernelslist.g cannot be read \(No such file"):
        await send(store, trace, prefix, progress=Remove())


async def test_a_store_that_refuses_or_is_away_is_named(store: S3Access, trace: Path) -> None:
    async def to(endpoint: str, bucket: str) -> None:
        await upload_trace(trace, endpoint=endpoint, bucket=bucket, prefix="p", run_name="r", meta={})

    with pytest.raises(StoreError, match=r"AccessDenied|NoSuchBucket"):
        await to(store.endpoint, "cascade-internal")
    with pytest.raises(StoreError, match="cannot be reached"):
        await to("http://127.0.0.1:1", "cascade")
    with pytest.raises(StoreError, match="no S3 endpoint"):
        await to("127.0.0.1:9000", "cascade")


async def test_keys_are_used_when_given(store: S3Access, trace: Path) -> None:
    report = await upload_trace(
        trace,
        endpoint=store.endpoint,
        bucket=store.internal_bucket,
        prefix="",
        run_name="mine",
        meta={},
        access_key=store.access_key,
        secret_key=store.secret_key,
    )
    assert report.uri == "s3://cascade-internal/mine/"


async def run_script(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CASCADE_")}
    return await asyncio.to_thread(
        subprocess.run,
        [sys.executable, str(SCRIPT), *arguments],
        env={**clean, **environ},
        capture_output=True,
        text=True,
        timeout=60,
    )


async def test_the_script_prints_the_lines_of_the_quickstart(store: S3Access, tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    (demo / "traces").mkdir(parents=True)
    (demo / "traces" / "kernelslist.g").write_text("kernel-1.traceg\n")
    done = await run_script(
        str(demo), "--run-name", "demo",
        "--meta", "trace_gpu_arch=sm_86", "--meta", "suggested_sim_config=SM86_RTX3070",
        CASCADE_S3_ENDPOINT=store.endpoint,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout == (
        "uploaded traces/kernelslist.g (16 bytes)\n"
        "uploaded metadata.json (1 files listed) to s3://cascade/accelsim-traces/demo/\n"
    )
    assert done.returncode == 0
    sent = await metadata(store, "accelsim-traces/demo/metadata.json")
    assert sent["trace_gpu_arch"] == "sm_86"
    assert sent["suggested_sim_config"] == "SM86_RTX3070"

    again = await run_script(
        "--run-name", "demo", "--endpoint", store.endpoint, "--meta", "a=1", "b=x=y", str(demo)
    )
    assert again.stdout.startswith("already there traces/kernelslist.g (16 bytes)\n")
    sent = await metadata(store, "accelsim-traces/demo/metadata.json")
    assert (sent["a"], sent["b"]) == ("1", "x=y")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["DIR", "--run-name", "x", "--meta", "novalue"], 2, "'novalue' is not KEY=VALUE"),
        (["DIR", "--run-name", "x", "--meta", "files=[]"], 2, "'files' is written by the upload itself"),
        (["DIR", "--run-name", "x", "--meta", "layers=[1"], 2, "the value of layers looks like JSON"),
        (["--run-name", "x"], 2, "DIR is missing"),
        (["/nowhere", "--run-name", "x"], 1, "/nowhere is no directory"),
        (["DIR", "--run-name", "a/b"], 1, "the run name is 'a/b'"),
    ],
)
async def test_a_wrong_command_line_says_what_is_wrong(
    trace: Path, arguments: list[str], code: int, words: str
) -> None:
    done = await run_script(*[argument.replace("DIR", str(trace)) for argument in arguments])
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
