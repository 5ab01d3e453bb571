"""Where an address lives: L2 slice, DRAM channel, bank and row (`-gpgpu_mem_addr_mapping`).

The mapping is written from the highest bit down: D channel, B bank, R row, C column, S byte in a burst.
`dramid@8` puts the channel at bit 8; with a number of channels that is no power of two the address above bit
8 is divided by it instead. The lowest bank bits choose the slice of the channel.
"""

from __future__ import annotations

from dataclasses import dataclass

from cascade_estimate.config import GpuSpec
from cascade_estimate.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Location:
    """Slice (over all channels), channel, bank, row."""

    slice: int
    channel: int
    bank: int
    row: int


class AddressMap:
    """Decodes 128-byte line numbers for one config; results are kept per line."""

    def __init__(self, spec: GpuSpec) -> None:
        text = spec.address_mapping
        found_at = text.partition(";")
        try:
            self._channel_bit = int(found_at[0].removeprefix("dramid@"))
        except ValueError:
            raise ConfigError(
                "-gpgpu_mem_addr_mapping", f"'dramid@<bit>;<bits>' expected, found {text!r}"
            ) from None
        bits = found_at[2].replace(".", "")[::-1]
        self._channels = spec.channels
        self._slices = spec.slices_per_channel
        self._hash = spec.partition_hash
        self._slice_width = (spec.channels - 1).bit_length() + (spec.slices_per_channel - 1).bit_length()
        self._banks = [bit for bit, letter in enumerate(bits) if letter in "Bb"]
        self._rows = [bit for bit, letter in enumerate(bits) if letter in "Rr"]
        self._known: dict[int, Location] = {}

    def locate(self, line: int) -> Location:
        """Location of a 128-byte line."""
        found = self._known.get(line)
        if found is None:
            found = self._known[line] = self._locate(line)
        return found

    def _locate(self, line: int) -> Location:
        address = line << 7
        above = address >> self._channel_bit
        channel, above = above % self._channels, above // self._channels
        rest = above << self._channel_bit | address & ((1 << self._channel_bit) - 1)
        bank = 0
        for place, bit in enumerate(self._banks):
            bank |= (rest >> bit & 1) << place
        row = 0
        for place, bit in enumerate(self._rows):
            row |= (rest >> bit & 1) << place
        slice_index = channel * self._slices + bank % self._slices
        if self._hash:
            # -gpgpu_memory_partition_indexing: pseudo-random interleaving (Rau, ISCA 1991), the remainder of
            # the address by an irreducible polynomial; a number of slices that is no power of two folds what
            # lies beyond.
            slice_index = _remainder(above // self._slices, slice_index, self._slice_width) % (
                self._channels * self._slices
            )
            channel = slice_index // self._slices
        return Location(slice_index, channel, bank, row)


_POLYNOMIALS = {4: 0b10011, 5: 0b100101, 6: 0b1000011, 7: 0b10000011, 8: 0b100011101}


def _remainder(high: int, low: int, width: int) -> int:
    polynomial = _POLYNOMIALS.get(width)
    if polynomial is None:
        return low
    value = (high & 0xFFFFF) << width | low
    while value >> width:
        value ^= polynomial << value.bit_length() - width - 1
    return value
