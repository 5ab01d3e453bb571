"""`cascade web build` beside a server that serves the present build: the real npm, on a dashboard of one script."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import typer
from cascade_api import web
from cascade_cli import bundled, web_commands
from fastapi import FastAPI
from starlette.testclient import TestClient

DEADLINE_S = 60.0
# Empties its folder and fills it, as Vite does, and waits in between until it may go on.
SCRIPT = """
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
const out = process.env.DASHBOARD_OUT ?? "dist";
for (const name of readdirSync(out)) rmSync(`${out}/${name}`, { recursive: true });
mkdirSync(`${out}/assets`);
writeFileSync(`${out}/assets/app.js`, "new");
writeFileSync("building", "");
while (!existsSync("go-on")) await new Promise((done) => setTimeout(done, 5));
if (existsSync("break")) process.exit(3);
if (!existsSync("forget")) writeFileSync(`${out}/index.html`, "new page");
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dashboard whose packages are installed, and whose build may go on at once."""
    root = tmp_path / "web"
    (root / "src").mkdir(parents=True)
    (root / "node_modules").mkdir()
    (root / "package.json").write_text(
        json.dumps({"name": "small", "type": "module", "scripts": {"build": "node build.mjs"}})
    )
    (root / "package-lock.json").write_text("{}")
    (root / "node_modules" / ".lock-digest").write_text(hashlib.sha256(b"{}").hexdigest())
    (root / "build.mjs").write_text(SCRIPT)
    (root / "go-on").touch()
    monkeypatch.setattr(bundled, "WEB_SOURCES", root)
    monkeypatch.setattr(bundled, "WEB_BUILD", root / "dist")
    return root


@pytest.fixture
def built(sources: Path) -> Path:
    """The present build, out of date."""
    dist = sources / "dist"
    (dist / "assets").mkdir(parents=True)
    (dist / "index.html").write_text("old page")
    (dist / "assets" / "app.js").write_text("old")
    (dist / ".sources").write_text("0" * 64)
    return dist


@pytest.fixture
def site(built: Path) -> Iterator[TestClient]:
    """A server of the present build."""
    app = FastAPI()
    web.install(app, [], built)
    with TestClient(app) as client:
        yield client


@pytest.fixture(params=["in one step", "by two renames"])
def swapping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How folders are swapped."""
    way: str = request.param
    if way == "by two renames":
        monkeypatch.setattr(web_commands, "_exchanged", lambda one, other: False)
    return way


def left_beside(sources: Path) -> list[str]:
    return [path.name for path in sources.iterdir() if path.name.startswith(".dist-")]


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_server_serves_the_old_build_until_the_new_one_is_whole(sources: Path, site: TestClient) -> None:
    (sources / "go-on").unlink()
    served: set[tuple[str, str]] = set()
    over = threading.Event()

    def look() -> None:
        """Everything that anybody sees from before the build until after it."""
        while not over.is_set():
            page, asset = site.get("/"), site.get("/assets/app.js")
            assert (page.status_code, asset.status_code) == (200, 200), asset.text
            served.update({("page", page.text), ("asset", asset.text)})

    with ThreadPoolExecutor(2) as pool:
        looking = pool.submit(look)
        building = pool.submit(web_commands.build, quiet=True)
        try:
            wait_for((sources / "building").exists)
            served.clear()
            wait_for(lambda: bool(served) or looking.done())
            assert served <= {("page", "old page"), ("asset", "old")}
            (sources / "go-on").touch()
            assert building.result(DEADLINE_S)
            wait_for(lambda: {("page", "new page"), ("asset", "new")} <= served or looking.done())
        finally:
            (sources / "go-on").touch()
            over.set()
        looking.result(DEADLINE_S)
    assert served == {("page", "old page"), ("asset", "old"), ("page", "new page"), ("asset", "new")}
    assert left_beside(sources) == []


def test_what_is_built_is_whole_readable_and_up_to_date(sources: Path, built: Path, swapping: str) -> None:
    assert web_commands.build(quiet=True), swapping
    assert {path.name for path in built.iterdir()} == {"index.html", "assets", ".sources"}
    assert (built / "assets" / "app.js").read_text() == "new"
    assert built.stat().st_mode & 0o055 == 0o055  # an image's services run as another user
    assert left_beside(sources) == []
    assert not web_commands.build(quiet=True)


def test_the_first_build_needs_nothing_to_swap_with(sources: Path) -> None:
    assert web_commands.build(quiet=True)
    assert (sources / "dist" / "index.html").read_text() == "new page"
    assert left_beside(sources) == []


@pytest.mark.parametrize(("spoiled", "said"), [("break", "ended with code 3"), ("forget", "no index.html")])
def test_a_build_that_fails_leaves_the_present_one_as_it_is(
    sources: Path, built: Path, capsys: pytest.CaptureFixture[str], *, spoiled: str, said: str
) -> None:
    (sources / spoiled).touch()
    with pytest.raises(typer.Exit):
        web_commands.build(quiet=True)
    assert said in capsys.readouterr().err
    assert (built / "index.html").read_text() == "old page"
    assert (built / "assets" / "app.js").read_text() == "old"
    assert web_commands.built_digest() == "0" * 64  # so that the next start tries again
    assert left_beside(sources) == []


def test_what_a_killed_build_left_is_cleared_away(sources: Path, built: Path) -> None:
    (sources / ".dist-1" / "assets").mkdir(parents=True)
    (sources / ".dist-2.old").mkdir()
    assert web_commands.build(quiet=True)
    assert left_beside(sources) == []
    assert (built / "index.html").read_text() == "new page"


def test_a_swap_that_fails_half_way_is_taken_back(built: Path, swapping: str) -> None:
    with pytest.raises(FileNotFoundError):
        web_commands.put_in_place(built.with_name(f".dist-gone-{swapping}"), built)
    assert (built / "index.html").read_text() == "old page"
    assert left_beside(built.parent) == []
