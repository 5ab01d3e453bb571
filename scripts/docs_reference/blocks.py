"""Generated parts of a hand-written page: found by their markers, filled anew, everything else left alone.

    <!-- generated: types RunDetail -->
    ...
    <!-- end generated -->

The first word names the renderer, the rest are its arguments. Pure.
"""

import re
from collections.abc import Callable, Mapping, Sequence

Renderer = Callable[[Sequence[str]], str]

BLOCK = re.compile(
    r"^<!-- generated: (?P<what>[^\n]+?) -->\n.*?^<!-- end generated -->$", re.MULTILINE | re.DOTALL
)


class UnknownBlockError(Exception):
    """A page asks for something that nothing makes, or leaves a marker open."""


def filled(page: str, renderers: Mapping[str, Renderer], *, name: str) -> str:
    """`page` with every generated part made anew. Raises UnknownBlockError that names the page."""

    def one(found: "re.Match[str]") -> str:
        what = found.group("what")
        kind, *arguments = what.split()
        if kind not in renderers:
            raise UnknownBlockError(f"{name} asks for {what!r}; there are {', '.join(sorted(renderers))}")
        try:
            text = renderers[kind](arguments).strip("\n")
        except KeyError as error:
            raise UnknownBlockError(f"{name} asks for {what!r}, but there is no {error}") from error
        return f"<!-- generated: {what} -->\n\n{text}\n\n<!-- end generated -->"

    done, count = BLOCK.subn(one, page)
    if page.count("<!-- generated:") != count or page.count("<!-- end generated -->") != count:
        raise UnknownBlockError(f"{name} has a generated part without its beginning or its end")
    return done


def asked(page: str) -> list[str]:
    """What the page asks for, such as `route POST /api/runs`."""
    return [found.group("what") for found in BLOCK.finditer(page)]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table. Cells may hold anything but line ends; bars are escaped."""
    lines = [f"| {' | '.join(headings)} |", "|" + "---|" * len(headings)]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(text: str) -> str:
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    # Outside code, `<run id>` would be taken for HTML.
    return "`".join(part if index % 2 else part.replace("<", "&lt;") for index, part in enumerate(parts))
