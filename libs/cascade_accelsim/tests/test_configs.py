"""The registry of GPU configs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cascade_accelsim.configs import GpuConfig, arch_of, discover, parse_options
from cascade_accelsim.configs_io import TESTED_CONFIGS, read_configs

Case = tuple[dict[str, Any], Path]


def test_the_case_of_comments_and_spellings_is_read_as_it_says(case: Callable[[str], Case]) -> None:
    given, folder = case("configs-comments-and-spellings")
    registry = read_configs(folder / given["input"]["accelsim_dir"])
    expect = given["expect"]
    assert [
        {"name": config.name, "arch": config.arch, "core_clock_mhz": config.core_clock_mhz}
        for config in registry.configs
    ] == expect["configs"]
    assert {skipped.name for skipped in registry.skipped} == set(expect["skipped"])
    assert all(skipped.reason for skipped in registry.skipped)


def test_later_settings_win_and_values_may_stand_anywhere() -> None:
    text = '-a 1 # -a 2\n-b\n\n  2 -c "x  y\nz" -d -1 -e -f 0\n-a\t3\r\n -inter_config_file "f.icnt"\n-last'
    assert parse_options(text) == {
        "-a": "3",
        "-b": "2",
        "-c": "x y z",
        "-d": "-1",
        "-e": "",
        "-f": "0",
        "-inter_config_file": "f.icnt",
        "-last": "",
    }


@pytest.mark.parametrize("text", ['"', '-a "', '-a "x', "###", "-", "", "\x00 -a \x00"])
def test_odd_text_never_raises(text: str) -> None:
    parse_options(text)


@pytest.mark.parametrize(
    ("directory", "arch"),
    [
        ("SM90_H100", "sm_90"),
        ("SM7_QV100", "sm_70"),
        ("SM120_RTX5070", "sm_120"),
        ("SM86", "sm_86"),
        ("SM80_A100_9f767fb", "sm_80"),
        ("TeslaC2050", None),
        ("SM_X", None),
        ("clustersim_SM90_H100", None),
        ("SM9000_X", None),
    ],
)
def test_the_architecture_comes_from_the_directory_name(directory: str, arch: str | None) -> None:
    assert arch_of(directory) == arch


@pytest.mark.parametrize(
    "clock", ["0:0:0:0", "auto:1:1:1", "-5:1:1:1", "nan:1:1:1", "1e999:1:1:1", ":::", ""]
)
def test_a_clock_that_cannot_turn_cycles_into_time_skips_the_config(clock: str) -> None:
    registry = discover(
        [("SM90_X", f"-gpgpu_clock_domains {clock}"), ("SM80_Y", "-gpgpu_clock_domains 1410:1:1:1")]
    )
    assert registry.configs == (GpuConfig("SM80_Y", "sm_80", 1410.0),)
    assert "above 0" in registry.skipped[0].reason


def test_five_clock_fields_are_read_as_the_simulator_does() -> None:
    registry = discover([("SM89_RTX4060TI", "-gpgpu_clock_domains 1620:1620:1620:1593:1620")])
    assert registry.by_name()["SM89_RTX4060TI"].core_clock_mhz == 1620.0


def test_a_missing_folder_gives_an_empty_registry_that_says_so(tmp_path: Path) -> None:
    registry = read_configs(tmp_path)
    assert registry.configs == ()
    assert "cannot be listed" in registry.skipped[0].reason


def test_the_folder_of_the_reference_material_is_read(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / TESTED_CONFIGS
    folder.parent.mkdir(parents=True)
    folder.symlink_to(shared / "accelsim" / "tested-cfgs")
    clocks = {config.name: config.core_clock_mhz for config in read_configs(tmp_path).configs}
    assert clocks == {
        "SM6_TITANX": 1417.0,
        "SM75_RTX2060": 1365.0,
        "SM7_QV100": 1132.0,
        "SM7_TITANV": 1200.0,
        "SM80_A100": 1410.0,
        "SM80_A100_9f767fb": 1410.0,
        "SM86_RTX3070": 1132.0,
        "SM90_H100": 1980.0,
        "SM90_H100_2024": 1132.0,
        "SM90_H200": 1980.0,
        "SM90_H200_baf2b8f": 1980.0,
    }
