"""The GPU as the model sees it, read from a gpgpusim.config with its trace.config.

Every field names the option that it comes from. Missing options that the model cannot do without are an
error that names the key; options with a sound fallback leave a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cascade_accelsim.configs import parse_options

from cascade_estimate.errors import ConfigError
from cascade_estimate.opcodes import Unit
from cascade_estimate.options import Options, whole

SECTOR_BYTES = 32
_MOST_PARTS = 1 << 12  # of what is counted one by one: channels, schedulers, collectors
_MOST_SLICES = 1 << 16  # of L2, over all channels
_LINE_BYTES = 128
_ADDRESS_BITS = 64
_LINE_BITS = 7  # of an address within a line: a line lies in one channel and slice
_CLOCKS_MHZ = (1.0, 1e5)
_HASHED_BITS = (4, 5, 6)  # for which gpgpu-sim's hashing.cc defines the polynomial hash
_POLYNOMIAL_MODULO = (
    6  # of -gpgpu_memory_partition_indexing: hashed over the largest power of two in the number
)


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache's geometry (`-gpgpu_cache:dl1`, `-gpgpu_cache:dl2` of one slice)."""

    sets: int
    line_bytes: int
    ways: int
    mshr_entries: int
    mshr_merges: int
    miss_queue: int

    @property
    def size_bytes(self) -> int:
        """Capacity in bytes."""
        return self.sets * self.line_bytes * self.ways


@dataclass(frozen=True, slots=True)
class Timing:
    """DRAM timing in DRAM command cycles (`-gpgpu_dram_timing_opt`)."""

    banks: int
    rrd: int
    rcd: int
    rc: int
    cl: int
    ccdl: int


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """A GPU config. Clocks are in MHz, latencies in core cycles unless the name says otherwise."""

    arch: str
    core_mhz: float
    icnt_mhz: float
    l2_mhz: float
    dram_mhz: float
    clusters: int
    cores_per_cluster: int
    launch_latency: int
    block_launch_latency: int
    threads_per_core: int
    blocks_per_core: int
    registers_per_core: int
    shared_bytes_per_core: int
    schedulers: int
    latency: tuple[int, ...]
    interval: tuple[int, ...]
    collectors_per_scheduler: int
    bank_reads_per_step: int
    read_steps_per_cycle: int
    adaptive_l1: bool
    shared_options_kb: tuple[int, ...]
    unified_l1_kb: int
    l1: Cache
    l1_latency: int
    l1_banks: int
    l1_bypass_global: bool
    flush_l1: bool
    shared_latency: int
    channels: int
    slices_per_channel: int
    partition_hash: int
    crossbar_buffer: int
    l2: Cache
    l2_latency: int
    dram_latency: int
    dram_atom_bytes: int
    dram_burst_cycles: float
    dram_timing: Timing
    address_mapping: str
    notes: tuple[str, ...]

    @property
    def cores(self) -> int:
        """Streaming multiprocessors."""
        return self.clusters * self.cores_per_cluster

    @property
    def slices(self) -> int:
        """L2 slices (sub-partitions)."""
        return self.channels * self.slices_per_channel

    @property
    def hash_bits(self) -> int:
        """Low bits of a slice's number over which addresses are hashed, 0 for consecutive slices."""
        return _hash_bits(self.partition_hash, self.channels, self.slices_per_channel)

    @property
    def hashed(self) -> bool:
        """Whether addresses are hashed over the slices."""
        return self.hash_bits > 0

    @classmethod
    def from_config(cls, text: str, trace_config: str = "") -> GpuSpec:
        """Read a config.

        Args:
            text: gpgpusim.config; it may hold the options of trace.config too.
            trace_config: trace.config, read after `text`, so that it wins where both set an option.

        Raises:
            ConfigError: naming the key that is missing or has the wrong form.
        """
        options = Options(parse_options(text + "\n" + trace_config))
        return _spec(options)


def _cache(options: Options, key: str) -> Cache:
    value = options.text(key)
    found = re.match(r"(?:([NS]):)?(\d+):(\d+):(\d+),[^,]*,[A-Z]:(\d+):(\d+),(\d+)", value)
    if found is None:
        raise ConfigError(
            key,
            f"<sector>:<sets>:<line>:<ways>,...,<mshr>:<entries>:<merges>,<queue> expected, found {value[:60]!r}",
        )
    sectors, *sizes = found.groups()
    sets, line, ways, entries, merges, queue = (whole(key, part) for part in sizes)
    if 0 in (sets, line, ways, entries):
        raise ConfigError(key, f"sizes of at least 1 expected, found {value[:60]!r}")
    if sectors != "S" or line != _LINE_BYTES:
        options.notes.append(
            f"{key} {value[:60]} is taken as lines of {_LINE_BYTES} bytes in sectors of {SECTOR_BYTES}"
        )
    return Cache(sets, line, ways, entries, max(merges, 1), max(queue, 1))


