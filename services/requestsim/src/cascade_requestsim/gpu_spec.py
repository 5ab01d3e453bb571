"""Data-sheet numbers of the three GPUs that the request model can size requests for.

Source: NVIDIA SXM data sheets of H100, H200 and A100, dense BF16/FP16 rates without sparsity, decimal units; the
request model, section 2. They are not achieved measurements.
"""

from dataclasses import dataclass

from cascade_requestsim.errors import UnsupportedModel


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """Peak rates of one GPU."""

    peak_flops: float
    """Dense BF16/FP16 rate. [FLOP/s]"""
    bandwidth_bytes_s: float
    """HBM bandwidth. [B/s]"""
    memory_bytes: float
    """HBM capacity. [B]"""


GPU_SPECS: dict[str, GpuSpec] = {
    "SM90_H100": GpuSpec(peak_flops=989e12, bandwidth_bytes_s=3.35e12, memory_bytes=80e9),
    "SM90_H200": GpuSpec(peak_flops=989e12, bandwidth_bytes_s=4.8e12, memory_bytes=141e9),
    "SM80_A100": GpuSpec(peak_flops=312e12, bandwidth_bytes_s=2.039e12, memory_bytes=80e9),
}


def gpu_spec(gpu_config: str) -> GpuSpec:
    """The data sheet of a GPU config. Raises UnsupportedModel for any other config."""
    spec = GPU_SPECS.get(gpu_config)
    if spec is None:
        raise UnsupportedModel(
            f"gpu_config {gpu_config!r} has no data sheet in the request model; expected one of "
            + ", ".join(GPU_SPECS)
        )
    return spec
