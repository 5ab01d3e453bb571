"""The pages say what the code does: generated parts are current, and nothing is left out."""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import cascade_api
import cascade_cli
import cascade_core
import cascade_ingest
import cascade_launcher
import cascade_parser
import cascade_profiler
import cascade_requestsim
import cascade_worker
import pytest
from cascade_core.writers import WRITERS
from pydantic_settings import BaseSettings

from scripts import build_docs_reference as build
from scripts.docs_reference import architecture, blocks, cli_page, routes, schema_words, settings_page, states

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = build.pages()
PACKAGES = (
    cascade_api,
    cascade_cli,
    cascade_core,
    cascade_ingest,
    cascade_launcher,
    cascade_parser,
    cascade_profiler,
    cascade_requestsim,
    cascade_worker,
)
# Named in sources, but no setting: a store, a lease bucket, prefixes, and what test doubles read.
NOT_SETTINGS = re.compile(r"CASCADE_(CLAIMS|LEASES|FAKE_\w+|\w*_)?")


def _text(name: str) -> str:
    return (DOCS / name).read_text()


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: str(path.relative_to(DOCS)))
def test_a_page_is_what_the_code_makes_of_it(path: Path) -> None:
    assert path.read_text() == PAGES[path], "stale: run `just generate`"


def test_a_part_that_nothing_makes_is_refused() -> None:
    page = "<!-- generated: weather today -->\n<!-- end generated -->\n"
    with pytest.raises(blocks.UnknownBlockError, match=r"a\.md asks for 'weather today'"):
        blocks.filled(page, build.RENDERERS, name="a.md")


def test_a_part_without_an_end_is_refused() -> None:
    with pytest.raises(blocks.UnknownBlockError, match="without its beginning or its end"):
        blocks.filled("<!-- generated: routes -->\n", build.RENDERERS, name="a.md")


def test_an_example_that_was_not_captured_is_refused() -> None:
    page = "<!-- generated: example nothing -->\n<!-- end generated -->"
    with pytest.raises(blocks.UnknownBlockError, match="there is no 'nothing'"):
        blocks.filled(page, build.RENDERERS, name="a.md")


def test_filling_a_page_twice_changes_nothing() -> None:
    once = blocks.filled(_text("states.md"), build.RENDERERS, name="states.md")
    assert blocks.filled(once, build.RENDERERS, name="states.md") == once


def test_a_cell_escapes_bars_and_what_looks_like_html() -> None:
    row = blocks.table(["a", "b"], [["x | y", "<sim id> and `<code>`"]]).split("\n")[-1]
    assert row == "| x \\| y | &lt;sim id> and `<code>` |"


@pytest.mark.parametrize(
    "route", [f"{verb} {path}" for verb, path, _ in routes.operations()], ids=lambda route: route
)
def test_a_route_is_described_once(route: str) -> None:
    asking = [path.name for path in PAGES if f"route {route}" in blocks.asked(path.read_text())]
    verb, path = route.split(" ", 1)
    assert asking == [routes.page_of(verb, path, schema_words.document()["paths"][path][verb.lower()])]


def test_every_type_is_described() -> None:
    described = set(re.findall(r"^### (\w+)$", _text("types.md"), re.MULTILINE))
    assert described == set(schema_words.schemas()) - {*schema_words.STATES, "JsonValue"}


def test_nine_of_ten_fields_have_a_meaning() -> None:
    rows = [row for line in _text("types.md").split("\n") if (row := line.split(" | "))[0].startswith("| `")]
    silent = [row[0] for row in rows if row[-1].strip(" |") == ""]
    assert len(silent) <= len(rows) / 10, silent


OF_EXTRAS = {"kubernetes_asyncio", "modal", "modal_proto", "grpclib"}
"""What only extras bring: the tests of a checkout run without them."""


