"""The command that the dashboard shows is one that the profiler takes."""

import re
from pathlib import Path

import pytest
import typer
from cascade_profiler.cli import app
from typer.core import TyperGroup

COMMANDS = Path(__file__).parents[3] / "web" / "src" / "model" / "upload-commands.ts"


@pytest.mark.skipif(not COMMANDS.is_file(), reason="the dashboard's sources are not here")
def test_the_dashboards_stream_command_has_only_flags_that_exist() -> None:
    text = COMMANDS.read_text().partition("function profilerCommand")[2]
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    known = {option for parameter in group.commands["stream"].params for option in parameter.opts}
    shown = set(re.findall(r"--[a-z0-9-]+", text))
    assert "cascade-profiler stream" in text
    assert {"--model", "--layers", "--prompt", "--s3-endpoint"} <= shown <= known
