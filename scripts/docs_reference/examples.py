"""Captured responses: `docs/examples/NAME.json`, written by `scripts/capture_examples.py`, shown on pages."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parents[2] / "docs" / "examples"
MOST_ITEMS = 4
MOST_INNER_ITEMS = 2
"""Of a list inside a list."""
MOST_KEYS = 12
"""Of a map whose keys are data, such as a kernel's statistics."""
LONGEST_TEXT = 400


@dataclass(frozen=True, slots=True)
class Example:
    """One exchange with a running server, long lists and maps cut."""

    method: str
    path: str
    route: str
    """The path with its parameters' names, as in the OpenAPI document."""
    status: int
    body: Any
    """Parsed JSON; a string for any other body."""
    content_type: str = "application/json"
    request: Any = None
    """The JSON body that was sent."""
    cut: dict[str, str] = field(default_factory=dict)
    """Where something was cut, and how much."""

    def store(self, name: str, directory: Path = DIRECTORY) -> None:
        """Write it as `name`."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        (directory / f"{name}.json").write_text(text + "\n")


def load(name: str, directory: Path = DIRECTORY) -> Example:
    """Read what `store` wrote. Raises KeyError for a name that was not captured."""
    path = directory / f"{name}.json"
    if not path.is_file():
        raise KeyError(name)
    return Example(**json.loads(path.read_text()))


def names(directory: Path = DIRECTORY) -> list[str]:
    """Every captured example."""
    return sorted(path.stem for path in directory.glob("*.json"))


def trimmed(value: Any, cut: dict[str, str], at: str = "") -> Any:
    """`value` with long lists, maps and texts cut; what was cut is noted in `cut` by its place."""
    match value:
        case list():
            inner = "[" in at and any(isinstance(item, dict | list) for item in value)
            most = MOST_INNER_ITEMS if inner else MOST_ITEMS
            if len(value) > most:
                cut[at or "."] = f"{len(value) - most} more items"
            return [trimmed(item, cut, f"{at}[{index}]") for index, item in enumerate(value[:most])]
        case dict():
            kept = list(value.items())
            if at.endswith("stats") and len(kept) > MOST_KEYS:
                cut[at] = f"{len(kept) - MOST_KEYS} more keys"
                kept = kept[:MOST_KEYS]
            return {key: trimmed(item, cut, f"{at}.{key}".lstrip(".")) for key, item in kept}
        case str() if len(value) > LONGEST_TEXT:
            cut[at or "."] = f"{len(value) - LONGEST_TEXT} more characters"
            return value[:LONGEST_TEXT]
        case _:
            return value


def example(arguments: Sequence[str]) -> str:
    """An example as a page shows it."""
    (name,) = arguments
    found = load(name)
    lines = []
    if found.request is not None:
        lines += [f"`{found.method} {found.path}` with", "", _fenced(found.request), ""]
        lines += [f"answers `{found.status} {HTTPStatus(found.status).phrase}`"]
    else:
        lines += [f"`{found.method} {found.path}` answers `{found.status} {HTTPStatus(found.status).phrase}`"]
    if found.body in (None, ""):
        return "\n".join([*lines[:-1], lines[-1] + " without a body."])
    lines[-1] += ":" if found.content_type == "application/json" else f", `{found.content_type}`:"
    lines += ["", _fenced(found.body)]
    if found.cut:
        said = "; ".join(f"`{at}` by {much}" for at, much in list(found.cut.items())[:4])
        others = f" and {len(found.cut) - 4} more places" if len(found.cut) > 4 else ""
        lines += ["", f"Shortened here: {said}{others}."]
    return "\n".join(lines)


def _fenced(value: Any) -> str:
    if isinstance(value, str):
        return f"```text\n{value.rstrip()}\n```"
    return f"```json\n{json.dumps(value, indent=2, ensure_ascii=False)}\n```"
