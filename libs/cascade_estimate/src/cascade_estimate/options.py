"""Typed access to the options of a config, each value bounded and each refusal naming its key."""

from __future__ import annotations

import re

from cascade_estimate.errors import ConfigError

MOST = 1 << 40  # of any whole number in a config
_DIGITS = re.compile(r"\d{1,13}", re.ASCII)


class Options:
    """Options by their key; collects a note for each fallback."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self.notes: list[str] = []

    def text(self, key: str, fallback: str | None = None) -> str:
        value = self._options.get(key)
        if value:
            return value
        if value is not None:
            raise ConfigError(key, "the option has no value")
        if fallback is None:
            raise ConfigError(key, "the config does not set it and the estimate cannot do without it")
        return fallback

    def integers(self, key: str, fallback: str | None = None, *, noted: bool = False) -> list[int]:
        if noted and key not in self._options:
            self.notes.append(f"{key} is not set: {fallback} assumed")
        value = self.text(key, fallback)
        return [whole(key, part) for part in re.split(r"[,:]", value) if part.strip()]

    def integer(
        self,
        key: str,
        fallback: int | None = None,
        *,
        least: int = 0,
        most: int = MOST,
        noted: bool = False,
    ) -> int:
        values = self.integers(key, None if fallback is None else str(fallback), noted=noted)
        if len(values) < 1 or not least <= values[0] <= most:
            raise ConfigError(
                key, f"a whole number from {least} to {most} expected, found {self.text(key, '')[:60]!r}"
            )
        return values[0]

    def assume(self, key: str, assumed: str) -> None:
        """Note an option that the model does not look at and that has another value than it takes for granted."""
        value = self.text(key, assumed)
        if value != assumed:
            self.notes.append(f"{key} {value[:60]} is not modelled: {assumed} assumed")


def whole(key: str, text: str) -> int:
    """A whole number. Raises ConfigError."""
    digits = text.strip().removeprefix("+")
    if _DIGITS.fullmatch(digits) is None or int(digits) > MOST:
        raise ConfigError(key, f"a whole number from 0 to {MOST} expected, found {text.strip()[:60]!r}")
    return int(digits)
