"""Whether "not found" is true, or only what views that lack something say.

A simulator stops for good on a 404, so none may be sent while the views are still filled. But under load the views are
always a little behind what is being stored, and that says nothing about what the caller asked for: what counts is
whether they hold all that was stored before the look.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from cascade_core.errors import NotFound

from cascade_api.read_models.gate import ProjectionGate


@contextmanager
def judged(gate: ProjectionGate) -> Iterator[None]:
    """A NotFound leaves the block certain where the views hold all that was stored before the block began."""
    expected = gate.expected
    try:
        yield
    except NotFound as error:
        error.certain = error.certain or gate.position >= expected
        raise
