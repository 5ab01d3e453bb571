"""What an operator's command says where the environment is wrong: a line, never a traceback."""

import json
from pathlib import Path

import pytest
from cascade_cli.main import app
from typer.testing import CliRunner, Result

COMMANDS = ("doctor", "rebuild", "backup", "restore")
UNREADABLE_PORT = "postgresql://127.0.0.1:abc/cascade"
UNKNOWN_MODE = "postgresql://127.0.0.1:1/cascade?sslmode=sometimes"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No app, no server of the caller's, and a NATS that nobody answers for."""
    for name in ("TOKEN", "DATABASE_URL", "S3_ENDPOINT"):
        monkeypatch.delenv(f"CASCADE_{name}", raising=False)
    monkeypatch.setenv("CASCADE_NO_AUTH", "1")
    monkeypatch.setenv("CASCADE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CASCADE_NATS_URL", "nats://127.0.0.1:1")
    return monkeypatch


def ran(command: str, tmp_path: Path, *more: str) -> Result:
    arguments = [command, *([str(tmp_path / "folder")] if command in ("backup", "restore") else []), *more]
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize("command", [*COMMANDS, "serve"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PORT", "abc"),
        ("DATABASE_URL", "localhost:5432/x"),
        ("S3_ENDPOINT", "foo"),
        ("NATS_REPLICAS", "9"),
        ("LOG_FORMAT", "loud"),
    ],
)
def test_a_wrong_variable_is_named_in_one_line(
    command: str, name: str, value: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv(f"CASCADE_{name}", value)
    result = ran(command, tmp_path)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"CASCADE_{name}: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("url", [UNREADABLE_PORT, UNKNOWN_MODE])
def test_the_doctor_names_a_database_url_that_the_driver_cannot_read(
    url: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("CASCADE_DATABASE_URL", url)
    result = ran("doctor", tmp_path, "--json")
    assert result.exit_code == 1, result.output
    postgres = next(finding for finding in json.loads(result.stdout) if finding["what"] == "Postgres")
    assert postgres["ok"] is False
    assert "CASCADE_DATABASE_URL" in postgres["next_step"]


@pytest.mark.parametrize("command", ["rebuild", "backup"])
@pytest.mark.parametrize("url", [UNREADABLE_PORT, UNKNOWN_MODE])
def test_a_database_url_that_the_driver_cannot_read_ends_the_command_in_words(
    command: str, url: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.delenv("CASCADE_NATS_URL")
    environment.setenv("CASCADE_DATABASE_URL", url)
    result = ran(command, tmp_path)
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("cascade: ")
