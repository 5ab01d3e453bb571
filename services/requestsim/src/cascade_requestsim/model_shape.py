"""The dense decoder that was profiled: its dimensions, and the sizes that follow from them.

Only what the roofline needs. Everything that is assumed because `run.json` leaves it out is written into the list of
assumptions that travels with every result. Source: the request model, section 1.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from cascade_requestsim.errors import ProfileInputMissing, UnsupportedModel

OPT_VOCABULARY = 50_272
"""Assumed vocabulary of an OPT model that does not state one. [tokens]"""

FFN_OVER_HIDDEN = 4
"""Assumed FFN width over hidden width where the width is missing."""

_DTYPE_BYTES = {
    "float16": 2,
    "half": 2,
    "fp16": 2,
    "bfloat16": 2,
    "bf16": 2,
    "float32": 4,
    "float": 4,
}
"""Bytes an element; 8-bit types are quantised models and unsupported. [B]"""

_MAX_DIMENSION = 10_000_000
"""No layer count, width or vocabulary of a real model is near this; larger numbers are typing errors."""

_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions of a dense, ungated decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    dtype_bytes: int

    @property
    def body(self) -> int:
        """Weights of all layers: attention projections and a two-matrix FFN, no biases, norms or embeddings."""
        attention = (
            2 * self.hidden * self.heads * self.head_dim + 2 * self.hidden * self.kv_heads * self.head_dim
        )
        return self.layers * (attention + 2 * self.hidden * self.ffn)

    @property
    def kv_token_bytes(self) -> int:
        """Key and value of one token over all layers. [B]"""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes

    @property
    def weight_bytes(self) -> int:
        """Body and one embedding matrix, which the output projection shares. [B]"""
        return (self.body + self.hidden * self.vocabulary) * self.dtype_bytes


def parse_model_shape(run: Mapping[str, object]) -> tuple[ModelShape, tuple[str, ...]]:
    """Read `run.json`'s `model_config`. Returns the shape and the assumptions that filled its holes.

    Raises ProfileInputMissing without a `model_config` or a needed dimension, and UnsupportedModel for
    quantised, sharded, mixture-of-experts or other shapes outside the model.
    """
    config = run.get("model_config")
    if not isinstance(config, Mapping):
        raise ProfileInputMissing(
            "run.json has no model_config object; the roofline needs the model's dimensions"
        )
    _refuse_unsupported(config)
    assumptions: list[str] = []
    hidden = _dimension(config, "hidden_size")
    heads = _dimension(config, "num_attention_heads")
    shape = ModelShape(
        layers=_dimension(config, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config, heads, assumptions),
        head_dim=_head_dim(config, hidden, heads, assumptions),
        ffn=_ffn(config, hidden, assumptions),
        vocabulary=_vocabulary(config, assumptions),
        dtype_bytes=_dtype_bytes(config, assumptions),
    )
    return shape, tuple(assumptions)


def _refuse_unsupported(config: Mapping[object, object]) -> None:
    for key in ("quantization", "quantization_config"):
        if config.get(key) is not None:
            raise UnsupportedModel(
                f"model_config.{key} is {config[key]!r}; quantised models are unsupported, trace an unquantised one"
            )
    for key in ("tensor_parallel_size", "pipeline_parallel_size"):
        size = config.get(key, 1)
        if size is not None and (isinstance(size, bool) or size != 1):
            raise UnsupportedModel(
                f"model_config.{key} is {size!r}; the request model describes one GPU, trace with size 1"
            )
    for key in _EXPERT_KEYS:
        experts = config.get(key)
        if experts not in (None, 0, 1):
            raise UnsupportedModel(f"model_config.{key} is {experts!r}; only dense models are supported")


def _optional(config: Mapping[object, object], *keys: str) -> int | None:
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_DIMENSION:
            raise UnsupportedModel(
                f"model_config.{key} is {value!r}; expected an integer from 1 to {_MAX_DIMENSION}"
            )
        return value
    return None


def _dimension(config: Mapping[object, object], key: str) -> int:
    value = _optional(config, key)
    if value is None:
        raise ProfileInputMissing(f"run.json's model_config lacks {key}; the roofline needs it")
    return value


def _kv_heads(config: Mapping[object, object], heads: int, assumptions: list[str]) -> int:
    value = _optional(config, "num_key_value_heads")
    if value is None:
        assumptions.append(f"KV heads missing from run.json: assumed equal to the {heads} attention heads")
        return heads
    if value > heads:
        raise UnsupportedModel(f"model_config has {value} KV heads but only {heads} attention heads")
    return value


def _head_dim(config: Mapping[object, object], hidden: int, heads: int, assumptions: list[str]) -> int:
    value = _optional(config, "head_dim")
    if value is not None:
        return value
    if hidden % heads:
        raise UnsupportedModel(
            f"model_config lacks head_dim, and hidden_size {hidden} is no multiple of {heads} heads"
        )
    assumptions.append(f"Head dimension missing from run.json: assumed hidden / heads = {hidden // heads}")
    return hidden // heads


def _ffn(config: Mapping[object, object], hidden: int, assumptions: list[str]) -> int:
    value = _optional(config, "intermediate_size", "ffn_dim")
    if value is None:
        value = FFN_OVER_HIDDEN * hidden
        assumptions.append(f"FFN width missing from run.json: assumed 4 × hidden = {value}")
    return value


def _vocabulary(config: Mapping[object, object], assumptions: list[str]) -> int:
    value = _optional(config, "vocab_size")
    if value is not None:
        return value
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list | tuple) else [architectures]
    if not any(isinstance(name, str) and name.upper().startswith("OPT") for name in names):
        raise UnsupportedModel(
            f"model_config lacks vocab_size, and only OPT has a known default; architectures is {architectures!r}"
        )
    assumptions.append(f"OPT vocabulary missing from run.json: assumed {OPT_VOCABULARY} tokens")
    return OPT_VOCABULARY


def _dtype_bytes(config: Mapping[object, object], assumptions: list[str]) -> int:
    value = config.get("dtype", config.get("torch_dtype"))
    if value is None:
        raise ProfileInputMissing(
            "run.json's model_config lacks dtype; expected float16, bfloat16 or float32"
        )
    width = _DTYPE_BYTES.get(value.removeprefix("torch.").lower()) if isinstance(value, str) else None
    if width is None:
        raise UnsupportedModel(f"model_config.dtype is {value!r}; expected float16, bfloat16 or float32")
    if width != _DTYPE_BYTES["float16"]:
        assumptions.append(f"The model runs in {value}: the peak compute rate assumed is that of BF16/FP16")
    return width
