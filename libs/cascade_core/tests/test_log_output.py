"""Logs as a reader of them needs them: one object a line, and never what a program held in its variables."""

import json
import os
import subprocess
import sys

import pytest

SECRET = "sec" + "ret-0815-in-a-variable"
PROGRAM = """
import logging, structlog
from cascade_core import telemetry
from cascade_core.settings import TelemetrySettings

telemetry.configure(TelemetrySettings(log_format={format!r}), service="test")

def open_something(password):
    try:
        raise ValueError("cannot be opened")
    except ValueError as error:
        structlog.get_logger().error("broken", sim_id="sim-1", exc_info=error)
        logging.getLogger("some.library").exception("it broke")

open_something("sec" + "ret-0815-in-a-variable")
"""


def said(log_format: str) -> str:
    """What a program writes that logs two errors."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(format=log_format)], capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_log_line_that_nobody_can_read_any_more_ends_nobodys_work(log_format: str) -> None:
    program = PROGRAM.format(format=log_format) * 2 + "print('went on')"
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=write, text=True, check=False
        )
    finally:
        os.close(write)
    assert done.stdout == "went on\n"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_no_variables(log_format: str) -> None:
    output = said(log_format)
    assert output.count("cannot be opened") >= 2
    assert SECRET not in output


def test_json_logs_are_one_object_a_line_also_from_libraries() -> None:
    ours, theirs = [json.loads(line) for line in said("json").split("\n") if line]
    assert (ours["event"], ours["sim_id"], ours["service"], ours["level"]) == (
        "broken",
        "sim-1",
        "test",
        "error",
    )
    assert (theirs["event"], theirs["logger"], theirs["level"]) == ("it broke", "some.library", "error")
    assert {"timestamp", "exception"} <= ours.keys() & theirs.keys()
