"""What `cascade serve` says and refuses before it starts anything, and how it ends where a service cannot live."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cascade_cli import app_stack, ports, supervisor
from cascade_cli.embedded.errors import EmbeddedServerError, PortTakenError
from cascade_cli.embedded.process import free_ports
from cascade_cli.main import app
from cascade_cli.serve import settings_with
from cascade_cli.serve_settings import ServeSettings
from typer.testing import CliRunner


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A token, an own data directory, and no S3 of the caller's."""
    monkeypatch.setenv("CASCADE_TOKEN", "a-token")
    monkeypatch.setenv("CASCADE_DATA_DIR", str(tmp_path))
    for name in ("RUN_S3", "S3_ENDPOINT"):
        monkeypatch.delenv(f"CASCADE_{name}", raising=False)
    return monkeypatch


@pytest.fixture
def settings_here(environment: pytest.MonkeyPatch) -> ServeSettings:
    """Settings of an app on embedded servers, with ports that are free."""
    port, s3_port = free_ports(2)
    for name, value in (("HOST", "127.0.0.1"), ("PORT", port), ("S3_PORT", s3_port)):
        environment.setenv(f"CASCADE_{name}", str(value))
    return settings_with()


def test_without_the_embedded_s3_an_endpoint_is_demanded_in_one_line(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("CASCADE_RUN_S3", "false")
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert "CASCADE_RUN_S3 is false" in result.stderr
    assert "CASCADE_S3_ENDPOINT is not set" in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_the_embedded_s3_the_given_endpoint_is_used(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("CASCADE_RUN_S3", "false")
    environment.setenv("CASCADE_S3_ENDPOINT", "http://s3.example:9000")
    assert settings_with().s3_endpoint == "http://s3.example:9000"


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [(["--port", "99999"], "--port"), (["--s3-port", "-1"], "--s3-port"), (["--sims", "cloud"], "--sims")],
)
def test_a_wrong_flag_is_called_by_its_own_name(
    arguments: list[str], flag: str, environment: pytest.MonkeyPatch
) -> None:
    result = CliRunner().invoke(app, ["serve", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 2
    assert f"Invalid value for '{flag}'" in result.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKEN", "a-token\n"),
        ("HEARTBEAT_TIMEOUT_S", "inf"),
        ("HEARTBEAT_TIMEOUT_S", "nan"),
        ("HEARTBEAT_TIMEOUT_S", "1e9"),
        ("OPENAI_WAIT_S", "inf"),
    ],
)
def test_what_a_service_would_refuse_is_refused_before_anything_starts(
    name: str, value: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(f"CASCADE_{name}", value)
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"CASCADE_{name}: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("bucket", ["ab", "UPPER", "a/b", "under_score", "-dash", "a" * 55])
def test_a_bucket_that_no_store_takes_is_refused_in_one_line(
    bucket: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("CASCADE_S3_BUCKET", bucket)
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 2
    assert result.stderr.startswith("CASCADE_S3_BUCKET: ")
    assert result.stderr.count("\n") == 1


def test_a_data_directory_that_cannot_be_made_is_named_in_one_line(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    environment.setenv("CASCADE_DATA_DIR", str(tmp_path / "file"))
    result = CliRunner().invoke(app, ["serve"])
    assert result.exit_code == 1
    assert f"The data directory {tmp_path / 'file'} cannot be used (Not a directory" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_folder_that_the_demo_cannot_use_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["demo", "--json", "--data-dir", str(tmp_path / "file")])
    assert result.exit_code == 1
    assert f"{tmp_path / 'file'} cannot be used (File exists). Next: " in result.stderr
    assert result.stderr.count("\n") == 1


async def test_a_port_is_waited_for_and_named_where_it_stays_taken() -> None:
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(PortTakenError, match=f"127.0.0.1:{port} cannot be listened on .*--port"):
        await ports.free("127.0.0.1", port, within_s=0)
    waiting = asyncio.create_task(ports.free("127.0.0.1", port))
    await asyncio.sleep(0)
    taken.close()
    await waiting


async def test_a_host_that_is_no_address_is_named() -> None:
    with pytest.raises(EmbeddedServerError, match=r"'no\.such\.host\.invalid' is no address"):
        await ports.free("no.such.host.invalid", 8000)


async def test_a_service_that_dies_again_and_again_ends_the_app_with_the_reason(
    environment: pytest.MonkeyPatch, settings_here: ServeSettings
) -> None:
    environment.setattr(supervisor, "MOST_RESTARTS_IN_A_ROW", 0)
    environment.setitem(app_stack.MODULES, "parser", "no_such_module")
    with pytest.raises(supervisor.ServiceFailed, match="the parser service ended with code 1 1 times"):
        async with app_stack.running_app(settings_here, only=("parser",)):
            await asyncio.Event().wait()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_a_service_whose_supervisor_was_killed_before_it_began_does_not_begin() -> None:
    begin = "import signal, sys; from cascade_cli.supervisor import die_with; signal.signal(15, lambda *_: None); "
    begin += "die_with(int(sys.argv[1])); print('begun')"
    for parent, code, said in ((os.getpid(), 0, "begun\n"), (os.getppid(), -signal.SIGTERM, "")):
        child = subprocess.run(
            [sys.executable, "-c", begin, str(parent)], stdout=subprocess.PIPE, text=True, check=False
        )
        assert (child.returncode, child.stdout) == (code, said)


DIES_ONCE = """
import pathlib, time
here = pathlib.Path(__file__)
if here.with_name("started").exists():
    here.with_name("again").touch()
    time.sleep(600)
while not here.with_name("ready").exists():
    time.sleep(0.02)
here.with_name("started").touch()
"""
STOPS_AFTER_ANOTHERS_RESTART = """
import pathlib, signal, sys, time
here = pathlib.Path(__file__)
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
here.with_name("ready").touch()
try:
    time.sleep(600)
finally:
    until = time.monotonic() + 2
    while not here.with_name("again").exists() and time.monotonic() < until:
        time.sleep(0.02)
"""


async def test_no_service_is_started_again_while_the_others_are_stopped(
    environment: pytest.MonkeyPatch, settings_here: ServeSettings, tmp_path: Path
) -> None:
    environment.setenv("PYTHONPATH", str(tmp_path))
    environment.setattr(supervisor, "RESTART_WAIT_S", (0.4,))
    for service, text in (("ingest", DIES_ONCE), ("launcher", STOPS_AFTER_ANOTHERS_RESTART)):
        (tmp_path / f"test_{service}.py").write_text(text)
        environment.setitem(app_stack.MODULES, service, f"test_{service}")
    async with app_stack.running_app(settings_here, only=("ingest", "launcher")) as running:
        dying, _ = services = running.supervisor._services
        async with asyncio.timeout(60):
            while dying.process is None or dying.process.returncode is None:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
    assert all(one.process is not None and one.process.returncode is not None for one in services)


STARTS_A_SIM_AND_IS_KILLED = """
import asyncio, os, pathlib, signal, time
from cascade_launcher.backends.local import LocalBackend, LocalOptions
from cascade_launcher.backends.protocol import Launch
pid_file = pathlib.Path(__file__).with_name("sim.pid")
if pid_file.exists():
    time.sleep(600)
data_dir = pathlib.Path(os.environ["CASCADE_DATA_DIR"])
backend = LocalBackend(
    LocalOptions(
        sim_cmd="sleep 600", main_url="http://127.0.0.1:1", token="", data_dir=data_dir, accelsim_dir=data_dir,
        bucket_name="b", prefix="p",
    ),
    None,
    os.environ,
)
launch = Launch(
    sim_id="sim-000000000001", run_id="run-1", trace_id="t", gpu_config="A", replica=0, attempt=os.urandom(6).hex()
)
draft = pid_file.with_suffix(".draft")
draft.write_text(asyncio.run(backend.start(launch)))
draft.replace(pid_file)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_no_sim_of_a_killed_launcher_outlives_the_app(
    environment: pytest.MonkeyPatch, settings_here: ServeSettings, tmp_path: Path
) -> None:
    environment.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "test_killed_launcher.py").write_text(STARTS_A_SIM_AND_IS_KILLED)
    environment.setitem(app_stack.MODULES, "launcher", "test_killed_launcher")
    pid_file = tmp_path / "sim.pid"
    async with app_stack.running_app(settings_here, only=("launcher",)), asyncio.timeout(60):
        while not pid_file.exists():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
        assert _runs(pid_file)
    assert not _runs(pid_file)


def _runs(pid_file: Path) -> bool:
    try:
        stat = Path(f"/proc/{pid_file.read_text()}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("192.0.2.7", "http://192.0.2.7:8000"),
        ("::1", "http://[::1]:8000"),
    ],
)
def test_the_app_is_reached_where_it_listens(host: str, url: str, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("CASCADE_HOST", host)
    environment.setenv("CASCADE_PORT", "8000")
    assert settings_with().local_url() == url


def test_the_embedded_s3_is_the_default(environment: pytest.MonkeyPatch) -> None:
    assert settings_with().run_s3


@pytest.mark.parametrize(
    ("command", "default"),
    [("serve", "8000"), ("serve", "9000"), ("serve", "0.0.0.0"), ("demo", "a temporary folder")],
)
def test_the_help_shows_defaults_that_come_from_elsewhere(command: str, default: str) -> None:
    told = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
    assert f"[default: ({default})]" in told


def test_the_help_names_every_service() -> None:
    told = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).stdout
    assert all(service in told for service in app_stack.MODULES)
