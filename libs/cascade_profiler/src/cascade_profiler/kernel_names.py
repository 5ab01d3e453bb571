"""Comparing kernel names that two tools spell differently. Pure.

The tracer writes mangled names (`_ZN4demo8rms_normI6__halfEEvPT_`), Nsight's export may hold only the demangled
spelling (`void demo::rms_norm<__half>(__half *)`). Names of the same spelling are compared whole; across
spellings only the function's own name can be.
"""

from __future__ import annotations

import re

_OPENING = {"<": ">", "(": ")", "{": "}", "[": "]"}
_IDENTIFIER_AT_END = re.compile(r"(?:operator\s*\S+|~?[A-Za-z_$][\w$]*)$")


def is_mangled(name: str) -> bool:
    """Return whether `name` follows the Itanium C++ ABI (`_Z...`)."""
    return name.startswith("_Z")


def base_name(name: str) -> str:
    """Return the function's own name without scopes, template arguments and parameters.

    `rms_norm` for both spellings above; a name that is neither, such as a Triton kernel's, is returned as it is.
    """
    return _mangled_base(name) if is_mangled(name) else _demangled_base(name)


def same_kernel(left: str, right: str) -> bool:
    """Return whether two names can mean the same kernel.

    Two mangled or two plain names must be equal: template instances differ only in what `base_name` drops.
    """
    if left == right:
        return True
    return is_mangled(left) != is_mangled(right) and base_name(left) == base_name(right)


def _mangled_base(name: str) -> str:
    """Read the length-prefixed identifiers of an encoding's name; the last before the template arguments wins."""
    rest = name[2:]
    nested = rest.startswith("N")
    if nested:
        rest = rest[1:].lstrip("KVr")  # qualifiers of a member function
    rest = rest.removeprefix("L")  # internal linkage
    last = ""
    while True:
        if rest.startswith("St"):
            rest = rest[2:]  # std::
            continue
        match = re.match(r"L?(\d+)", rest)
        if match is None:
            break
        length = int(match[1])
        last = rest[match.end() : match.end() + length]
        rest = rest[match.end() + length :]
        if not nested:
            break
        if rest.startswith("I"):
            after = _skip_template_arguments(rest)
            if after is None or not re.match(r"L?\d", after):
                break  # the template arguments of the function itself end its name
            rest = after  # those of an enclosing class: the function's name follows
    return last or name


def _skip_template_arguments(text: str) -> str | None:
    """Return what follows `I...E`, or None if it cannot be told without a full demangler."""
    depth = 0
    at = 0
    while at < len(text):
        number = re.match(r"\d+", text[at:])
        if number is not None:
            at += number.end() + int(number[0])
            continue
        char = text[at]
        if char == "L":  # a literal: L <type> <value> E
            end = text.find("E", at)
            if end < 0:
                return None
            at = end + 1
            continue
        if char in "INXJ":
            depth += 1
        elif char == "E":
            depth -= 1
            if depth == 0:
                return text[at + 1 :]
        at += 1
    return None


def _demangled_base(name: str) -> str:
    """Cut parameters and template arguments off the end, then the return type and scopes off the front."""
    text = re.sub(r"\s*\[clone [^\]]*\]$", "", name.strip())
    text = text.replace("(anonymous namespace)", "_anonymous_").replace("<unnamed>", "_anonymous_")
    text = re.sub(r"\)\s*(const|volatile|&|&&)+$", ")", text)
    for closing, opening in ((")", "("), (">", "<")):
        if text.endswith(closing):
            text = _cut_balanced(text, opening, closing).rstrip()
    match = _IDENTIFIER_AT_END.search(text)
    return match[0] if match else name


def _cut_balanced(text: str, opening: str, closing: str) -> str:
    """Return `text` without its last balanced group; unchanged if it does not balance."""
    depth = 0
    for at in range(len(text) - 1, -1, -1):
        if text[at] == closing and not (closing == ">" and at > 0 and text[at - 1] == "-"):
            depth += 1
        elif text[at] == opening:
            depth -= 1
            if depth == 0:
                return text[:at]
    return text
