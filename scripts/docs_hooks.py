"""What the documentation site holds beside its pages: the Markdown that they are made from, for agents.

MkDocs calls this after a build. `agents/llms.txt` and what it links to then lead somewhere on the site as they do in
a checkout.
"""

import shutil
from pathlib import Path
from typing import Protocol

UNPUBLISHED = ("examples", "snippets")
"""Folders of `docs/` whose files are parts of pages, not pages."""


class SiteConfig(Protocol):
    """The part of MkDocs' configuration that is read here."""

    docs_dir: str
    site_dir: str


def on_post_build(config: SiteConfig) -> None:
    """Copy every page's Markdown to where its page is."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    for page in sorted(docs.rglob("*.md")):
        relative = page.relative_to(docs)
        if relative.parts[0] not in UNPUBLISHED:
            target = site / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, target)
