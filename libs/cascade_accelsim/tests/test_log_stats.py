"""What counts as a pair in a statistics block, shape by shape."""

import pytest
from cascade_accelsim.log.stats import block_stats


@pytest.mark.parametrize(
    ("line", "stats"),
    [
        ("gpu_stall_icnt2sh    = 0", {"gpu_stall_icnt2sh": 0.0}),
        ("gpu_total_sim_rate=114688", {"gpu_total_sim_rate": 114688.0}),
        ("Accepted flit rate average= 0.00889401", {"Accepted flit rate average": 0.00889401}),
        ("total dram reads = 4096", {"total dram reads": 4096.0}),
        ("maxmflatency = 365 ", {"maxmflatency": 365.0}),
        ("\tL1D_total_cache_miss_rate = 1.0000", {"L1D_total_cache_miss_rate": 1.0}),
        ("gpgpu_stall_shd_mem[gl_mem][coal_stall] = 768", {"gpgpu_stall_shd_mem[gl_mem][coal_stall]": 768.0}),
        ("traffic[GLOBAL_ACC_W] = 245760 {40:6144,}", {"traffic[GLOBAL_ACC_W]": "245760 {40:6144,}"}),
        ("L2_BW  =      36.5092 GB/Sec", {"L2_BW": "36.5092 GB/Sec"}),
        ("gpu_occupancy = -nan% ", {"gpu_occupancy": "-nan%"}),
        ("min_bank_accesses = 0!", {"min_bank_accesses": "0!"}),
        ("\tminimum = 0 (at node 8)", {"minimum": "0 (at node 8)"}),
        ("kernel_launch_uid = ", {"kernel_launch_uid": ""}),
        ("In Dram Latency Queue (total = 3): ", {"In Dram Latency Queue: total": 3.0}),
        ("mrqq: max=22 avg=0.723622", {"mrqq: max": 22.0, "mrqq: avg": 0.723622}),
        ("n_activity=0 dram_eff=-nan", {"n_activity": 0.0, "dram_eff": "-nan"}),
        ("DRAM[0]: 16 bks, busW=2 BL=16 CL=24, tRRD=12", {"busW": 2.0, "BL": 16.0, "CL": 24.0, "tRRD": 12.0}),
        (
            "\tL1D_cache_core[0]: Access = 768, Miss = 7, Miss_rate = -nan, Pending_hits = 0",
            {
                "L1D_cache_core[0]: Access": 768.0,
                "L1D_cache_core[0]: Miss": 7.0,
                "L1D_cache_core[0]: Miss_rate": "-nan",
                "L1D_cache_core[0]: Pending_hits": 0.0,
            },
        ),
        ("odd = a == b", {"odd": "a == b"}),
    ],
)
def test_a_line_gives_its_pairs(line: str, stats: dict[str, float | str]) -> None:
    assert block_stats(line) == stats


@pytest.mark.parametrize(
    "line",
    [
        "========= Core cache stats =========",
        "average row locality = 0/0 = -nan",
        "bank skew: 16/16 = 1.00",
        "thread block = 0,0,0",
        "cluster rank = 1",
        "-kernel name = _Z3foo",
        "-trace_components  none # Default = none",
        "  mf: uid=  6554, sid17:w01, part=0, addr=0x7f1af6164040, load , size=32, GLOBAL_R status = X (6170), 0x0120",
        "MSHR: tag=0xf6704000, atomic=0 1 entries : 0x55bd668474e0 :  mf: uid=  3197, sid07:w00",
        "Stall:17704\tW0_Idle:11416",
        "dram[0]:        365       365         0",
        " = 5",
        "x" * 300 + " = 5",
    ],
)
def test_a_line_that_only_looks_like_a_pair_gives_none(line: str) -> None:
    assert block_stats(line) == {}


@pytest.mark.parametrize(
    "text",
    ["nan", "-nan", "Nan", "inf", "-Infinity", "1e400", "0x10", "1_000", "٣", "12%", "3 GB/Sec", "none"],
)
def test_what_is_no_finite_number_stays_text(text: str) -> None:
    assert block_stats(f"key = {text}") == {"key": text}


@pytest.mark.parametrize(("text", "number"), [("-1846394022", -1846394022.0), ("1e-3", 0.001), (" 7 ", 7.0)])
def test_finite_numbers_are_floats(text: str, number: float) -> None:
    assert block_stats(f"key = {text}") == {"key": number}


def test_the_last_of_repeated_keys_wins_however_it_is_spaced() -> None:
    assert block_stats("a = 1\na= 2\n\ta   = 3") == {"a": 3.0}


def test_a_key_alone_on_its_line_wins_over_the_same_key_among_several() -> None:
    assert block_stats("n_nop = 5 \nn_cmd=8 n_nop=7") == {"n_nop": 5.0, "n_cmd": 8.0}


def test_control_characters_and_lone_surrogates_are_not_kept() -> None:
    assert block_stats("k\x07e\x00y\tz = a\x08\tb\ud800") == {"key z": "a b\ufffd"}
