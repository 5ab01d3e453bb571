"""What the pages tell a reader to run works, and prints what they show."""

import shutil
from pathlib import Path

import pytest
from cascade_cli.embedded.process import free_ports

from tests.docs.page_snippets import ROOT, missing, reader, snippets

PAGES = sorted(path.name for path in (ROOT / "docs").glob("*.md") if snippets(path.read_text()))


def test_the_pages_that_must_run_are_found() -> None:
    assert {"quickstart.md", "simulator.md"} <= set(PAGES)


def test_a_block_knows_what_it_must_show() -> None:
    page = "<!-- run -->\n```bash\necho run-1 done\n```\n\n<!-- shows -->\n```text\nrun-… done\n```\n"
    (only,) = snippets(page)
    assert only.code == "echo run-1 done\n"
    assert missing(only.shows, "run-1 done\n") == []
    assert missing(only.shows, "walk-1 done\n") == ["run-… done"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed, and the pages use it")
@pytest.mark.parametrize("name", PAGES)
def test_every_snippet_runs(name: str, tmp_path: Path) -> None:
    port, s3_port = free_ports(2)
    somebody = reader(tmp_path, port, s3_port)
    for snippet, output in somebody.follow((ROOT / "docs" / name).read_text()):
        assert missing(snippet.shows, output) == [], f"{snippet.code}\nprinted:\n{output}"
