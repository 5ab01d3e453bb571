"""How many scenarios may wait for the same kind of thing at once. One too many is told so before anything is done."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cascade_api.scenarios.errors import TooManyWaiting


@dataclass(slots=True)
class Places:
    """A bounded number of places that nobody queues for."""

    most: int
    waiting_for: str
    """What they wait for, as a refusal says it."""
    taken: int = 0

    def check(self) -> None:
        """Raises TooManyWaiting where none is free."""
        if self.taken >= self.most:
            raise TooManyWaiting(
                f"{self.taken} scenarios wait for {self.waiting_for} already; try again in a moment"
            )

    @contextmanager
    def one(self) -> Iterator[None]:
        """A place for the length of the block. Raises TooManyWaiting."""
        self.check()
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1
