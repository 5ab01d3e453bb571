"""The function's own name in a mangled C++ name (Itanium C++ ABI, section 5.1), and what encloses it.

Types and template arguments are only stepped over. Expressions in template arguments are not followed: they stand
behind the name in all kernels seen, and reading stops there with the names found so far. Names that people shortened
by hand, whose lengths are wrong then, are mended where that is safe.
"""

import re
import string
from collections.abc import Callable
from contextlib import suppress
from typing import Final

MAX_DEPTH: Final = 100
"""Nesting of real names stays below 40; deeper ones are cut off, like unknown ones."""
_DIGITS: Final = string.digits
"""Python's own idea of a digit takes in others, such as a superscript two, of which `int` makes no number."""
_DIGITS_AND_CAPITALS: Final = _DIGITS + string.ascii_uppercase
_BUILTIN: Final = frozenset("vwbcahstijlmxynofdegz")
_QUALIFIERS: Final = "rVKPROCG"
_SHORT_D: Final = frozenset("adefhisucn")
_OPERATOR: Final = re.compile(
    "nw|na|dl|da|ps|ng|ad|de|co|pl|mi|ml|dv|rm|an|or|eo|aS|pL|mI|mL|dV|rM|aN|oR|eO|ls|rs|lS|rS|eq|ne|lt|gt|le|ge"
    "|ss|nt|aa|oo|pp|mm|cm|pm|pt|ix|qu|aw"
)
_STANDARD: Final = {
    "t": "std",
    "a": "allocator",
    "b": "basic_string",
    "s": "string",
    "i": "istream",
    "o": "ostream",
    "d": "iostream",
}


_REST_OF_NAME: Final = re.compile(r"[a-z_]{1,32}(?=[IE])")
_SHORTENED_NAMESPACE: Final = re.compile(r"_GLOBAL__N_\w*?_cu(?=\d+[A-Za-z_])")
"""nvcc's own names of unnamed namespaces go on with `_` behind `_cu`."""


class _UnreadableError(Exception):
    """The rest of the name is cut, edited, or holds something that is not followed."""


def function_path(mangled: str) -> list[str]:
    """Names from the outermost namespace to the function: `["red", "reduce_kernel"]`. Empty if there is none."""
    reader = _Reader(mangled, 2)
    if mangled.startswith("_Z"):
        with suppress(_UnreadableError):
            reader.encoding_name()
    return [name for name in reader.path if name]


def _is_digit(letter: str) -> bool:
    return letter != "" and letter in _DIGITS


