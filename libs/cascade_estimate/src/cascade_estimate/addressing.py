"""Where an address lives: L2 slice and DRAM channel (`-gpgpu_mem_addr_mapping`).

The mapping is written from the highest bit down: D channel, B bank, R row, C column, S byte in a burst.
`dramid@8` puts the channel at bit 8; with a number of channels that is no power of two the address above bit
8 is divided by it instead. The lowest bank bits choose the slice of the channel.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from cascade_estimate.coalesce import LINE_SHIFT
from cascade_estimate.config import GpuSpec

_REMEMBERED_LINES = 1 << 16


class Location(NamedTuple):
    """L2 slice (over all channels) and DRAM channel."""

    slice: int
    channel: int


class AddressMap:
    """Decodes 128-byte line numbers for one config; `known` keeps results per line, for the latest of them."""

    def __init__(self, spec: GpuSpec) -> None:
        channel_bit, _, letters = spec.address_mapping.partition(";")
        self.channel_bit = int(channel_bit.removeprefix("dramid@"))
        bits = letters.replace(".", "").replace("|", "").replace(" ", "")[::-1]
        self.channels = spec.channels
        self._slices = spec.slices_per_channel
        self._slice_count = spec.slices
        self._hash_bits = spec.hash_bits
        self._hashes = _remainders(spec.hash_bits)
        # What is hashed lies above channel and slice bits; where the channel is a remainder it is the whole
        # quotient, slice bits included (gpgpu-sim's addrdec.cc, addrdec_tlx).
        self._hash_above = 1 if spec.channels & (spec.channels - 1) else spec.slices_per_channel
        # Line-number bits that are the lowest bank bits: below the channel bit as they are, above it after
        # the channel was taken out.
        picks = [bit for bit, letter in enumerate(bits) if letter in "Bb"][
            : (spec.slices_per_channel - 1).bit_length()
        ]
        self._low_picks = [
            (bit - LINE_SHIFT, place) for place, bit in enumerate(picks) if bit < self.channel_bit
        ]
        self._high_picks = [
            (bit - self.channel_bit, place) for place, bit in enumerate(picks) if bit >= self.channel_bit
        ]
        self._line_shift = max(self.channel_bit - LINE_SHIFT, 0)
        self._places = [Location(one, one // spec.slices_per_channel) for one in range(spec.slices)]
        self.known: dict[int, Location] = {}

    @property
    def folded(self) -> float:
        """Load of the busiest slices over the mean.

        The hash numbers a power of two of slices; numbers beyond those that exist come back to the first ones,
        which then serve twice as much as the others (1.5 times the mean for 48 slices).
        """
        slices, numbers = self._slice_count, 1 << self._hash_bits
        return -(-numbers // slices) * slices / numbers if numbers > slices else 1.0

    def locate(self, line: int) -> Location:
        """Location of a 128-byte line."""
        found = self.known.get(line)
        if found is None:
            if len(self.known) >= _REMEMBERED_LINES:
                self.known.clear()
            found = self.known[line] = self._locate(line)
        return found

    def _locate(self, line: int) -> Location:
        above, channel = divmod(line >> self._line_shift, self.channels)
        bank = 0
        for bit, place in self._low_picks:
            bank |= (line >> bit & 1) << place
        for bit, place in self._high_picks:
            bank |= (above >> bit & 1) << place
        slice_index = channel * self._slices + bank
        if self._hashes is not None:
            # -gpgpu_memory_partition_indexing: pseudo-random interleaving (Rau, ISCA 1991), the remainder of
            # the address by an irreducible polynomial; numbers beyond the slices fold back to the first.
            first, second, third = self._hashes
            high = above // self._hash_above
            slice_index ^= first[high & 255] ^ second[high >> 8 & 255] ^ third[high >> 16 & 255]
            slice_index %= self._slice_count
        return self._places[slice_index]


@lru_cache(maxsize=4)
def address_map(spec: GpuSpec) -> AddressMap:
    """The map of a config, with what it knows of lines already: kernels that follow each other use the same buffers."""
    return AddressMap(spec)


_POLYNOMIALS = {4: 0b10011, 5: 0b100101, 6: 0b1000011}  # gpgpu-sim's hashing.cc, ipoly_hash_function


@cache
def _remainders(width: int) -> tuple[tuple[int, ...], ...] | None:
    """For each of three bytes of the address's high part, its contribution to the remainder; None without a hash."""
    polynomial = _POLYNOMIALS.get(width)
    if polynomial is None:
        return None

    def remainder(value: int) -> int:
        while value >> width:
            value ^= polynomial << value.bit_length() - width - 1
        return value

    return tuple(tuple(remainder(byte << 8 * place + width) for byte in range(256)) for place in range(3))
