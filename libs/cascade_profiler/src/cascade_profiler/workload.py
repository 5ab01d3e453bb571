"""The workload: which model answers which prompts, how long, how often.

A `Workload` travels as plain JSON (`to_dict`, `from_dict`) from a user's machine into the GPU container and
into `workload.json`, so that it holds nothing but numbers, strings and booleans. Checked once, when made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields

from cascade_profiler.errors import OptionsError

MAX_REPEATS = 1000
"""[repeats] A run keeps every step in memory; more repeats than this add nothing to a median."""

_MEASURED = frozenset({"prompt_tokens"})
"""Names that a run adds to its `workload.json`."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One greedy generation, repeated.

    Every repeat sends all `prompts` at once and generates exactly `max_tokens` tokens for each (the end of text
    is ignored), so that the three runs of a profile do the same work. The first `warmup_repeats` repeats warm
    caches up and are left out of every statistic.

    model: a model name that vLLM can load, or a path inside the container.
    max_tokens: [tokens] generated for a prompt.
    repeats: [repeats] in all, warm-ups included.
    max_model_len: [tokens] vLLM's context limit; None takes the model's own.
    gpu_memory_utilization: [fraction] of GPU memory vLLM may use, over 0 to 1.

    Raises OptionsError for values that no engine could run.
    """

    model: str
    prompts: Sequence[str]
    max_tokens: int = 16
    repeats: int = 4
    warmup_repeats: int = 1
    enforce_eager: bool = True
    dtype: str = "auto"
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.8
    revision: str | None = None
    seed: int = 0
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.model, str) or not self.model.strip():
            raise OptionsError("model is empty; name one, such as 'facebook/opt-125m'")
        if isinstance(self.prompts, str) or not isinstance(self.prompts, Sequence):
            raise OptionsError(
                f"prompts must be a list of strings, got {type(self.prompts).__name__}; "
                'write ["Hello, my name is"]'
            )
        if not self.prompts or not all(isinstance(p, str) and p for p in self.prompts):
            raise OptionsError(
                "prompts must hold at least one prompt, and every prompt must be a non-empty string"
            )
        object.__setattr__(self, "prompts", tuple(self.prompts))
        _whole("max_tokens", self.max_tokens, least=1)
        _whole("repeats", self.repeats, least=1, most=MAX_REPEATS)
        _whole("warmup_repeats", self.warmup_repeats, least=0)
        _whole("seed", self.seed, least=0)
        if self.warmup_repeats >= self.repeats:
            raise OptionsError(
                f"all {self.repeats} repeats would be warm-up (warmup_repeats is {self.warmup_repeats}); "
                "give at least one repeat more"
            )
        if self.max_model_len is not None:
            _whole("max_model_len", self.max_model_len, least=2)
        if not 0 < self.gpu_memory_utilization <= 1:
            raise OptionsError(
                f"gpu_memory_utilization is {self.gpu_memory_utilization}; it is a fraction over 0, at most 1"
            )

    def is_warmup(self, repeat: int) -> bool:
        """Return whether `repeat`, counted from 0, is one of the warm-ups."""
        return repeat < self.warmup_repeats

    def to_dict(self) -> dict[str, object]:
        """Return the workload as plain JSON values."""
        return {**asdict(self), "prompts": list(self.prompts)}

    @classmethod
    def from_dict(cls, raw: Mapping[str, object]) -> Workload:
        """Read what `to_dict` wrote, or a run's `workload.json`, which adds what the prompts came to.

        Raises OptionsError for unknown or missing names and wrong types.
        """
        known = {f.name for f in fields(cls)}
        raw = {name: value for name, value in raw.items() if name not in _MEASURED}
        unknown = sorted(set(raw) - known)
        if unknown:
            raise OptionsError(f"a workload has no {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
        try:
            return cls(**raw)  # type: ignore[arg-type]  # checked by __post_init__, value by value
        except TypeError as error:
            raise OptionsError(f"not a workload: {error}") from error


def _whole(name: str, value: object, *, least: int, most: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise OptionsError(f"{name} must be a whole number, got {value!r}")
    if value < least or (most is not None and value > most):
        bound = f"at least {least}" if most is None else f"from {least} to {most}"
        raise OptionsError(f"{name} is {value}; it must be {bound}")
