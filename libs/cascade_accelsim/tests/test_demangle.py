"""Readable kernel names."""

import pytest
from cascade_accelsim.demangle import MAX_READABLE_CHARS, readable_name
from cascade_accelsim.itanium import function_path
from hypothesis import example, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("_Z11copy_kernelIdEvPKT_PS0_", "copy_kernel"),
        ("_Z13init_residualPfS_i", "init_residual"),
        ("_Z12rms_norm_f16PK6__halfPS_if", "rms_norm_f16"),
        ("_ZN3red13reduce_kernelILi256EfEEvPKT0_PS1_j", "reduce_kernel"),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEESt5arrayIPcLm1EEEEviT0_T1_",
            "vectorized_elementwise_kernel",
        ),
        (
            "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_11where_kernelEEEviT1_",
            "elementwise_kernel",
        ),
        (
            "_ZN4vllm30reshape_and_cache_flash_kernelIttLNS_18Fp8KVCacheDataTypeE0EEEvPKT_S4_",
            "reshape_and_cache_flash_kernel",
        ),
        ("_ZN3FooIiLb1ENS_3BarEE3runEv", "Foo::run"),
        ("_ZN3FooIiLb1ELln5EJdS0_EE4stepEv", "step"),
        ("_ZN12_GLOBAL__N_16kernelIfEEvPT_", "kernel"),
        ("_ZL9my_kernelPf", "my_kernel"),
        ("_Z3fooB5cxx11v", "foo"),
        ("_ZSt4moveIRiEONSt16remove_referenceIT_E4typeEOS2_", "move"),
        ("_ZZ4mainENKUlvE_clEv", "main::lambda"),
        ("_ZN1aplERKS_", "operator"),
        ("_Z1fPKcDv4_fDF16_A8_iM1aFivE", "f"),
    ],
)
def test_a_mangled_name_is_read_down_to_the_function(name: str, readable: str) -> None:
    assert readable_name(name) == readable


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        (
            "_ZN7cutlass6KernelINS_4gemm6kernel4GemmINS1_11threadblock12MmaPipelinedEEEEEvNT_6ParamsE",
            "cutlass::Kernel",
        ),
        (
            "_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterIS1_EEEEvNT_6ParamsE",
            "cutlass::device_kernel",
        ),
        ("_ZN8internal5gemvx6kernelIii6__halfEENSt9enable_ifIXntT5_EvE4typeET11_", "gemvx::kernel"),
        ("void cutlass::Kernel<Shape<8, 8>, (int)4>(T1::Params) [clone .constprop.0]", "cutlass::Kernel"),
    ],
)
def test_a_name_that_says_little_keeps_what_encloses_it(name: str, readable: str) -> None:
    assert readable_name(name) == readable


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("void ns::step<a::b, &(ns::operator==(ns::key const&))>(float*, int) const", "step"),
        ("(anonymous namespace)::scan(int)", "scan"),
        ("unsigned int* ns::fill(int)", "fill"),
        ("main::{lambda(int)#1}::operator()(int) const", "main::operator()"),
        ("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT", "nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT"),
        ("_compute_slot_mapping_kernel", "_compute_slot_mapping_kernel"),
        ("", ""),
        ("_Z", "_Z"),
        ("_Z999foo", "foo"),
        ("_Z99999foo", "_Z99999foo"),
    ],
)
def test_other_names_are_shortened_or_left_as_they_are(name: str, readable: str) -> None:
    assert readable_name(name) == readable


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("_ZN7cutlass13my_kernel_fn", "my_kernel_fn"),
        ("_ZN5flash9fwd_kernelI6TraitsILi64EEE_RECONSTRUCTED", "fwd_kernel"),
        ("_ZN5flash9fwd_kernelILi64ELb0_CUT_HERE", "fwd_kernel"),
        (
            "_ZN2at53_GLOBAL__N__layer_norm_kernel_cu28vectorized_layer_norm_kernelIfEEvT_",
            "vectorized_layer_norm_kernel",
        ),
        ("_Z4copyPf.constprop.0", "copy"),
    ],
)
def test_a_name_that_was_cut_or_edited_still_reads_well(name: str, readable: str) -> None:
    assert readable_name(name) == readable


def test_the_names_of_kernels_that_ran_together_are_joined() -> None:
    assert readable_name("_Z4copyPf _ZN3red6reduceILi2EEEvv ") == "copy, reduce"


def test_a_long_name_is_cut_with_a_mark() -> None:
    readable = readable_name("k" * 500)
    assert len(readable) == MAX_READABLE_CHARS
    assert readable.endswith("…")


PIECES = [
    "_Z",
    "N",
    "E",
    "I",
    "3foo",
    "S_",
    "S0_",
    "T_",
    "L",
    "i",
    "P",
    "5",
    "²",
    "٣",
    "C",
    "cv",
    "Z",
    "Ul",
    "_",
    "D",
    "F",
    "X",
    "<",
    "(",
    "::",
    " ",
]


@settings(max_examples=200, deadline=None)
@given(
    name=st.text(max_size=40)
    | st.text(max_size=40).map("_Z{}".format)
    | st.lists(st.sampled_from(PIECES), max_size=40).map("_Z{}".format)
    | st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
)
@example(name="_Z²foo")
@example(name="_Z1²")
@example(name="_ZN1a²E")
@example(name="_Z1aI²E")
@example(name="_ZN1aC²E")
@example(name="_Z" + "3foo" + "I" + "P" * 5000)
@example(name="_Z3fooI" + "J" * 5000)
@example(name="_ZN" + "Ul" * 5000)
@example(name="_Z" + "N" * 5000)
@example(name="_Z1fIN" + "1aI" * 5000)
@example(name="_Z" + "Z" * 5000)
def test_no_name_makes_the_reader_raise(name: str) -> None:
    readable_name(name).encode()
    function_path(name)
