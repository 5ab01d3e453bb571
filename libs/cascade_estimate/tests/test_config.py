from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cascade_estimate import ConfigError, GpuSpec, load_spec
from cascade_estimate.occupancy import occupancy
from cascade_estimate.opcodes import Unit

_REQUIRED = [
    "-gpgpu_clock_domains",
    "-gpgpu_n_clusters",
    "-gpgpu_n_mem",
    "-gpgpu_shader_core_pipeline",
    "-gpgpu_cache:dl1",
    "-gpgpu_cache:dl2",
    "-gpgpu_dram_timing_opt",
    "-gpgpu_l1_latency",
    "-dram_latency",
]


def test_the_a100_config_is_read_as_it_states(spec: GpuSpec) -> None:
    assert (spec.arch, spec.cores, spec.slices, spec.core_mhz, spec.dram_mhz) == (
        "sm_80",
        108,
        160,
        1410.0,
        1512.0,
    )
    assert spec.l2.size_bytes * spec.slices == 40 << 20
    assert (spec.latency[Unit.TENSOR], spec.interval[Unit.TENSOR]) == (12, 8)
    assert spec.dram_atom_bytes * spec.channels * spec.dram_mhz / spec.dram_burst_cycles == pytest.approx(
        1_935_360
    )


@pytest.mark.parametrize("key", _REQUIRED)
def test_a_missing_key_is_named(texts: Callable[[str], tuple[str, str]], key: str) -> None:
    config, trace_config = texts("SM80_A100")
    without = "\n".join(line for line in config.split("\n") if not line.startswith(key + " "))
    with pytest.raises(ConfigError) as caught:
        GpuSpec.from_config(without, trace_config)
    assert key in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("-gpgpu_clock_domains", "1410:1410"),
        ("-gpgpu_clock_domains", "0:1:1:1"),
        ("-gpgpu_n_clusters", "none"),
        ("-gpgpu_n_clusters", "0"),
        ("-gpgpu_cache:dl1", "S:4:128"),
        ("-gpgpu_dram_timing_opt", "nbk=16:CCD=1"),
        ("-gpgpu_dram_timing_opt", "nbk"),
        ("-gpgpu_clock_domains", "1:1:1:1e-9"),
        ("-gpgpu_clock_domains", "nan:1410:1410:1512"),
        ("-gpgpu_num_sched_per_core", "99999999"),
        ("-gpgpu_n_sub_partition_per_mchannel", "99999999"),
        ("-gpgpu_mem_addr_mapping", "dramid@99;B"),
        ("-gpgpu_mem_addr_mapping", "dramid@3;" + "R" * 49 + "BBBCCCCBCCCSSSS"),
        ("-gpgpu_mem_addr_mapping", "dramid@8;" + "R" * 60 + "BSSS"),
    ],
)
def test_a_value_of_the_wrong_form_is_named(
    texts: Callable[[str], tuple[str, str]], key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        GpuSpec.from_config(texts("SM80_A100")[0] + f"\n{key} {value}\n")
    assert key in str(caught.value)


def test_without_a_trace_config_the_latencies_are_a_labelled_fallback(
    texts: Callable[[str], tuple[str, str]],
) -> None:
    spec = GpuSpec.from_config(texts("SM80_A100")[0])
    assert any("-trace_opcode_latency_initiation_int" in note for note in spec.notes)


def test_occupancy_follows_the_scarcest_resource(spec: GpuSpec) -> None:
    assert occupancy(spec, blocks=9999, threads=256, registers=28, shared_bytes=0).limiter == "threads"
    small = occupancy(spec, blocks=9999, threads=128, registers=255, shared_bytes=0)
    assert (small.blocks_per_core, small.limiter) == (2, "regs")
    shared = occupancy(spec, blocks=9999, threads=64, registers=16, shared_bytes=49152)
    assert (shared.blocks_per_core, shared.limiter, shared.l1_bytes) == (3, "shmem", 28672)


def test_every_bundled_config_is_read_by_name(bundled_configs: Path) -> None:
    folder = bundled_configs / "gpu-simulator/gpgpu-sim/configs/tested-cfgs"
    names = sorted(path.parent.name for path in folder.glob("*/gpgpusim.config"))
    specs = {name: load_spec(bundled_configs, name) for name in names}
    assert {"SM7_QV100", "SM75_RTX2060", "SM80_A100", "SM86_RTX3070", "SM90_H100", "SM90_H200"} <= set(specs)
    assert sum(spec.arch == "sm_80" for spec in specs.values()) >= 3
    assert not any(spec.notes for spec in specs.values())


@pytest.mark.parametrize("name", ["SM80_B100", "../SM80_A100", ""])
def test_an_unknown_config_is_refused_with_the_known_names(bundled_configs: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        load_spec(bundled_configs, name)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("-gpgpu_n_sub_partition_per_mchannel", "3"),
        ("-gpgpu_n_sub_partition_per_mchannel", "4096"),
        ("-gpgpu_cache:dl1", f"S:4:128:{'9' * 400},L:T:m:L:L,A:512:8,16:0,32"),
        ("-gpgpu_cache:dl2", f"S:4:128:64,L:B:m:L:P,A:{'9' * 5000}:8,16:0,32"),
        ("-gpgpu_dram_timing_opt", f"nbk=16:CCD=1:RRD=7:RCD=22:RC={'9' * 400}:CL=22"),
        ("-gpgpu_dram_timing_opt", "nbk=16:CCD=²:RRD=7:RCD=22:RC=72:CL=22"),
        ("-gpgpu_shmem_option", "0,8,-16"),
        ("-trace_opcode_latency_initiation_int", "9" * 14 + ",2"),
        ("-gpgpu_clock_domains", "9" * 400 + ":1:1:1"),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_a_line_that_names_the_key(
    texts: Callable[[str], tuple[str, str]], key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        GpuSpec.from_config("\n".join(texts("SM80_A100")) + f"\n{key} {value}\n")
    assert str(caught.value).startswith(key)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("-gpgpu_shmem_num_banks", "16"),
        ("-gpgpu_perfect_mem", "1"),
        ("-gpgpu_flush_l2_cache", "1"),
        ("-gpgpu_cache:dl1", "N:4:256:64,L:T:m:L:L,A:512:8,16:0,32"),
    ],
)
def test_an_option_that_the_model_does_not_look_at_is_noted(
    texts: Callable[[str], tuple[str, str]], key: str, value: str
) -> None:
    config, trace_config = texts("SM80_A100")
    noted = GpuSpec.from_config(config + f"\n{key} {value}\n", trace_config).notes
    assert [note for note in noted if note.startswith(f"{key} {value}")] == list(noted)


def test_a_timing_without_a_bank_group_takes_the_plain_column_delay(
    texts: Callable[[str], tuple[str, str]],
) -> None:
    timing = "nbk=16:CCD=2:RRD=7:RCD=22:RC=72:CL=22"
    config, trace_config = texts("SM80_A100")
    spec = GpuSpec.from_config(f"{config}\n-gpgpu_dram_timing_opt {timing}\n", trace_config)
    assert spec.dram_timing.ccdl == 2
