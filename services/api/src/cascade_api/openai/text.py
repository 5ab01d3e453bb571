"""Text of a given length in tokens that means nothing: uniformly sampled vocabulary, or placeholders. Pure.

spec: request-simulation. Ids are drawn among those that are no special tokens; the same seed gives the same text.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

PLACEHOLDER = "tok"
TRIES = 8
"""Whole texts that are drawn before a stop sequence that keeps coming up is cut out instead."""

Vocabulary = tuple[int, ...]


class Decoder(Protocol):
    """What a tokenizer is needed for here."""

    @property
    def vocabulary(self) -> Vocabulary: ...
    def decode(self, ids: list[int]) -> str: ...


@dataclass(frozen=True, slots=True)
class SampledText:
    """Made-up text of `pieces` tokens."""

    text: str
    source: Literal["sampled:tokenizer", "placeholder:tok"]

    def in_pieces(self, count: int) -> list[str]:
        """The text cut into at most `count` pieces of about one token each, none empty; together they are the text."""
        count = min(count, len(self.text))
        if count <= 0:
            return []
        ends = [len(self.text) * (index + 1) // count for index in range(count)]
        return [self.text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def sampled_text(
    decoder: Decoder | None, tokens: int, *, stops: tuple[str, ...], random: Random
) -> SampledText:
    """Text of `tokens` tokens without any of `stops` in it."""
    if decoder is None or not decoder.vocabulary:
        return SampledText(_without(" ".join([PLACEHOLDER] * tokens), stops), "placeholder:tok")
    text = ""
    for _ in range(TRIES if stops else 1):
        text = decoder.decode(random.choices(decoder.vocabulary, k=tokens))
        if not any(stop in text for stop in stops):
            break
    return SampledText(_without(text, stops), "sampled:tokenizer")


def _without(text: str, stops: tuple[str, ...]) -> str:
    # Cutting one out may join the halves of another; each round shortens the text, so this ends.
    while any(stop in text for stop in stops):
        for stop in stops:
            text = text.replace(stop, "")
    return text