def _settings_classes() -> Iterator[type[BaseSettings]]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__"):
                continue
            try:
                module = importlib.import_module(found.name)
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] in OF_EXTRAS:
                    continue  # settings stand beside what needs an SDK, not in it
                raise
            for value in vars(module).values():
                if not inspect.isclass(value) or not issubclass(value, BaseSettings):
                    continue
                if value is not BaseSettings and not value.__name__.startswith("_"):
                    yield value


def test_every_settings_class_is_on_the_settings_page() -> None:
    assert set(_settings_classes()) == set(settings_page.GROUPS.values())


def test_every_variable_of_the_settings_classes_is_on_the_page() -> None:
    page = _text("settings.md")
    missing = {name for name in settings_page.variables() if f"| `{name}` |" not in page}
    assert missing == set()


def test_every_variable_that_a_source_names_is_on_the_page() -> None:
    page = _text("settings.md")
    sources = [
        path
        for folder in ("libs", "services", "scripts")
        for path in (ROOT / folder).rglob("*.py")
        if {"tests", "testing"}.isdisjoint(path.parts)
    ]
    named = {name for path in sources for name in re.findall(r"\bCASCADE_[A-Z0-9_]*", path.read_text())}
    missing = {name for name in named if not NOT_SETTINGS.fullmatch(name) and f"`{name}`" not in page}
    assert missing == set()


def test_every_variable_that_a_page_names_exists() -> None:
    known = {*settings_page.variables(), "CASCADE_IMAGE", "CASCADE_S3_PROFILER_SECRET"}
    for path in [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        named = set(re.findall(r"\bCASCADE_[A-Z0-9_]+\b", path.read_text()))
        unknown = {name for name in named if name not in known and not NOT_SETTINGS.fullmatch(name)}
        assert unknown == set(), path.name


@pytest.mark.parametrize("program", cli_page.PROGRAMS)
def test_every_command_is_on_the_commands_page(program: str) -> None:
    page = _text("cli.md")
    for name, command in cli_page.commands(program):
        assert f"### {name}\n" in page
        assert (command.help or "").strip(), f"{name} does not say what it does"


def test_every_benchmark_is_on_the_benchmarks_page() -> None:
    page = _text("benchmarks.md")
    for name, _ in cli_page.commands("cascade"):
        if name.startswith("cascade bench "):
            assert f"`{name}" in page


def test_every_command_that_a_page_shows_exists() -> None:
    known = {name for program in cli_page.PROGRAMS for name, _ in cli_page.commands(program)}
    heads = {" ".join(name.split()[:2]) for name in known} | {"cascade"}
    for path in [*DOCS.glob("*.md"), *(DOCS / "operations").glob("*.md"), ROOT / "README.md"]:
        for shown in re.findall(
            r"uv run (?:--\S+ \S+ )*((?:cascade|cascade-profiler) [a-z-]+)", path.read_text()
        ):
            assert shown in heads, f"{path.name} shows {shown}"


def test_every_fact_is_on_the_architecture_and_events_pages() -> None:
    architecture_page, events = _text("architecture.md"), _text("events.md")
    for fact in WRITERS:
        assert f"`{fact}`" in architecture_page
        assert f"## {fact}\n" in events


def test_every_service_reads_something() -> None:
    for service in architecture.DOES:
        assert architecture.reads(service), service


def test_a_new_name_of_a_subject_is_known_to_the_diagram() -> None:
    named: set[str] = set()
    for path in (ROOT / "services").rglob("src/**/*.py"):
        if "testing" not in path.parts and path.name != "testing.py":
            named |= set(re.findall(r"\bsubjects\.(\w+)", path.read_text()))
    plain = {
        "subject_of",
        "scenario_of_subject",
        "sim_of_log_subject",
        "LEASES",
        "STREAM",
        "CLAIMS",
        "ROOT",
    }
    assert named - set(architecture.COVERS) - plain == set()


def test_every_allowed_move_has_a_fact_that_makes_it() -> None:
    assert "–" not in states.states(["sim"]).split("```")[1]
