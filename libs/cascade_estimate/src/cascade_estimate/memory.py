"""The memory system as one core meets it: L1, crossbar, L2 slices and DRAM channels shared with the other
active cores.

Resources are servers with a time at which they are next free. What this core asks for, the other active
cores ask for too, so each request takes the slices and channels for as many cores as meet there; latency
under load is the backlog that results.
"""

# ruff: noqa: PLR1730, FURB136 - max() costs four times an if, and these run for every instruction

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from cascade_estimate.addressing import address_map
from cascade_estimate.coalesce import Footprint
from cascade_estimate.config import SECTOR_BYTES, GpuSpec
from cascade_estimate.meetings import Meeting, Party, Surroundings

# Stages between the core and a slice, in core cycles: injection queue, crossbar and ejection each way, then
# response queue, L1 fill and writeback. Together they explain the unloaded latency of dependent loads
# (`chase` in the accuracy report).
_REQUEST = 2
_RESPONSE = 2
_FILL = 6
_WRITE_BUFFER = 500.0  # cycles of write-backs that the slices' and channels' queues hold
_ROW_LINES = 16  # lines of a DRAM row that neighbouring accesses reach before it closes


@dataclass(slots=True)
class Traffic:
    """Busy core cycles of each resource and counts, for the explanation of an estimate."""

    port_busy: float = 0.0
    l2_busy: float = 0.0
    dram_busy: float = 0.0
    l1_sectors: int = 0
    l1_misses: int = 0
    l2_misses: int = 0
    atomics: int = 0


@dataclass(slots=True, eq=False)
class Burst:
    """L1 misses that queue behind each other: the time at which the last of them is answered, which later
    ones move on.

    Each cycle the L1 offers its banks in order a place in the miss queue, so the last bank's misses leave
    when those of the other banks are gone, whoever came first: warps whose loads queue together get their
    data together. `share` is the part of the queue that is ahead of a load for that reason.
    """

    end: float
    sectors: int
    share: float


@dataclass(frozen=True, slots=True)
class Origin:
    """The block that an access comes from: what is added to its line numbers where others do not share them,
    and the costs for as many cores as have such a block."""

    salt: int
    party: Party


