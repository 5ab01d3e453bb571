"""JSON that somebody else wrote, made fit to be stored as part of a fact. Pure.

A fact goes through strict UTF-8 JSON, is read back by every service and ends in Postgres. What cannot pass there is
replaced where that loses nothing of use, and refused where it cannot be represented.
"""

import json
import math

from pydantic import JsonValue

MOST_LEVELS = 64
"""Of nesting. A fact's reader stops at about 200; a profiler's metadata has three."""
_LONGEST_INTEGER_DIGITS = 300
"""Python refuses to read integers beyond 4300 digits, and a reader may well have a lower limit."""


class NotJson(ValueError):
    """The bytes are no JSON, or not whole. The message says what is wrong with them."""


def parse(body: bytes) -> JsonValue:
    """The value in `body`.

    NaN and Infinity, which Python's and other writers let through, and numbers that are too large for a float become
    None, lone surrogates become U+FFFD. Raises NotJson for anything that is not whole, and for nesting deeper than
    MOST_LEVELS.
    """
    try:
        value = json.loads(body, parse_constant=_nothing, parse_float=_finite, parse_int=_integer)
    except RecursionError as error:
        raise NotJson(f"it is nested deeper than {MOST_LEVELS} levels") from error
    except UnicodeDecodeError as error:
        raise NotJson("it is not UTF-8") from error
    except ValueError as error:
        raise NotJson(f"it is not whole JSON: {error}") from error
    return _clean(value, MOST_LEVELS)


def _nothing(_constant: str) -> None:
    """What NaN, Infinity and -Infinity become."""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= _LONGEST_INTEGER_DIGITS else None


def _clean(value: JsonValue, levels: int) -> JsonValue:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | dict):
        if levels == 0:
            raise NotJson(f"it is nested deeper than {MOST_LEVELS} levels")
        if isinstance(value, list):
            return [_clean(item, levels - 1) for item in value]
        return {_text(key): _clean(item, levels - 1) for key, item in value.items()}
    return value


def _text(text: str) -> str:
    # A text of ASCII alone, as nearly every key and name is, needs no second look.
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
