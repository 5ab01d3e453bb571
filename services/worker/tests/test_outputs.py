"""Output files: which travel, under what names, and within what limits."""

import errno
import gzip
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from cascade_worker import upload
from cascade_worker.errors import FencedOffError
from cascade_worker.gateway import Gateway, Identity, RetryPolicy, open_client
from cascade_worker.rundir import clear_neighbours, hold, make_run_dir
from cascade_worker.testing import PATIENCE_S, FakeGateway
from cascade_worker.upload import is_accepted_name, looks_like_text, upload_outputs


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "cascade-worker" / "sim"


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    directory = tmp_path / "configs"
    directory.mkdir()
    (directory / "gpgpusim.config").write_text("-gpgpu_n_clusters 46\n")
    (directory / "trace.config").write_text("-specialized_unit_3 1\n")
    return directory


@pytest.fixture
def before(run_dir: Path, configs: Path) -> dict[str, str]:
    files = make_run_dir(run_dir, config_dirs=[configs])
    (run_dir / "accelsim.log").write_text("one line\n")
    return files


async def send(
    state: FakeGateway, run_dir: Path, before: dict[str, str], *, give_up_after_s: float = PATIENCE_S
) -> None:
    identity = Identity(sim_id=state.sim_id)
    policy = RetryPolicy(first_pause_s=0.01, longest_pause_s=0.05, give_up_after_s=give_up_after_s)
    async with open_client(base_url=state.url, token=state.token, identity=identity) as client:
        gateway = Gateway(client, identity=identity, engine="accel-sim", retry=policy, upload_retry=policy)
        await upload_outputs(gateway, run_dir=run_dir, before=before)


async def test_files_that_were_created_or_changed_go_up_in_name_order_and_the_log_last(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str]
) -> None:
    (run_dir / "zeta.txt").write_text("z")
    (run_dir / "alpha.csv").write_text("a")
    (run_dir / "trace.config").write_text("-specialized_unit_3 0\n")
    (run_dir / "empty.txt").touch()
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["alpha.csv", "empty.txt", "trace.config", "zeta.txt", "accelsim.log.gz"]
    assert gateway.files["empty.txt"] == b""
    assert gzip.decompress(gateway.files["accelsim.log.gz"]) == b"one line\n"


async def test_an_untouched_config_stays_even_if_its_time_changed(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str]
) -> None:
    os.utime(run_dir / "trace.config")
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["accelsim.log.gz"]


async def test_symlinks_directories_and_fifos_are_skipped(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str]
) -> None:
    (run_dir / "checkpoint_files").mkdir()
    (run_dir / "checkpoint_files" / "inside.txt").write_text("x")
    (run_dir / "link.txt").symlink_to("/etc/passwd")
    os.mkfifo(run_dir / "pipe")
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["accelsim.log.gz"]


async def test_a_text_over_a_mebibyte_is_gzipped_and_a_smaller_or_binary_one_is_not(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str]
) -> None:
    text = "a,é\n" * 300_000
    (run_dir / "large.csv").write_text(text)
    (run_dir / "exact.csv").write_bytes(b"x" * 2**20)
    (run_dir / "large.bin").write_bytes(b"\0\1" * 600_000)
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["exact.csv", "large.bin", "large.csv.gz", "accelsim.log.gz"]
    assert gzip.decompress(gateway.files["large.csv.gz"]).decode() == text


async def test_a_large_text_beside_its_own_gz_keeps_its_name(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str]
) -> None:
    (run_dir / "x.txt").write_text("y" * 2**21)
    (run_dir / "x.txt.gz").write_bytes(b"\x1f\x8bsomething else")
    await send(gateway, run_dir, before)
    assert gateway.files["x.txt"] == b"y" * 2**21
    assert gateway.files["x.txt.gz"] == b"\x1f\x8bsomething else"


