"""Read typed values out of parsed JSON, with errors that name the place and the expectation.

This is the only module that looks into values of unknown shape. Numbers keep their type: an integer of
nanoseconds stays an integer, so that a value that is only copied leaves as it came.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from cascade_timing.errors import InvalidInputError

JsonObject: TypeAlias = dict[str, object]
Number: TypeAlias = int | float

MAX_MAGNITUDE = 2**63
"""Largest accepted magnitude of any number: [ns], 292 years. Beyond it the input is absurd, and sums of
floats would no longer be trustworthy."""

MAX_DEPTH = 32
"""Deepest nesting of a value that is copied unread. Copying recurses, and Python's stack is finite."""

_MAX_SHOWN_CHARS = 60


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object and the words that say where it stands, such as `steps[3].kernels[0]`."""

    raw: Mapping[str, object]
    where: str

    def integer(self, name: str, *, minimum: int | None = None) -> int:
        """An integer field; a float with no fraction, such as 3.0, is refused: it is not an index."""
        value = self._required(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, value, "an integer")
        self._check_range(name, value, minimum)
        return value

    def flag(self, name: str) -> bool:
        """A field that is true or false."""
        value = self._required(name)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def text(self, name: str) -> str:
        """A string field."""
        value = self._required(name)
        if not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def number(self, name: str, *, minimum: Number | None = None) -> Number:
        """A finite number, at least `minimum` if one is given."""
        value = self._required(name)
        if not _is_number(value):
            raise self.wrong(name, value, "a number")
        self._check_range(name, value, minimum)
        return value

    def optional_number(self, name: str, *, minimum: Number | None = None) -> Number | None:
        """A finite number, or None where the field is null or left out."""
        if self.raw.get(name) is None:
            return None
        return self.number(name, minimum=minimum)

    def objects(self, name: str) -> Iterator["Fields"]:
        """The entries of a list of objects, each knowing its own place."""
        prefix = f"{self.where}.{name}" if self.where else name
        return objects_in(self._required(name), prefix)

    def wrong(self, name: str, value: object, expected: str) -> InvalidInputError:
        """The error that says `value` was met in field `name` where `expected` was expected."""
        place = f"{self.where}.{name}" if self.where else name
        return InvalidInputError(f"{place} is {shown(value)}; expected {expected}")

    def _required(self, name: str) -> object:
        if name not in self.raw:
            place = self.where or "the document"
            raise InvalidInputError(f"{place} has no {name!r}; expected it in every such record")
        return self.raw[name]

    def _check_range(self, name: str, value: Number, minimum: Number | None) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise self.wrong(name, value, "a finite number")
        if abs(value) > MAX_MAGNITUDE:
            raise self.wrong(name, value, "a magnitude of at most 2^63")
        if minimum is not None and value < minimum:
            raise self.wrong(name, value, f"{minimum} or more")


def fields_of(document: object, where: str, *, what: str) -> Fields:
    """`document` as a JSON object. `what` names it in the error: "a step timeline"."""
    if not _is_object(document):
        raise InvalidInputError(
            f"{where or 'the document'} is {shown(document)}; expected {what}: a JSON object"
        )
    return Fields(document, where)


def objects_in(entries: object, where: str) -> Iterator[Fields]:
    """The entries of a list of JSON objects.

    Raises:
        InvalidInputError: `entries` is not a list, or an entry is not an object.
    """
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        raise InvalidInputError(f"{where} is {shown(entries)}; expected a list of objects")
    for index, entry in enumerate(entries):
        yield fields_of(entry, f"{where}[{index}]", what="a record")


def check_strict(value: object, where: str, *, depth: int = 0) -> None:
    """Refuse NaN, infinities and bottomless nesting inside a value that is copied through unread.

    Whatever leaves this package must be strict JSON, and that includes what it never looked at.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInputError(f"{where} is {shown(value)}; expected a finite number, or null for none")
    if not isinstance(value, Mapping | list | tuple):
        return
    if depth == MAX_DEPTH:
        raise InvalidInputError(
            f"{where} is nested more than {MAX_DEPTH} levels deep; expected a flat record"
        )
    entries = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, inner in entries:
        check_strict(inner, f"{where}[{key!r}]", depth=depth + 1)


def is_finite_quantity(value: object) -> TypeGuard[Number]:
    """Whether a value handed over by code, not by a document, is a finite number, 0 or more, and not absurd."""
    # The magnitude is compared first: an integer too long for a float would overflow in `isfinite`.
    return _is_number(value) and abs(value) <= MAX_MAGNITUDE and math.isfinite(value) and value >= 0


def shown(value: object) -> str:
    """A value as an error message shows it: short, and in JSON's words for None, True and False."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float() if math.isnan(value):
            return "NaN"
        case int() if abs(value) > MAX_MAGNITUDE:
            return "an integer beyond 2^63"
        case Mapping():
            return "an object"
        case list() | tuple():
            return "a list"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"


def _is_number(value: object) -> TypeGuard[Number]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_object(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
