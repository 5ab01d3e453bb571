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


def test_the_embedded_s3_is_the_default(environment: pytest.MonkeyPatch) -> None:
    assert settings_with().run_s3


def test_the_help_names_every_service() -> None:
    told = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).stdout
    assert all(service in told for service in app_stack.MODULES)