class Memory:
    """One core's view of the memory system.

    `joined` is the burst that the last load joined, None if its misses left without waiting.
    """

    def __init__(self, spec: GpuSpec, around: Surroundings, l1_bytes: int) -> None:
        self.spec, self.around = spec, around
        self.traffic = Traffic()
        self._addresses = address_map(spec)
        self._known_places = self._addresses.known
        # Per line its valid sectors, oldest first, and when its last fill arrives.
        self._l1: dict[int, int] = {}
        self._l1_arrives: dict[int, float] = {}
        self._l1_lines = max(l1_bytes // 128, 1)
        # Per line its place in the order of first touches, and when DRAM's answer arrives.
        self._l2: dict[int, float] = {}
        self._l2_arrives: dict[int, float] = {}
        self._l2_stamp = 0.0
        # A miss leaves the L1 for the queue before the crossbar, a sector a cycle, and then the crossbar.
        self._left = 0.0
        self._port = 0.0
        self._answers = 0.0
        self._pool_l2 = 0.0
        self._pool_dram = 0.0
        self._slices = [0.0] * spec.slices
        self._channels = [0.0] * spec.channels
        timing = spec.dram_timing
        dram_cycle = spec.core_mhz / spec.dram_mhz
        self._l2_cycle = spec.core_mhz / spec.l2_mhz
        self._burst = spec.dram_burst_cycles * dram_cycle
        # A line lies in one bank, whose group takes a burst every CCDL cycles; other groups fill the gaps.
        bursts = max(SECTOR_BYTES // spec.dram_atom_bytes, 1)
        self._same_group = max(bursts * timing.ccdl * dram_cycle, self._burst)
        self._group_wait = self._same_group - self._burst
        self._activate = max(timing.rrd, timing.rc / timing.banks) * dram_cycle
        self._dram_access = spec.dram_latency + (timing.rcd + timing.cl) * dram_cycle
        self._request = _REQUEST + spec.l2_latency
        # The L1 holds a lookup per bank and latency stage beside its miss queue; beyond that the load-store
        # unit waits.
        self._slack = spec.l1_latency * spec.l1_banks + spec.l1.miss_queue
        self._parties: dict[int, Party] = {}
        self._bank_cycles: dict[Footprint, int] = {}
        self._written = around.written_share
        self._warm = around.warm
        self._salt = 0  # of the access under way
        self._warm_owed = [0.0] * len(around.warm)
        self._convoyed = False
        self._queue: Burst | None = None
        self._buffer = spec.crossbar_buffer * self.party(around.active).default.send_cost
        self.joined: Burst | None = None
        # Until the first answer is back the cores are in step: they have done the same so far.
        self._first_answer = inf
        self._in_step = True

    def party(self, cores: int) -> Party:
        """Costs of accesses that `cores` cores make at the same time."""
        found = self._parties.get(cores)
        if found is None:
            around = replace(self.around, active=cores)
            found = self._parties[cores] = Party.of(self.spec, around, self._addresses)
        return found

    def load(
        self, line: int, origin: Origin, footprint: Footprint, start: float, pc: int
    ) -> tuple[float, int]:
        """Time at which all lanes' data is there, and cycles that the load-store unit is taken."""
        meeting = origin.party.of_pc.get(pc, origin.party.default)
        cycles = self._cycles_in_l1(footprint)
        looked_up = start + self.spec.l1_latency
        done = looked_up + cycles
        lines = footprint.lines
        dense = _dense(lines)
        self._in_step = start < self._first_answer
        l1, traffic, most = self._l1, self.traffic, self._l1_lines
        arrives = self._l1_arrives
        traffic.l1_sectors += footprint.sectors
        self._salt = 0 if meeting.shared else origin.salt
        line += self._salt
        before = self._left
        misses = 0
        for offset, mask in lines:
            number = line + offset
            valid = l1.get(number)
            if valid is None:
                need = mask
                valid = 0
                if len(l1) >= most:
                    oldest = next(iter(l1))
                    del l1[oldest]
                    arrives.pop(oldest, None)
            else:
                need = mask & ~valid
                if len(l1) * 2 > most:
                    del l1[number]
            l1[number] = valid | need
            if need:
                sectors = need.bit_count()
                misses += sectors
                back = (
                    self._beyond_l1(number, sectors, looked_up + 1.0, meeting, write=False, dense=dense)
                    + _FILL
                )
                arrives[number] = back
                if back > done:
                    done = back
            else:
                back = arrives.get(number, 0.0)
                if back > done:
                    done = back
        self.joined = None
        if misses:
            if done < self._first_answer:
                self._first_answer = done
            traffic.l1_misses += misses
            self._join(before, looked_up, misses, done)
        return done, cycles + self._held(start + cycles)

    def _held(self, end: float) -> int:
        """Cycles beyond `end` for which the load-store unit is held up: by an L1 that is full of lookups, or by
        a full queue before the crossbar."""
        over = self._left - self._slack
        if over < self._port - self._buffer:
            over = self._port - self._buffer
        return int(over - end) if over > end else 0

    def _join(self, before: float, ready: float, sectors: int, done: float) -> None:
        """Let misses that are `ready` to leave the L1 join the burst that keeps it busy until `before`; `done` is
        when they would be answered if they left in order."""
        burst = self._queue
        if before <= ready + 1.0 + self.spec.l1.miss_queue:
            burst = None  # the miss queue had room for these
        elif burst is None or burst.sectors + sectors > self._slack:
            burst = self.joined = Burst(done, sectors, 1.0 - 1.0 / self.spec.l1_banks)
        else:
            if done > burst.end:
                burst.end = done
            burst.sectors += sectors
            self.joined = burst
        self._queue = burst

    def store(
        self, line: int, origin: Origin, footprint: Footprint, start: float, pc: int
    ) -> tuple[float, int]:
        """Time at which the last acknowledgement is back, and cycles that the load-store unit is taken."""
        meeting = origin.party.of_pc.get(pc, origin.party.default)
        cycles = self._cycles_in_l1(footprint)
        first = start + self.spec.l1_latency + 1.0
        l1, done = self._l1, first
        self._salt = 0 if meeting.shared else origin.salt
        line += self._salt
        before = self._left
        for offset, mask in footprint.lines:
            number = line + offset
            valid = l1.get(number)
            if valid is None:
                l1[number] = mask
                self._l1_arrives.pop(number, None)
                if len(l1) > self._l1_lines:
                    oldest = next(iter(l1))
                    del l1[oldest]
                    self._l1_arrives.pop(oldest, None)
            else:
                l1[number] = valid | mask
            back = self._beyond_l1(number, mask.bit_count(), first, meeting, write=True, dense=True)
            if back > done:
                done = back
        self._join(before, first - 1.0, footprint.sectors, done)
        return done, cycles + self._held(start + cycles)

    def invalidate_l1(self) -> None:
        """Forget what is in the L1, as a memory barrier does."""
        self._l1.clear()
        self._l1_arrives.clear()

    def past_l1(
        self, line: int, origin: Origin, footprint: Footprint, start: float, pc: int, *, write: bool
    ) -> tuple[float, int]:
        """The same for a load or store that goes straight to the crossbar, a sector a cycle."""
        meeting = origin.party.of_pc.get(pc, origin.party.default)
        self._salt = 0 if meeting.shared else origin.salt
        line += self._salt
        if not write:
            self._in_step = start < self._first_answer
        dense = write or _dense(footprint.lines)
        done = start
        for offset, mask in footprint.lines:
            back = self._beyond_l1(line + offset, mask.bit_count(), start, meeting, write=write, dense=dense)
            if back > done:
                done = back
        if not write:
            done += _FILL
            self._first_answer = min(self._first_answer, done)
        return done, footprint.sectors + self._held(start + footprint.sectors)

    def atomic(
        self, line: int, origin: Origin, footprint: Footprint, start: float, pc: int
    ) -> tuple[float, int]:
        """The same for an atomic, which skips the L1 and goes as one request per colliding lane."""
        meeting = origin.party.of_pc.get(pc, origin.party.default)
        self._salt = 0 if meeting.shared else origin.salt
        line += self._salt
        done = start
        self._in_step = start < self._first_answer
        per_line = footprint.transactions / max(len(footprint.lines), 1)
        self.traffic.atomics += footprint.transactions
        for offset, mask in footprint.lines:
            sectors = mask.bit_count()
            back = self._beyond_l1(
                line + offset, sectors, start, meeting, write=False, dense=True, weight=per_line / sectors
            )
            extra = per_line - sectors
            if extra > 0:
                self._port += extra
                self._answers += extra
                back = max(back, self._answers)
            done = max(done, back)
        return done + _FILL, max(int(self._port - start), 1)

    def _cycles_in_l1(self, footprint: Footprint) -> int:
        found = self._bank_cycles.get(footprint)
        if found is None:
            found = self._bank_cycles[footprint] = footprint.bank_cycles(self.spec.l1_banks)
        return found

    def _absent(self, line: int, meeting: Meeting, when: float) -> bool:
        """Whether a read of `line` misses L2; keeps the order of first touches."""
        stamp = self._l2.get(line)
        if stamp is None:
            self._l2[line] = self._l2_stamp
            self._l2_stamp += 1.0 / meeting.sharers
            if self._warm and self._is_warm(line - self._salt):
                return False
            if meeting.shared and meeting.meeting < meeting.sharers:
                # Not all sharers come at the same time: this core finds some of the lines already there.
                meeting.owed += meeting.meeting / meeting.sharers
                if meeting.owed < 1.0:
                    # Another core asked for it, at the earliest when this one asked for the first such line.
                    if meeting.began < 0.0:
                        meeting.began = when
                    self._l2_arrives[line] = meeting.began + self._dram_access
                    return False
                meeting.owed -= 1.0
            return True
        if self._l2_stamp - stamp > self.around.l2_lines:
            self._l2[line] = self._l2_stamp
            self._l2_stamp += 1.0 / meeting.sharers
            return True
        return False

    def _is_warm(self, line: int) -> bool:
        """Whether an earlier kernel left the line in L2; of sparsely touched ranges every n-th line is."""
        for number, warm in enumerate(self._warm):
            if warm.low <= line < warm.high:
                if line in warm.known:
                    return True
                self._warm_owed[number] += warm.density
                if self._warm_owed[number] >= 1.0:
                    self._warm_owed[number] -= 1.0
                    return True
        return False

    def _beyond_l1(  # noqa: PLR0915 - spelled out because it runs per line
        self,
        line: int,
        sectors: int,
        when: float,
        meeting: Meeting,
        *,
        write: bool,
        dense: bool,
        weight: float = 1.0,
    ) -> float:
        """Time at which the answer to `sectors` of `line`, ready to leave the core at `when`, is back."""
        traffic = self.traffic
        if meeting.convoy and not self._convoyed:
            self._convoyed = True  # once: afterwards the cores are out of step
            self._port = max(self._port, when) + meeting.convoy
        left = self._left
        if when > left:
            left = when
        self._left = left + sectors
        sent = self._port
        if left > sent:
            sent = left
        flits = sectors * meeting.send_cost
        self._port = sent + flits
        traffic.port_busy += flits
        at_slice = sent + self._request
        stamp = self._l2_stamp
        miss = self._absent(line, meeting, at_slice) and not write
        # L2: this core's part of the pooled slices, and the very slice where many cores meet in one line.
        pool = self._pool_l2
        if pool < at_slice:
            pool = at_slice
        start = pool
        busy = sectors * self._l2_cycle * weight
        load = busy * meeting.slice_share
        hold = busy * meeting.sharers
        turns = (meeting.meeting - 1.0) * (sectors - 0.5) * self._l2_cycle * weight
        if miss and (meeting.crowded or weight * meeting.meeting > self.spec.l2.mshr_merges):
            # More requests than an MSHR entry merges: for each sector the slice's queue waits for DRAM to
            # answer.
            blocked = self._dram_access * meeting.blocked(sectors, weight)
            hold += blocked
            turns += blocked - self._dram_access
            load += blocked * meeting.slice_share / meeting.meeting
        self._pool_l2 = pool + load
        traffic.l2_busy += load
        where, channel = self._known_places.get(line) or self._addresses.locate(line)
        own = self._slices[where]
        if own > start:
            start = own
        self._slices[where] = start + hold
        # The slice serves those who meet in turn, a sector each, so on average only half a turn is left
        # after this one.
        done = start + busy + turns
        if self._written and self._l2_stamp > stamp >= self.around.room_lines:
            done = self._evict(sectors, at_slice, done, meeting)
        if miss:
            traffic.l2_misses += sectors
            done = self._dram(line, sectors, done, channel, meeting, dense=dense)
        elif not write:
            arrives = self._l2_arrives.get(line)
            if arrives is not None and arrives > done:
                done = arrives
        answer = done + _RESPONSE
        answers = self._answers
        if answers < at_slice:
            answers = at_slice
        answers += sectors * meeting.answer_cost
        self._answers = answers
        return answers if answers > answer else answer

    def _evict(self, sectors: int, when: float, done: float, meeting: Meeting) -> float:
        """When an access is done that brings a line into a full L2: another one leaves and goes to DRAM if it
        was written. A slice that must write back before it allocates passes DRAM's pace on."""
        share = sectors * self._burst * self._written * meeting.channel_share / meeting.meeting
        self._pool_dram = max(self._pool_dram, when) + share
        self.traffic.dram_busy += share
        return max(done, self._pool_dram - _WRITE_BUFFER)

    def _dram(
        self, line: int, sectors: int, when: float, channel: int, meeting: Meeting, *, dense: bool
    ) -> float:
        service = sectors * self._burst
        opened = self._activate / _ROW_LINES if dense else self._activate
        if opened > service:
            service = opened
        share = service * meeting.channel_share / meeting.meeting
        self.traffic.dram_busy += share
        orbit = meeting.orbit(channel) if self._in_step else None
        if orbit is not None:
            # The other cores' accesses at this place go to these few channels: each takes its part.
            channels, each = self._channels, service * orbit.cores / meeting.meeting
            for member in orbit.channels:
                free = channels[member]
                channels[member] = (free if free > when else when) + each
            done = channels[channel] + self._dram_access
            self._l2_arrives[line] = done
            return done
        pool = self._pool_dram
        if pool < when:
            pool = when
        self._pool_dram = pool + share
        begin = self._channels[channel]
        if begin < pool:
            # Requests fall on channels and their bank groups by chance: of a backlog of n requests each, the
            # longest of the few queues in which a warp waits holds about the square root of n more.
            begin = pool + ((pool - when) * max(service, sectors * self._same_group)) ** 0.5
        self._channels[channel] = begin + service
        done = begin + service + self._dram_access + (sectors - 1) * self._group_wait
        self._l2_arrives[line] = done
        return done


def _dense(lines: tuple[tuple[int, int], ...]) -> bool:
    """Whether an access's lines are close enough to share DRAM rows."""
    return len(lines) < 2 or lines[-1][0] - lines[0][0] <= _ROW_LINES * len(lines)
