"""Which kernel a block belongs to.

With concurrent kernels a block's own lines name every kernel that started since the block before, or none; only
`Destroy streams for kernel N` just before it tells which one finished. Without them the block names its one kernel.
"""

import re
from dataclasses import dataclass
from typing import Final

from cascade_accelsim.text import clean

MAX_IN_FLIGHT: Final = 1024
"""Launched kernels whose end has not been seen. The simulator's own window is 128."""
_UID: Final = re.compile(r"\d{1,18}")


@dataclass(frozen=True, slots=True)
class Finished:
    """The kernel behind one block."""

    launch_uid: int | None
    """The uid printed in the block; None when it names none or several."""
    uid: int | None
    name: str | None
    overlapped: bool
    """Other kernels were in flight, or the block is not about the one kernel that it names."""


class Flight:
    """Kernels launched and not yet finished, in launch order."""

    def __init__(self) -> None:
        self.in_flight: dict[int, str] = {}
        self.destroyed: list[int] = []

    def launched(self, uid: int, name: str) -> None:
        if len(self.in_flight) >= MAX_IN_FLIGHT:
            del self.in_flight[next(iter(self.in_flight))]
        self.in_flight[uid] = name

    def destroyed_streams(self, uid: int) -> None:
        """`Destroy streams for kernel uid`; keeps the last `MAX_IN_FLIGHT`."""
        self.destroyed = [*self.destroyed[1 - MAX_IN_FLIGHT :], uid]

    def finish(self, printed_uids: float | str | None) -> Finished:
        """Take the kernel that a block is about out of flight. `printed_uids` is the block's `kernel_launch_uid`."""
        uids = _uids(printed_uids)
        only = uids[0] if len(uids) == 1 else None
        uid = self.destroyed[-1] if self.destroyed and only not in self.destroyed else only
        name = None if uid is None else self.in_flight.get(uid)
        for gone in self.destroyed if uid is None else [*self.destroyed, uid]:
            self.in_flight.pop(gone, None)
        self.destroyed = []
        named_otherwise = printed_uids is not None and (only is None or only != uid)
        return Finished(
            launch_uid=only, uid=uid, name=name, overlapped=named_otherwise or bool(self.in_flight)
        )


def launch_line(rest: str) -> tuple[str, int | None]:
    """Name and uid of a launch line, of which `rest` follows `launching kernel name:`.

    The name ends at the last ` uid: `: a demangled name may hold anything, and newer builds add ` cuda_stream_id: N`.
    """
    name, found, after = rest.rpartition(" uid: ")
    if not found:
        return clean(rest), None
    uid = _UID.match(after)
    return clean(name), int(uid[0]) if uid else None


def uid_in(text: str) -> int | None:
    """The uid that `text` begins with."""
    uid = _UID.match(text.lstrip())
    return int(uid[0]) if uid else None


def _uids(printed: float | str | None) -> list[int]:
    if printed is None:
        return []
    if isinstance(printed, float):
        return [int(printed)] if printed.is_integer() and 0 <= printed < 2**63 else []
    return [int(uid) for uid in printed.split() if uid.isascii() and uid.isdecimal() and len(uid) <= 18]
