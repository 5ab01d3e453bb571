"""A running server still answers what the pages show."""

from pathlib import Path
from typing import Any

import pytest

from scripts import capture_examples
from scripts.docs_reference import examples


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_server_answers_what_is_shown(tmp_path: Path) -> None:
    await capture_examples.capture(tmp_path)
    assert examples.names(tmp_path) == examples.names()
    for name in examples.names():
        shown, found = examples.load(name), examples.load(name, tmp_path)
        assert (found.method, found.route, found.status) == (shown.method, shown.route, shown.status), name
        assert _shape(found.body) == _shape(shown.body), f"{name}: run scripts/capture_examples.py"


def _shape(value: Any) -> object:
    """Names without values: which fields there are. A list counts as its first item, a data-keyed map as one."""
    if isinstance(value, dict):
        # Which keys a map of counts or statistics has depends on the moment, and so does what a sim has said by then of
        # its engine and clock: its first event may be its launch or its first heartbeat.
        of_the_moment = ("stats", "sim_counts", "args", "engine", "engines", "log_clock_mhz")
        return {key: _shape(item) for key, item in value.items() if key not in of_the_moment}
    if isinstance(value, list):
        return [_shape(value[0])] if value and not isinstance(value[0], str) else []
    return None
