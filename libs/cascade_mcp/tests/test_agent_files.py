"""The files for agents are what their script makes of the code, and they hold together."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parents[3]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "build_agent_files", ROOT / "scripts" / "build_agent_files.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()
FILES: dict[Path, str] = SCRIPT.files()
PROMPT = FILES[Path("agent-prompt.md")]


@pytest.mark.parametrize("path", sorted(FILES), ids=str)
def test_a_file_is_what_the_script_makes(path: Path) -> None:
    stored = (SCRIPT.TARGET / path).read_text()
    assert stored == FILES[path], "stale: run `just generate` (uv run python scripts/build_agent_files.py)"


def test_the_skill_has_valid_front_matter() -> None:
    _, front, body = FILES[Path("cascade-skill") / "SKILL.md"].split("---\n", 2)
    fields = yaml.safe_load(front)
    assert fields["name"] == "cascade"
    assert 100 < len(fields["description"]) < 1024
    assert body.strip() == PROMPT.strip()


def test_every_type_that_is_named_is_described() -> None:
    described = set(re.findall(r"^### (\w+)$", PROMPT, re.MULTILINE))
    fields = PROMPT[PROMPT.index("## Types") : PROMPT.index("## Tools instead")]
    kinds = re.findall(r"^- `\w+` \((.*?)\)(?::|$)", fields, re.MULTILINE)
    named = {name for kind in kinds for name in re.findall(r"`([A-Z]\w+)`", kind)}
    assert named - described - {"TraceState", "SimState", "RunState", "JsonValue"} == set()
    assert {"RunDetail", "KernelStat", "Comparison", "ScenarioResponse", "SnapshotEvent"} <= described


def test_routes_of_simulators_are_forbidden_and_not_described() -> None:
    assert "Never call `POST /api/sims/{sim_id}/heartbeat`" in PROMPT
    assert "### POST /api/sims" not in PROMPT
    assert "### POST /api/runs" in PROMPT


def test_every_state_is_told() -> None:
    for state in ("uploading", "lost", "partial", "cancelled"):
        assert f"- `{state}`: " in PROMPT


def test_pages_are_listed_as_in_the_sidebar() -> None:
    listed = re.findall(r"\]\(\.\./([^)]+)\)", FILES[Path("llms.txt")])
    assert listed[:4] == ["index.md", "quickstart.md", "concepts.md", "trust.md"]
    assert "operations/runbook.md" in listed  # in no sidebar, and a page all the same
    assert len(listed) == len(set(listed))


def test_links_of_the_list_lead_to_files() -> None:
    text = FILES[Path("llms.txt")]
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (SCRIPT.TARGET / target).is_file(), target
    assert not re.search(r"\): *$", text, re.MULTILINE), "a page without a line"
