import { describe, expect, test } from "vitest";
import { readableName } from "./demangle";

describe("readable kernel names", () => {
  test.each([
    ["_Z11copy_kernelIdEvPKT_PS0_", "copy_kernel", ""],
    ["_Z10dot_kernelIdEvPKT_S2_PS0_i", "dot_kernel", ""],
    ["nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT", "nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT", ""],
    ["_compute_slot_mapping_kernel", "_compute_slot_mapping_kernel", ""],
    ["_ZN4vllm30reshape_and_cache_flash_kernelIttLNS_18Fp8KVCacheDataTypeE0EEEvPKT_S4_PT0_S6_PKlllllliiiPKfSA_i", "vllm::reshape_and_cache_flash_kernel", ""],
    ["_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIiEESt5arrayIPcLm1EEEEviT0_T1_", "at::native::vectorized_elementwise_kernel", "FillFunctor"],
    ["_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_15CUDAFunctor_addIN3c104HalfEEESt5arrayIPcLm3EEEEviT0_T1_", "at::native::vectorized_elementwise_kernel", "CUDAFunctor_add"],
    ["_ZN8cublasLt19splitKreduce_kernelILi32ELi16Eif6__halffS1_Lb0EfS1_S1_Lb1ELb1ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EEPKT2_", "cublasLt::splitKreduce_kernel", ""],
    ["_ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_0c5b6e8543distribution_elementwise_grid_stride_kernelIfLi4EEEvlNS_15PhiloxCudaStateE", "at::native::distribution_elementwise_grid_stride_kernel", ""],
    ["_ZN2at6native48_GLOBAL__N__Indexing_cu21indexSelectSmallIndexIN3c104HalfEljLi2EEEvT_", "at::native::indexSelectSmallIndex", ""],
    ["_ZN2at6native53_GLOBAL__N__layer_norm_kernel_cu28vectorized_layer_norm_kernelIN3c104HalfEfLb0EEEviT0_PKT_", "at::native::vectorized_layer_norm_kernel", ""],
    ["_ZN5flash32prepare_varlen_num_blocks_kernelEiiiPKiS1_S1_S1_S1_S1_iiiiiN7cutlass10FastDivmodES3_PiS4_S4_S4_b", "flash::prepare_varlen_num_blocks_kernel", ""],
    ["_ZN3foo6kernelIZZNS_3runEvENKUlvE_clEvEUlfE_EEvT_", "foo::kernel", ""],
    ["_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_swigluEvENKUlvE_clEvEUlfE_EEviT0_T1_", "at::native::vectorized_elementwise_kernel", ""],
    ["_Z4leftIfEvPT_ _Z5righti", "left, right", ""],
    ["void ns::kernel<float, 4>(float*)", "ns::kernel", ""],
    ["_Z5outerIL_Z5innerIiEv!", "outer", ""],
  ])("%s", (mangled, full, hint) => {
    expect(readableName(mangled)).toMatchObject({ full, hint });
  });

  test("a name that does not parse is shown as it is", () => {
    for (const odd of ["_Z", "_ZN", "_Z99short", "_ZN4vllm", "_Zqq", "weird name"]) expect(readableName(odd).full).toBe(odd);
  });

  test.each(["_Z1fI#J", "_Z#Z", "_Z#Z1aE", "_Z#St", "_Z#St1f", "_Z1fI#L_Z1fI", "_Z1fI#P", "_Z1fI#N1aI", "_Z1fI#F", "_Z1fI#Sa", "_Z1fI#StI", "_Z1fI#T_I", "_ZN#N", "_Z1fIX#N"])("however deep %s nests, it has a name", (pattern) => {
    const [start = "", repeated = ""] = pattern.split("#");
    for (const count of [100, 1000, 20_000]) expect(readableName(start + repeated.repeat(count)).full).not.toBe("");
  });

  test("an empty name says so", () => expect(readableName("").full).toBe("(unnamed kernel)"));
});
