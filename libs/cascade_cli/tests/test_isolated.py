"""What is started beside an operator's own app takes nothing from the shell that names the operator's servers."""

import shlex
import sys
from pathlib import Path

import pytest
from cascade_cli import bundled, demo
from cascade_cli.isolated import isolated_settings
from cascade_cli.main import app
from typer.testing import CliRunner

OPERATORS = {
    "NATS_URL": "nats://production:4222",
    "DATABASE_URL": "postgresql://production/cascade",
    "S3_ENDPOINT": "https://s3.production",
    "S3_ACCESS_KEY": "key",
    "S3_SECRET_KEY": "secret",
    "S3_PUBLIC_URL": "https://s3.production",
    "S3_BUCKET": "production",
    "S3_PREFIX": "production",
    "S3_ANONYMOUS": "0",
    "SIMS": "kubernetes",
    "SIM_TOKENS": "1",
    "METRICS_PORT": "9100",
    "POSTPROCESS_CMD": "/opt/production",
    "TOKEN": "production",
    "PORT": "not a number",
}


def test_no_variable_of_the_shell_reaches_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OPERATORS.items():
        monkeypatch.setenv(f"CASCADE_{name}", value)
    settings = isolated_settings(tmp_path, token="own", sim_cmd="true")
    assert settings.token is not None
    assert settings.token.get_secret_value() == "own"
    assert settings.sims == "local"
    given = {
        "token",
        "data_dir",
        "accelsim_dir",
        "sim_cmd",
        "host",
        "port",
        "s3_port",
        "samples",
        "public_url",
    }
    fields = type(settings).model_fields
    assert {name for name in fields if getattr(settings, name) != fields[name].default} == given


@pytest.mark.parametrize("engine", ["replay", "estimate"])
def test_the_demos_simulator_is_found_below_a_folder_with_a_blank(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CASCADE_TOKEN", raising=False)
    monkeypatch.setattr(sys, "executable", "/home/me/My Projects/.venv/bin/python")
    monkeypatch.setattr(bundled, "REPLAY_LOG", Path("/home/me/My Projects/replay.log.gz"))
    options = (
        ["--replay", "/home/me/My Projects/replay.log.gz"] if engine == "replay" else ["--engine", engine]
    )
    command = demo._settings(tmp_path, engine).sim_cmd
    assert command is not None
    assert shlex.split(command) == [sys.executable, "-m", "cascade_worker", *options]


def test_a_token_that_no_header_carries_ends_the_demo_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_TOKEN", "blank at its end ")
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 2
    assert result.stderr.startswith("CASCADE_TOKEN: ")
    assert result.stderr.count("\n") == 1
