"""Kernel lists: `kernelslist.g` and the tracer's raw lists.

The simulator takes the lines that begin with `MemcpyHtoD` or `kernel` and ignores every other one in silence
(comments, `MemcpyDtoH`), so these are not kernels here either.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memcpy:
    """A copy to the device before the next kernel."""

    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class KernelsList:
    """A list in its order. `kernels` are file names beside the list."""

    kernels: tuple[str, ...]
    memcpys: tuple[Memcpy, ...]
    ignored: tuple[str, ...]
    """Lines that the simulator skips, or would die on (a copy without address or size)."""

    @property
    def kernel_count(self) -> int:
        return len(self.kernels)


def parse_kernels_list(text: str) -> KernelsList:
    """Read a list. Never raises; what is neither kernel nor copy is in `ignored`."""
    kernels: list[str] = []
    memcpys: list[Memcpy] = []
    ignored: list[str] = []
    for raw in text.split("\n"):
        line = raw.strip()
        if line.startswith("kernel"):
            kernels.append(line)
        elif (memcpy := _memcpy(line)) is not None:
            memcpys.append(memcpy)
        elif line:
            ignored.append(line)
    return KernelsList(tuple(kernels), tuple(memcpys), tuple(ignored))


def _memcpy(line: str) -> Memcpy | None:
    """`MemcpyHtoD,0x00007f1af6000000,65536`"""
    fields = line.split(",")
    if fields[0] != "MemcpyHtoD" or len(fields) != 3:
        return None
    try:
        return Memcpy(address=int(fields[1], 16), size_bytes=int(fields[2]))
    except ValueError:
        return None