def _timing(options: Options) -> Timing:
    key = "-gpgpu_dram_timing_opt"
    values: dict[str, int] = {}
    for part in options.text(key).replace('"', "").split(":"):
        name, equals, number = part.strip().partition("=")
        if not equals:
            raise ConfigError(key, f"name=cycles pairs expected, found {part.strip()[:60]!r}")
        values[name.strip()] = whole(key, number)
    try:
        return Timing(
            banks=max(values["nbk"], 1),
            rrd=values["RRD"],
            rcd=values["RCD"],
            rc=values["RC"],
            cl=values["CL"],
            ccdl=values["CCDL"] if "CCDL" in values else values["CCD"],
        )
    except KeyError as missing:
        raise ConfigError(key, f"the timing {missing.args[0]} is missing") from None


def _latencies(options: Options) -> tuple[tuple[int, ...], tuple[int, ...]]:
    latency = [1] * len(Unit)
    interval = [1] * len(Unit)

    def put(unit: Unit, key: str, fallback: str) -> None:
        values = options.integers(key, fallback, noted=True)
        if len(values) < 2:
            raise ConfigError(key, "<latency>,<initiation interval> expected")
        # An interval of 0 (the 2026 Hopper config's tensor unit) would mean unlimited rate: the pipeline
        # starts one a cycle.
        latency[unit], interval[unit] = max(values[0], 1), max(values[1], 1)

    named = {
        "BRA": (Unit.BRANCH, "4,4"),
        "TEX": (Unit.TEXTURE, "200,4"),
        "TENSOR": (Unit.TENSOR, "32,32"),
        "UDP": (Unit.UNIFORM, "4,1"),
    }
    put(Unit.INT, "-trace_opcode_latency_initiation_int", "4,2")
    put(Unit.SP, "-trace_opcode_latency_initiation_sp", "4,2")
    put(Unit.SFU, "-trace_opcode_latency_initiation_sfu", "21,8")
    put(Unit.DP, "-trace_opcode_latency_initiation_dp", "8,4")
    for number in range(1, 9):
        unit_text = options.text(f"-specialized_unit_{number}", "")
        name = unit_text.rsplit(",", 1)[-1].strip()
        if name in named:
            unit, fallback = named.pop(name)
            put(unit, f"-trace_opcode_latency_initiation_spec_op_{number}", fallback)
    for name, (unit, fallback) in named.items():
        latency[unit], interval[unit] = (int(part) for part in fallback.split(","))
        if name != "UDP":
            options.notes.append(
                f"no -specialized_unit_N is named {name}: latency,interval {fallback} assumed"
            )
    return tuple(latency), tuple(interval)


def _clocks(options: Options) -> tuple[float, float, float, float]:
    key = "-gpgpu_clock_domains"
    parts = options.text(key).split(":")
    try:
        values = [float(part) for part in parts[:4]]
    except ValueError:
        raise ConfigError(key, f"four clocks in MHz expected, found {':'.join(parts)[:60]!r}") from None
    low, high = _CLOCKS_MHZ
    if len(values) < 4 or not all(low <= value <= high for value in values):
        raise ConfigError(
            key, f"four clocks of {low:g} to {high:g} MHz expected, found {':'.join(parts)[:60]!r}"
        )
    return values[0], values[1], values[2], values[3]


def _mapping(options: Options) -> str:
    key = "-gpgpu_mem_addr_mapping"
    value = options.text(key)
    found = re.fullmatch(r"dramid@(\d{1,2});([0RBCSrbcs.| ]+)", value)
    if found is None or len(re.sub(r"[.| ]", "", found.group(2))) != _ADDRESS_BITS:
        raise ConfigError(
            key,
            f"'dramid@<bit>;' and {_ADDRESS_BITS} of the letters 0, R, B, C, S expected, found {value[:60]!r}",
        )
    within_line = re.sub(r"[.| ]", "", found.group(2))[-_LINE_BITS:]
    if not _LINE_BITS <= int(found.group(1)) < _ADDRESS_BITS or "B" in within_line.upper():
        raise ConfigError(
            key,
            f"channel and bank bits from {_LINE_BITS} to {_ADDRESS_BITS - 1} expected, found {value[:60]!r}",
        )
    return value


def _hash_bits(indexing: int, channels: int, slices_per_channel: int) -> int:
    """Bits of a slice's number that an indexing hashes; 0 for none, and where the hash is not defined for so many
    slices. The simulator's other hashes (1, 4, 5) are taken as the polynomial one."""
    slices = channels * slices_per_channel
    if not indexing:
        return 0
    if indexing == _POLYNOMIAL_MODULO:
        bits = (slices & -slices).bit_length() - 1
    else:
        bits = (channels - 1).bit_length() + (slices_per_channel - 1).bit_length()
    return bits if bits in _HASHED_BITS else 0


def _slices_per_channel(options: Options, channels: int) -> int:
    key = "-gpgpu_n_sub_partition_per_mchannel"
    found = options.integer(key, 1, least=1, most=_MOST_PARTS)
    if found & (found - 1) or found * channels > _MOST_SLICES:
        raise ConfigError(
            key,
            f"a power of two expected, and at most {_MOST_SLICES} slices with -gpgpu_n_mem {channels}, found {found}",
        )
    return found