class _Reader:
    """Steps through one mangled name. `path` holds the names of the level being read, also after a failure."""

    def __init__(self, text: str, position: int) -> None:
        self._text = text
        self._at = position
        self._depth = 0
        self._after_name = False
        """The last part was a name of the path: what cannot be a part may be the rest of it."""
        self.path: list[str] = []

    def encoding_name(self) -> None:
        """<name>, nested, local or plain, into `path`."""
        self._enter()
        match self._peek():
            case "N":
                self._at += 1
                self._skip_any(_QUALIFIERS)
                self._nested()
            case "Z":
                self._at += 1
                self._local()
            case _:
                self._plain()
        self._depth -= 1

    def _local(self) -> None:
        """Z <encoding> E <entity>: a kernel inside a function. The function's names stay in front."""
        self.encoding_name()
        while self._peek() != "E":
            self._type()
        self._at += 1
        if self._peek() == "s":
            self.path.append("string literal")
            return
        outer = self.path
        self.path = []
        try:
            self.encoding_name()
        finally:
            self.path = outer + self.path

    def _nested(self) -> None:
        """The rest of N <parts> E."""
        while (letter := self._peek()) != "E":
            if letter == "I":
                self._template_arguments()
            else:
                self._part(letter)
        self._at += 1

    def _plain(self) -> None:
        """A name that is not nested, behind `std` or an internal linkage mark, with its tags and template arguments."""
        if self._text.startswith("St", self._at):
            self._part("S")
        if self._peek() == "L":
            self._part("L")
        self._part(self._peek())
        while self._peek_or_empty() == "B":
            self._part("B")
        if self._peek_or_empty() == "I":
            self._template_arguments()

    def _part(self, letter: str) -> None:
        two = self._text[self._at : self._at + 2]
        if letter == "L":
            self._at += 1
        elif _is_digit(letter):
            self.path.append(self._source_name())
            self._after_name = True
            return
        elif letter == "B":
            self._at += 1
            self._source_name()
        elif letter == "S":
            self.path.append(self._substitution())
        elif letter == "T":
            self._template_parameter()
        elif two[0] in "CD" and _is_digit(two[1:]):
            self._at += 2
            self.path.append(f"{'~' if letter == 'D' else ''}{self.path[-1] if self.path else ''}")
        elif two in {"Ul", "Ut"}:
            self._unnamed(two)
        elif two == "cv":
            self._at += 2
            self._type()
            self.path.append("operator")
        elif two == "cl":
            self._at += 2
            self.path.append("operator()")
        elif _OPERATOR.fullmatch(two):
            self._at += 2
            self.path.append("operator")
        elif self._after_name and (rest := _REST_OF_NAME.match(self._text, self._at)):
            self._at = rest.end()
            self.path[-1] += rest[0]
        else:
            raise _UnreadableError
        self._after_name = False

    def _unnamed(self, two: str) -> None:
        self._at += 2
        if two == "Ul":
            while self._peek() != "E":
                self._type()
            self._at += 1
        self._number_and_underscore()
        self.path.append("lambda" if two == "Ul" else "unnamed")

    def _source_name(self) -> str:
        start = self._at
        self._skip_any(_DIGITS)
        digits = self._text[start : self._at]
        if not digits or len(digits) > 4:
            raise _UnreadableError
        name = self._text[self._at : self._at + int(digits)]
        if shortened := _SHORTENED_NAMESPACE.match(name):
            name = shortened[0]
        self._at += len(name)
        return name  # shorter than its length where the name was cut: the next step stops

    def _substitution(self) -> str:
        """S_, S1Z_, or a standard abbreviation. What it stands for is not looked up: a name never begins with one."""
        self._at += 1
        letter = self._peek()
        if letter in _STANDARD:
            self._at += 1
            return _STANDARD[letter]
        while self._peek() != "_":
            if self._peek() not in _DIGITS_AND_CAPITALS:
                raise _UnreadableError
            self._at += 1
        self._at += 1
        return ""

    def _template_parameter(self) -> None:
        """T_, T12_"""
        self._at += 1
        self._number_and_underscore()

    def _number_and_underscore(self) -> None:
        self._skip_any(_DIGITS)
        self._expect("_")

    def _template_arguments(self) -> None:
        self._expect("I")
        while self._peek() != "E":
            self._template_argument()
        self._at += 1

    def _template_argument(self) -> None:
        self._enter()
        letter = self._peek()
        if letter == "L":
            self._literal()
        elif letter == "J":
            self._at += 1
            while self._peek() != "E":
                self._template_argument()
            self._at += 1
        else:
            self._type()
        self._depth -= 1

    def _literal(self) -> None:
        """L <type> <value> E, L _Z <encoding> E"""
        self._expect("L")
        if self._text.startswith("_Z", self._at):
            self._at += 2
            self._aside(self.encoding_name)
            while self._peek() != "E":
                self._type()
        else:
            self._type()
            self._skip_any(f"n{_DIGITS}abcdef_")
        self._expect("E")

    def _type(self) -> None:
        self._enter()
        self._skip_any(_QUALIFIERS)
        letter = self._peek()
        if letter in _BUILTIN:
            self._at += 1
        elif _is_digit(letter):
            self._source_name()
        elif letter in "NZ":
            self._aside(self.encoding_name)
        elif letter == "S":
            if self._substitution() == "std":
                self._source_name()
        elif letter == "T":
            self._template_parameter()
        elif letter == "F":
            self._at += 1
            while self._peek() != "E":
                self._type()
            self._at += 1
        elif letter == "A":
            self._at += 1
            self._number_and_underscore()
            self._type()
        elif letter == "M":
            self._at += 1
            self._type()
            self._type()
        elif letter == "u":
            self._at += 1
            self._source_name()
        elif letter == "U":
            self._at += 1
            self._source_name()
            self._type()
        elif letter == "D":
            self._d_type()
        else:
            raise _UnreadableError
        if self._peek_or_empty() == "I":
            self._template_arguments()
        self._depth -= 1

    def _aside(self, read: Callable[[], None]) -> None:
        """Read a name that is not part of the one asked for."""
        path, self.path = self.path, []
        try:
            read()
        finally:
            self.path = path

    def _d_type(self) -> None:
        """Da, Dn, Dp <type>, DF16_, DF16b, Dv4_f"""
        self._at += 1
        letter = self._peek()
        self._at += 1
        if letter == "p":
            self._type()
        elif letter == "F":
            self._skip_any(_DIGITS)
            self._at += 1
        elif letter == "v":
            self._number_and_underscore()
            self._type()
        elif letter not in _SHORT_D:
            raise _UnreadableError

    def _peek(self) -> str:
        if self._at >= len(self._text):
            raise _UnreadableError
        return self._text[self._at]

    def _peek_or_empty(self) -> str:
        return self._text[self._at : self._at + 1]

    def _expect(self, letter: str) -> None:
        if self._peek() != letter:
            raise _UnreadableError
        self._at += 1

    def _skip_any(self, letters: str) -> None:
        while (letter := self._peek_or_empty()) and letter in letters:
            self._at += 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _UnreadableError
