"""Lists of what lies beside: decisions, pages for operators, snippets, an agent's rules and tools."""

import re
from collections.abc import Sequence
from pathlib import Path

import anyio
from cascade_mcp.rules import RULES
from cascade_mcp.server import build_server

from scripts.docs_reference.blocks import table

DOCS = Path(__file__).parents[2] / "docs"


def decisions(_: Sequence[str]) -> str:
    """Every decision record by its title."""
    return "\n".join(f"- [{_title(path)}](adr/{path.name})" for path in sorted((DOCS / "adr").glob("*.md")))


def operations(_: Sequence[str]) -> str:
    """Every page for operators by its title."""
    pages = sorted((DOCS / "operations").glob("*.md"))
    return "\n".join(f"- [{_title(path)}](operations/{path.name})" for path in pages)


def rules(_: Sequence[str]) -> str:
    """The rules that agents work by."""
    return "\n".join(f"- {rule}" for rule in RULES)


def mcp_tools(_: Sequence[str]) -> str:
    """The MCP server's tools."""
    tools = anyio.run(build_server("http://127.0.0.1:8000", None).list_tools)
    return table(["tool", "does"], [[f"`{tool.name}`", _sentence(tool.description or "")] for tool in tools])


def snippet(arguments: Sequence[str]) -> str:
    """A file of `docs/snippets`, whole."""
    (name,) = arguments
    path = DOCS / "snippets" / name
    if not path.is_file():
        raise KeyError(name)
    return f"```python\n{path.read_text().strip()}\n```"


def _title(path: Path) -> str:
    return path.read_text().split("\n", 1)[0].lstrip("# ").strip()


def _sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]
