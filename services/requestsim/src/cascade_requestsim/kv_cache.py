"""The KV cache's capacity in blocks, and the blocks that a number of cached tokens takes.

Source: the request model, section 4.3. The activation reserve and the absence of fragmentation are assumptions.
"""

import math

from cascade_requestsim.errors import CapacityExceeded
from cascade_requestsim.gpu_spec import GpuSpec
from cascade_requestsim.model_shape import ModelShape

ACTIVATION_RESERVE_BYTES = 2**30
"""Assumed GPU memory for activations. [B]"""


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold `tokens` cached tokens: 0 for none."""
    return -(-tokens // block_size)


def kv_block_capacity(model: ModelShape, gpu: GpuSpec, *, utilization: float, block_size: int) -> int:
    """Blocks of `block_size` tokens that fit beside weights and activations.

    Raises CapacityExceeded when not even one does.
    """
    free_bytes = gpu.memory_bytes * utilization - model.weight_bytes - ACTIVATION_RESERVE_BYTES
    blocks = math.floor(free_bytes / (block_size * model.kv_token_bytes))
    if blocks <= 0:
        raise CapacityExceeded(
            f"no KV block fits: {utilization} of {gpu.memory_bytes / 1e9:g} GB less {model.weight_bytes / 1e9:.3g} GB "
            f"of weights and 1 GiB of activations leaves {free_bytes / 1e9:.3g} GB for blocks of {block_size} tokens; "
            "raise gpu_memory_utilization, shrink block_size or set num_kv_blocks"
        )
    return blocks
