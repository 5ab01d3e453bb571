"""The site builds without a warning: every link and anchor leads somewhere."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILDS_WITHIN_S = 240.0


@pytest.mark.timeout(300)
@pytest.mark.skipif(
    importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: uv sync --group docs"
)
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILDS_WITHIN_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "quickstart" / "index.html").is_file()
    assert 'class="mermaid"' in (tmp_path / "site" / "states" / "index.html").read_text()
    # What the list for agents names is on the site too, as Markdown.
    agents = tmp_path / "site" / "agents"
    for target in re.findall(r"\]\(([^)]+)\)", (agents / "llms.txt").read_text()):
        assert (agents / target).resolve().is_relative_to(tmp_path / "site"), target
        assert (agents / target).is_file(), target
    skill = (agents / "cascade-skill" / "SKILL.md").read_bytes()
    assert skill == (ROOT / "docs" / "agents" / "cascade-skill" / "SKILL.md").read_bytes()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_files_outside_the_site_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / name).read_text()):
        if "://" not in target:
            assert (ROOT / target).exists(), f"{name} links to {target}"
