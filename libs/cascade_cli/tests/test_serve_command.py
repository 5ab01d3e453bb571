"""What `cascade serve` says and refuses before it starts anything."""

from pathlib import Path

import pytest
from cascade_cli import app_stack
from cascade_cli.main import app
from cascade_cli.serve import settings_with
from typer.testing import CliRunner


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A token, an own data directory, and no S3 of the caller's."""
    monkeypatch.setenv("CASCADE_TOKEN", "a-token")
    monkeypatch.setenv("CASCADE_DATA_DIR", str(tmp_path))
    for name in ("RUN_S3", "S3_ENDPOINT"):
        monkeypatch.delenv(f"CASCADE_{name}", raising=False)
    return monkeypatch


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
