"""Fill the generated parts of `docs/` from code and captured examples.

    uv run python scripts/build_docs_reference.py            write them
    uv run python scripts/build_docs_reference.py --check    end with 1 if a page is stale

A page asks for a part with `<!-- generated: route POST /api/runs -->` and `<!-- end generated -->`. The parts that
there are: `docs_reference`. A test fails while a page is not what this makes.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))  # `scripts` is a folder of this checkout, not an installed package

from scripts.docs_reference import (  # noqa: E402
    architecture,
    blocks,
    cli_page,
    examples,
    lists,
    routes,
    samples,
    settings_page,
    states,
    types_page,
)

RENDERERS: Mapping[str, blocks.Renderer] = {
    "routes": routes.route_table,
    "route": routes.route,
    "types": types_page.types,
    "states": states.states,
    "run-table": states.run_table,
    "settings": settings_page.settings,
    "cli": cli_page.cli,
    "services": architecture.services,
    "services-diagram": architecture.services_diagram,
    "facts": architecture.facts,
    "decisions": lists.decisions,
    "operations": lists.operations,
    "rules": lists.rules,
    "mcp-tools": lists.mcp_tools,
    "snippet": lists.snippet,
    "sample-requests": samples.requests,
    "sample-repeats": samples.repeats,
    "sample-steps": samples.steps,
    "example": examples.example,
}


def pages() -> dict[Path, str]:
    """Every page with a generated part, as it should be."""
    made = {}
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text()
        if "<!-- generated:" in text and DOCS / "agents" not in path.parents:
            made[path] = blocks.filled(text, RENDERERS, name=str(path.relative_to(ROOT)))
    return made


def main() -> int:
    """Write or check; the exit code."""
    stale = {path: text for path, text in pages().items() if path.read_text() != text}
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `just generate`")
        return 1 if stale else 0
    for path, text in stale.items():
        path.write_text(text)
        print(f"{path.relative_to(ROOT)}: written")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