async def test_a_file_over_the_limit_is_skipped_with_one_line(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with (run_dir / "huge.bin").open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    (run_dir / "small.txt").write_text("x")
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["small.txt", "accelsim.log.gz"]
    assert [record.getMessage() for record in caplog.records] == [
        "output file huge.bin is skipped: 67108865 bytes are over the 64 MiB per-file limit"
    ]


async def test_what_would_pass_the_sims_limit_is_skipped_and_smaller_files_still_go(
    gateway: FakeGateway,
    run_dir: Path,
    before: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upload, "SIM_LIMIT_BYTES", 1000)
    for name, size in (("a.bin", 600), ("b.bin", 600), ("c.bin", 300)):
        (run_dir / name).write_bytes(b"\0" * size)
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["a.bin", "c.bin", "accelsim.log.gz"]
    assert len(caplog.records) == 1
    assert "b.bin is skipped" in caplog.text


async def test_a_name_that_the_app_refuses_is_skipped_with_one_line(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (run_dir / "my file.txt").write_text("x")
    (run_dir / ("n" * 129)).write_text("x")
    (run_dir / os.fsdecode(b"\xff\xfe.txt")).write_text("x")
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["accelsim.log.gz"]
    assert len(caplog.records) == 3


async def test_a_file_that_cannot_be_read_costs_one_line_and_the_others_go_up(
    gateway: FakeGateway,
    run_dir: Path,
    before: dict[str, str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Path.open

    def refuse(path: Path, *arguments: Any, **keywords: Any) -> Any:
        if path.name == "trace.config":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", refuse)
    (run_dir / "alpha.csv").write_text("a")
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["alpha.csv", "accelsim.log.gz"]
    assert len(caplog.records) == 1
    assert "output file trace.config could not be uploaded" in caplog.text
    assert "Permission denied" in caplog.text


async def test_a_run_directory_that_is_gone_costs_log_lines_only(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.rmtree(run_dir)
    await send(gateway, run_dir, before)
    assert gateway.files == {}
    assert "the output files cannot be listed" in caplog.text


async def test_a_failed_upload_is_retried(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str]
) -> None:
    (run_dir / "stats.csv").write_text("a,b\n")
    gateway.fail("files", 503, times=2)
    gateway.fail("files", "drop-before", times=1)
    gateway.fail("files", "drop-after", times=1)
    await send(gateway, run_dir, before)
    assert gateway.files["stats.csv"] == b"a,b\n"
    assert "accelsim.log.gz" in gateway.files
    assert gateway.calls_failed == 4


async def test_an_upload_that_keeps_failing_costs_one_line_and_nothing_else(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (run_dir / "stats.csv").write_text("a,b\n")
    gateway.fail("files", 503, times=10_000)
    await send(gateway, run_dir, before, give_up_after_s=0.2)
    assert gateway.files == {}
    assert len(caplog.records) == 2  # the file and the log
    assert "upload of stats.csv failed: 503 told to fail" in caplog.text


async def test_a_refused_upload_is_not_retried(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (run_dir / "stats.csv").write_text("a,b\n")
    gateway.fail("files", 413)
    await send(gateway, run_dir, before)
    assert list(gateway.files) == ["accelsim.log.gz"]
    assert gateway.calls_failed == 1
    assert "upload of stats.csv was refused with 413: told to fail" in caplog.text


async def test_a_fenced_off_upload_ends_the_uploads(
    gateway: FakeGateway, run_dir: Path, before: dict[str, str]
) -> None:
    gateway.fail("files", 409)
    with pytest.raises(FencedOffError):
        await send(gateway, run_dir, before)


def test_run_directories_of_long_ago_go_unless_somebody_works_in_them(run_dir: Path) -> None:
    made = {name: run_dir.parent / name for name in ("old", "old-in-use", "new")}
    for directory in (run_dir, *made.values()):
        (directory / "inside").mkdir(parents=True)
    (run_dir.parent / "old-file").touch()
    for old in (run_dir, made["old"], made["old-in-use"], run_dir.parent / "old-file"):
        os.utime(old, (1000, 1000))
    in_use = hold(made["old-in-use"])
    try:
        clear_neighbours(run_dir, before=2000)
    finally:
        os.close(in_use)
    assert sorted(path.name for path in run_dir.parent.iterdir()) == ["new", "old-file", "old-in-use", "sim"]


@pytest.mark.parametrize("name", ["kernel-stats.csv", "a", "...", ".hidden", "n" * 128, "A_b-9.Z"])
def test_names_that_the_app_takes(name: str) -> None:
    assert is_accepted_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "my file.txt", "n" * 129, "a/b", "é", "a\n", "\udcff"])
def test_names_that_the_app_refuses(name: str) -> None:
    assert not is_accepted_name(name)


def test_text_is_utf8_without_nul_and_a_cut_character_is_forgiven() -> None:
    assert looks_like_text(b"")
    assert looks_like_text("a,é\n".encode())
    assert looks_like_text("€".encode()[:2])
    assert not looks_like_text(b"a\0b")
    assert not looks_like_text(b"\xff\xfea")
    assert not looks_like_text(b"\xe2\x82 in the middle")
