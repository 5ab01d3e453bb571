"""Bodies of the OpenAI-compatible routes. A null is the same as leaving the field out, for every field.

What would change the prediction and is not modelled is refused in words; what has no bearing on timing (temperature,
penalties, a user's name) is taken and ignored, as are fields that are not known here.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    field_validator,
    model_validator,
)

MOST_TOKENS = 1_000_000
MOST_STOPS = 4
"""OpenAI's own limit."""
MOST_MESSAGES = 10_000

_Tokens = Annotated[StrictInt, Field(ge=0, le=MOST_TOKENS)]
_Name = Annotated[StrictStr, Field(min_length=1, max_length=1024)]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: text, or ids that the client has tokenized itself."""

    text: str = ""
    token_ids: int | None = None
    """How many ids were sent; None where text was."""


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    include_usage: StrictBool | None = None


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())

    model: _Name
    """A trace id, or a model's name: its newest ready trace."""
    gpu_config: _Name | None = None
    """The GPU to predict for; the trace's suggestion where it is left out. Not one of OpenAI's fields."""
    fresh: StrictBool | None = None
    """Ask for a new base simulation. Not one of OpenAI's fields."""
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    n: StrictInt | None = None
    stop: Any = None
    seed: StrictInt | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    logit_bias: dict[str, Any] | None = None

    @field_validator("n")
    @classmethod
    def _one_choice(cls, n: int | None) -> int | None:
        if n not in (None, 1):
            raise ValueError(
                f"n is {n}; only 1 is supported, since one request alone is predicted. "
                "Use POST /api/scenarios for concurrent requests"
            )
        return n

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, stop: object) -> tuple[str, ...]:
        stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
        if not isinstance(stops, list | tuple) or not all(isinstance(item, str) for item in stops):
            raise ValueError("stop must be a string or a list of strings")
        if len(stops) > MOST_STOPS:
            raise ValueError(f"stop has {len(stops)} sequences; at most {MOST_STOPS} are taken")
        return tuple(item for item in stops if item)

    @field_validator("logit_bias")
    @classmethod
    def _no_bias(cls, bias: dict[str, Any] | None) -> None:
        if bias:
            raise ValueError("logit_bias is not supported: the text is sampled uniformly; leave it out")

    @model_validator(mode="after")
    def _one_limit(self) -> Self:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ValueError(
                f"max_tokens is {self.max_tokens} and max_completion_tokens {self.max_completion_tokens}; "
                "give one of them, or the same value in both"
            )
        return self

    @property
    def output_tokens(self) -> int | None:
        """How many tokens are asked for; None where the trace's workload decides."""
        return self.max_completion_tokens if self.max_tokens is None else self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """Sequences that the text must not hold."""
        return self.stop if isinstance(self.stop, tuple) else ()

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether a stream ends with a chunk of usage alone."""
        return self.stream_options is not None and self.stream_options.include_usage is True


class CompletionBody(_Body):
    """Body of `POST /v1/completions`."""

    prompt: Any
    """A string, a list with one string, or one list of token ids."""
    best_of: StrictInt | None = None
    echo: StrictBool | None = None
    suffix: StrictStr | None = None
    logprobs: Any = None

    @field_validator("prompt")
    @classmethod
    def _one_prompt(cls, prompt: object) -> Prompt:
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return Prompt(text=prompt)
        if isinstance(prompt, list) and prompt and all(type(item) is int and item >= 0 for item in prompt):
            return Prompt(token_ids=len(prompt))
        if (
            isinstance(prompt, list)
            and len(prompt) > 1
            and all(isinstance(item, str | list) for item in prompt)
        ):
            raise ValueError(
                f"{len(prompt)} prompts were sent; one request alone is predicted. Send one prompt at a time, or use "
                "POST /api/scenarios"
            )
        raise ValueError("prompt must be a string, a list with one string, or a non-empty list of token ids")

    @field_validator("best_of")
    @classmethod
    def _one_candidate(cls, best_of: int | None) -> int | None:
        if best_of not in (None, 1):
            raise ValueError(
                f"best_of is {best_of}; only 1 is supported, since one request alone is predicted"
            )
        return best_of

    @field_validator("echo", "suffix", "logprobs")
    @classmethod
    def _left_out(cls, value: object) -> None:
        if value:
            raise ValueError("not supported: no text is generated that it could apply to; leave it out")

    @property
    def one_prompt(self) -> Prompt:
        """The prompt."""
        assert isinstance(self.prompt, Prompt)
        return self.prompt


class ChatMessage(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = None

    @field_validator("content")
    @classmethod
    def _text(cls, content: object) -> str:
        if content is None or isinstance(content, str):
            return content or ""
        if not isinstance(content, list):
            raise ValueError("content must be a string or a list of content parts")
        return "".join(_part_text(part) for part in content)

    @property
    def text(self) -> str:
        """All of its text."""
        return str(self.content)


class ChatBody(_Body):
    """Body of `POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    tool_choice: Any = None
    response_format: dict[str, Any] | None = None
    logprobs: StrictBool | None = None
    top_logprobs: StrictInt | None = None
    modalities: list[str] | None = None
    audio: Any = None

    @field_validator("tools", "functions")
    @classmethod
    def _no_tools(cls, tools: list[Any] | None) -> None:
        if tools:
            raise ValueError(
                "tools are not supported: no text is generated that could call one; leave it out"
            )

    @field_validator("tool_choice")
    @classmethod
    def _no_choice(cls, choice: object) -> None:
        if choice not in (None, "none", "auto"):
            raise ValueError("tool_choice is not supported: no tool can be called; leave it out")

    @field_validator("response_format")
    @classmethod
    def _text_only(cls, wanted: dict[str, Any] | None) -> None:
        if wanted is not None and wanted.get("type") != "text":
            raise ValueError(
                'response_format must be {"type": "text"}: the text is sampled, never structured'
            )

    @field_validator("modalities")
    @classmethod
    def _no_other_modality(cls, modalities: list[str] | None) -> None:
        if modalities and modalities != ["text"]:
            raise ValueError('modalities must be ["text"]')

    @field_validator("logprobs", "top_logprobs", "audio")
    @classmethod
    def _left_out(cls, value: object) -> None:
        if value:
            raise ValueError("not supported: no text is generated that it could apply to; leave it out")


def _part_text(part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(kind) if isinstance(part, dict) and kind in ("text", "refusal") else None
    if not isinstance(text, str):
        raise ValueError(
            f"a content part of type {kind!r} is not supported: only text has a size in tokens here; "
            'send {"type": "text", "text": ...} parts'
        )
    return text
