"""Names as the tracer and Nsight spell them."""

from __future__ import annotations

import pytest
from cascade_profiler.kernel_names import base_name, same_kernel


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("_ZN4demo8rms_normI6__halfLi4EEEvPKT_PS2_i", "rms_norm"),
        ("_Z10swiglu_actPK6__halfPS_i", "swiglu_act"),
        ("_Z12rms_norm_f16PK6__halfPS_if", "rms_norm_f16"),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEESt5arrayIPcLm1EEEEviT0_T1_",
            "vectorized_elementwise_kernel",
        ),
        (
            "_ZN2at6native23_GLOBAL__N__Indexing_cu21indexSelectSmallIndexIN3c104HalfEljLi2ELin2EEEvNS_4cuda6detailE",
            "indexSelectSmallIndex",
        ),
        (
            "_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_11threadblock12MmaPipelinedEEEEEvNT_6ParamsE",
            "Kernel",
        ),
        ("_ZN5outerIiE5innerEv", "inner"),
        ("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT", "nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT"),
        ("void demo::rms_norm<__half, 4>(const __half *, __half *, int)", "rms_norm"),
        ("swiglu_act(const __half *, __half *, int)", "swiglu_act"),
        ("void at::native::(anonymous namespace)::index<int>(at::Info<int>, int)", "index"),
        ("void f<(int)4, (bool)1>(T1::Params) [clone .constprop.0]", "f"),
        ("_compute_slot_mapping_kernel", "_compute_slot_mapping_kernel"),
        ("triton_poi_fused_add_0d1d2d", "triton_poi_fused_add_0d1d2d"),
        ("void outer<int>::inner(int)", "inner"),
        ("_Z", "_Z"),
        ("", ""),
        ("<unnamed>", "_anonymous_"),
    ],
)
def test_the_function_s_own_name_is_found_in_both_spellings(name: str, base: str) -> None:
    assert base_name(name) == base


def test_spellings_of_one_kernel_match_across_tools() -> None:
    assert same_kernel(
        "_ZN4demo8rms_normI6__halfLi4EEEvPKT_PS2_i",
        "void demo::rms_norm<__half, 4>(const __half *, __half *, int)",
    )


def test_template_instances_in_the_same_spelling_are_different_kernels() -> None:
    assert not same_kernel("_Z4fillIiEvv", "_Z4fillIfEvv")
    assert not same_kernel("void fill<int>()", "void fill<float>()")
    assert not same_kernel("_Z4fillIiEvv", "void copy<int>()")
