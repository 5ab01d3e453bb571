"""Reads the run stream's wire format: `data:` lines, blank lines between events, `:` comments. Pure."""

from collections.abc import Iterator

from pydantic import ValidationError

from cascade_client.errors import UnexpectedAnswer
from cascade_client.wire.events import RUN_EVENT, RunEvent


class SseReader:
    """Cuts bytes, in pieces of any size, into events."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._lines: list[bytes] = []

    def feed(self, piece: bytes) -> Iterator[RunEvent]:
        """The events that `piece` completes. Raises UnexpectedAnswer."""
        # Only line feeds end a line: log text may hold any other separator.
        first, *others = piece.split(b"\n")
        self._rest.append(first)
        if not others:
            return  # joined once the line is complete: a snapshot is one line of megabytes
        *between, last = others
        lines = [b"".join(self._rest), *between]
        self._rest = [last]
        for line in lines:
            content = line.removesuffix(b"\r")
            if content:
                if content.startswith(b"data:"):
                    self._lines.append(content.removeprefix(b"data:").removeprefix(b" "))
            elif self._lines:
                body, self._lines = b"\n".join(self._lines), []
                yield _event(body)


def _event(body: bytes) -> RunEvent:
    try:
        return RUN_EVENT.validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        raise UnexpectedAnswer(
            f"the event stream holds an event that this client cannot read: {problem['msg']}"
        ) from error
