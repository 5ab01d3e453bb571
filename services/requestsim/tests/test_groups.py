"""Kernel names whose group is easily mistaken, and the launch that becomes the LM head."""

import pytest
from cascade_requestsim.groups import Group, grid_volume, group_of_name, group_step


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("_ZN4vllm30reshape_and_cache_flash_kernelIttLNS_18Fp8KVCacheDataTypeE0EEEv", Group.KV_WRITE),
        ("vllm::concat_and_cache_mla_kernel", Group.KV_WRITE),
        ("_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90", Group.ATTENTION),
        ("_ZN5flash32prepare_varlen_num_blocks_kernelEiii", Group.ATTENTION),
        ("fmha_cutlassF_f16_aligned_64x64_sm80", Group.ATTENTION),
        ("paged_softmax_v2", Group.ATTENTION),
        ("LM_HEAD_gemm", Group.LM_HEAD),
        ("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_9ArgMaxOpsIfEE", Group.SAMPLER),
        ("TopKTopPSamplingFromProbKernel", Group.SAMPLER),
        ("_ZN8cublasLt19splitKreduce_kernelILi32ELi16Eif6__half", Group.ELEMENTWISE),
        ("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_splitK_TNT", Group.LINEAR),
        ("_ZN8internal5gemvx6kernelIii6__halfS2_", Group.LINEAR),
        ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2", Group.LINEAR),
        ("vectorized_layer_norm_kernel", Group.ELEMENTWISE),
        ("", Group.ELEMENTWISE),
    ],
)
def test_the_first_matching_rule_wins(name: str, group: Group) -> None:
    assert group_of_name(name) is group


def test_the_last_linear_launch_is_the_lm_head_when_it_is_twice_the_median() -> None:
    assert group_step(["gemm"] * 3, ["4x1x1", "4x1x1", "4x2x1"]) == [
        Group.LINEAR,
        Group.LINEAR,
        Group.LM_HEAD,
    ]
    assert group_step(["gemm"] * 3, ["4x1x1", "4x1x1", "7x1x1"]) == [Group.LINEAR] * 3


def test_a_single_linear_launch_is_its_own_median() -> None:
    assert group_step(["gemm"], ["500x1x1"]) == [Group.LINEAR]


def test_a_named_lm_head_leaves_the_last_launch_linear() -> None:
    assert group_step(["gemm", "lm_head", "gemm"], ["1", "1", "99"]) == [
        Group.LINEAR,
        Group.LM_HEAD,
        Group.LINEAR,
    ]


def test_a_step_without_linear_launches_has_no_lm_head() -> None:
    assert group_step(["copy"], ["nonsense"]) == [Group.ELEMENTWISE]


@pytest.mark.parametrize(("grid", "volume"), [("24x1x1", 24), ("2x66x1", 132), ("7", 7)])
def test_a_grid_is_the_product_of_its_sides(grid: str, volume: int) -> None:
    assert grid_volume(grid) == volume


@pytest.mark.parametrize("grid", ["", "x", "1x2x3x4", "-1x1x1", "1.5x1x1", "0x1x1", "٣x1x1"])
def test_an_unreadable_grid_is_refused(grid: str) -> None:
    with pytest.raises(ValueError, match="grid"):
        grid_volume(grid)