_ASSUMED = {
    "-gpgpu_shmem_num_banks": "32",
    "-gpgpu_shmem_warp_parts": "1",
    "-gpgpu_shmem_limited_broadcast": "0",
    "-gpgpu_max_insn_issue_per_warp": "1",
    "-gpgpu_sub_core_model": "1",
    "-gpgpu_perfect_mem": "0",
    "-gpgpu_perfect_inst_const_cache": "1",
    "-gpgpu_dram_scheduler": "1",
    "-gpgpu_mem_address_mask": "1",
    "-gpgpu_flush_l2_cache": "0",
    "-gpgpu_concurrent_kernel_sm": "0",
}
"""Options that change the simulator's cycles and that the model does not look at, with what it takes for granted."""


def _spec(options: Options) -> GpuSpec:
    for key, assumed in _ASSUMED.items():
        options.assume(key, assumed)
    core, icnt, l2_clock, dram_clock = _clocks(options)
    latency, interval = _latencies(options)
    major, minor = (
        options.integer("-gpgpu_compute_capability_major", 0),
        options.integer("-gpgpu_compute_capability_minor", 0),
    )
    schedulers = options.integer("-gpgpu_num_sched_per_core", least=1, most=_MOST_PARTS)
    bus, burst = (
        options.integer("-gpgpu_dram_buswidth", least=1),
        options.integer("-gpgpu_dram_burst_length", least=1),
    )
    per_controller = options.integer("-gpgpu_n_mem_per_ctrlr", 1, least=1)
    ratio = options.integer("-dram_data_command_freq_ratio", 2, least=1)
    atom = bus * burst * per_controller
    banks = options.integer("-gpgpu_num_reg_banks", 16, least=1)
    shmem_default = options.integer("-gpgpu_shmem_size", least=0)
    channels = options.integer("-gpgpu_n_mem", least=1, most=_MOST_PARTS)
    per_channel = _slices_per_channel(options, channels)
    partition_hash = options.integer("-gpgpu_memory_partition_indexing", 0)
    if partition_hash and not _hash_bits(partition_hash, channels, per_channel):
        options.notes.append(
            f"-gpgpu_memory_partition_indexing {partition_hash} is not defined for {channels * per_channel} L2 slices "
            "(the simulator of 2024 stops): consecutive slices assumed"
        )
    return GpuSpec(
        arch=f"sm_{major}{minor}",
        core_mhz=core,
        icnt_mhz=icnt,
        l2_mhz=l2_clock,
        dram_mhz=dram_clock,
        clusters=options.integer("-gpgpu_n_clusters", least=1),
        cores_per_cluster=options.integer("-gpgpu_n_cores_per_cluster", 1, least=1),
        launch_latency=options.integer("-gpgpu_kernel_launch_latency", 0),
        block_launch_latency=options.integer("-gpgpu_TB_launch_latency", 0),
        threads_per_core=options.integer("-gpgpu_shader_core_pipeline", least=32),
        blocks_per_core=options.integer("-gpgpu_shader_cta", least=1),
        registers_per_core=options.integer("-gpgpu_shader_registers", least=1),
        shared_bytes_per_core=shmem_default,
        schedulers=schedulers,
        latency=latency,
        interval=interval,
        collectors_per_scheduler=max(
            options.integer("-gpgpu_operand_collector_num_units_gen", 8, most=_MOST_PARTS) // schedulers, 1
        ),
        bank_reads_per_step=max(banks // schedulers, 1),
        read_steps_per_cycle=options.integer("-gpgpu_reg_file_port_throughput", 1, least=1),
        adaptive_l1=options.integer("-gpgpu_adaptive_cache_config", 0) > 0,
        shared_options_kb=tuple(options.integers("-gpgpu_shmem_option", "0")),
        unified_l1_kb=options.integer("-gpgpu_unified_l1d_size", 0),
        l1=_cache(options, "-gpgpu_cache:dl1"),
        l1_latency=options.integer("-gpgpu_l1_latency", least=1),
        l1_banks=options.integer("-gpgpu_l1_banks", 1, least=1),
        l1_bypass_global=options.integer("-gpgpu_gmem_skip_L1D", 0) > 0,
        flush_l1=options.integer("-gpgpu_flush_l1_cache", 0) > 0,
        shared_latency=options.integer("-gpgpu_smem_latency", least=1),
        channels=channels,
        slices_per_channel=per_channel,
        partition_hash=partition_hash,
        crossbar_buffer=options.integer("-icnt_in_buffer_limit", 64, least=1),
        l2=_cache(options, "-gpgpu_cache:dl2"),
        l2_latency=options.integer("-gpgpu_l2_rop_latency", least=0),
        dram_latency=options.integer("-dram_latency", least=0),
        dram_atom_bytes=atom,
        dram_burst_cycles=burst / ratio * max(SECTOR_BYTES / atom, 1),
        dram_timing=_timing(options),
        address_mapping=_mapping(options),
        notes=tuple(options.notes),
    )
