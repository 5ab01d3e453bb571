"""What the pages tell a reader to run works, and prints what they show."""

import ast
import importlib
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
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
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed, and the pages use it")
@pytest.mark.parametrize("name", PAGES)
def test_every_snippet_runs(name: str, tmp_path: Path) -> None:
    port, s3_port = free_ports(2)
    somebody = reader(tmp_path, port, s3_port)
    for snippet, output in somebody.follow((ROOT / "docs" / name).read_text()):
        assert missing(snippet.shows, output) == [], f"{snippet.code}\nprinted:\n{output}"


def _blocks(language: str) -> list[tuple[str, str]]:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "operations").glob("*.md")]
    fenced = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(path.name, block) for path in pages for block in fenced.findall(path.read_text())]


@pytest.mark.parametrize(
    ("language", "read"), [("python", ast.parse), ("json", json.loads), ("toml", tomllib.loads)]
)
def test_every_block_can_be_read(language: str, read: Callable[[str], object]) -> None:
    blocks = _blocks(language)
    assert blocks
    for name, block in blocks:
        try:
            read(block)
        except (SyntaxError, ValueError) as error:
            raise AssertionError(f"{name}: {error}:\n{block}") from error


def test_every_import_of_a_python_block_exists() -> None:
    ours = re.compile(r"^from (cascade_\w+(?:\.\w+)*) import (.+)$", re.MULTILINE)
    for name, block in _blocks("python"):
        for module, names in ours.findall(block):
            for one in names.split(","):
                assert hasattr(importlib.import_module(module), one.strip()), f"{name}: {module} has no {one}"


def test_every_shell_block_can_be_read() -> None:
    for name, block in _blocks("bash"):
        done = subprocess.run(["bash", "-n", "-c", block], capture_output=True, text=True, check=False)
        if "<" in re.sub(r"<<|<\(|2>|>", "", block):
            continue  # a place to fill in, such as <trace>
        assert done.returncode == 0, f"{name}: {done.stderr}\n{block}"
