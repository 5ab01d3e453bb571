"""How long the gateways of this process wait for their views: as long as a test waits, or no longer than for clients.

Past some seconds a gateway shows what its views hold, or says 503, rather than let its client wait. A test asks about
what it has just stored, and a machine that stalls for seconds is no fault.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cascade_api import gateway, reporting
from cascade_api.read_models import gate

VIEWS_WAIT_S = 45.0
"""Below what a test's client waits, so that a gateway which gives up can still say what it missed."""
_FOR_CLIENTS_S = (gateway.FRESH_READ_WAIT_S, gate.WAIT_S)


@contextmanager
def patient() -> Iterator[None]:
    """Reads show what was stored before them, and writes are not given up, however slow the machine is."""
    with _waiting(VIEWS_WAIT_S, VIEWS_WAIT_S):
        yield


@contextmanager
def hurried() -> Iterator[None]:
    """As clients have it: for as long as the views cannot catch up."""
    with _waiting(*_FOR_CLIENTS_S):
        yield


@contextmanager
def patient_for_parser() -> Iterator[None]:
    """A final heartbeat is answered once the log is parsed to its end. Only where a parser runs, and gets there."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reporting, "PARSED_WAIT_S", VIEWS_WAIT_S)
        yield


@contextmanager
def _waiting(reads_s: float, writes_s: float) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gateway, "FRESH_READ_WAIT_S", reads_s)
        patched.setattr(gate, "WAIT_S", writes_s)
        yield
