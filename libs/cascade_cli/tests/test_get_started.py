"""The Get started page: its endpoint, its child process, and the page itself in a browser."""

import asyncio
import json
import os
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest
import uvicorn
from cascade_cli.deploy_sail.child import Line, Request, answer
from cascade_cli.deploy_sail.get_started import MAX_AT_ONCE, MAX_BODY_BYTES, PAGE, build_app, in_own_process
from cascade_cli.deploy_sail.testing import FakeSail
from pydantic import SecretStr
from starlette.applications import Starlette

CHROMIUM = Path("/usr/bin/chromium")
KEY = "sk_very-secret"
ASKED = {"action": "deploy", "workspace": "acme-lab", "api_key": KEY}


class Runner:
    """Answers with given lines and keeps what was asked, for the test only."""

    def __init__(self, *lines: Line) -> None:
        self.lines = lines
        self.asked: list[Request] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def __call__(self, request: Request) -> AsyncIterator[bytes]:
        self.asked.append(request)
        await self.hold.wait()
        for line in self.lines:
            yield json.dumps(line).encode() + b"\n"


def _client(app: Starlette) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://start.test")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[FakeSail]:
    """An empty account."""
    account = FakeSail(tmp_path / "sail")
    yield account
    account.close()


def _answers(account: FakeSail, request: Request) -> list[Line]:
    lines: list[Line] = []
    with httpx.Client(transport=account.transport()) as http:
        answer(request, account, http, lines.append)
    return lines


async def test_an_answer_comes_line_by_line_and_may_not_be_kept() -> None:
    runner = Runner({"step": "cascade-acme-lab: creating the sandbox"}, {"result": {"status": "running"}})
    async with _client(build_app(runner)) as client:
        reply = await client.post("/api/workspaces", json=ASKED, headers={"origin": "http://start.test"})
    assert reply.status_code == 200
    assert [json.loads(line) for line in reply.text.strip().split("\n")] == list(runner.lines)
    assert reply.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    assert runner.asked[0].api_key.get_secret_value() == KEY
    assert KEY not in repr(runner.asked[0])


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (ASKED | {"workspace": "A"}, 422, "3 to 32 lowercase letters"),
        (ASKED | {"api_key": ""}, 422, "look at: api_key"),
        (ASKED | {"action": "steal"}, 422, "look at: action"),
        (ASKED | {"more": 1}, 422, "look at: more"),
        ({"api_key": KEY}, 422, "look at: action, workspace"),
        (ASKED | {"image": "x" * MAX_BODY_BYTES}, 413, "larger than 8192 bytes"),
    ],
)
async def test_bad_requests_are_refused_without_repeating_the_key(body: Line, status: int, said: str) -> None:
    runner = Runner()
    async with _client(build_app(runner)) as client:
        reply = await client.post("/api/workspaces", json=body)
    assert reply.status_code == status
    assert said in reply.json()["error"]
    assert KEY not in reply.text
    assert runner.asked == []


async def test_another_page_cannot_use_the_endpoint() -> None:
    runner = Runner()
    async with _client(build_app(runner)) as client:
        foreign = await client.post("/api/workspaces", json=ASKED, headers={"origin": "https://evil.test"})
        form = await client.post(
            "/api/workspaces", content=json.dumps(ASKED), headers={"content-type": "text/plain"}
        )
    assert (foreign.status_code, form.status_code) == (403, 403)
    assert runner.asked == []


async def test_more_requests_than_fit_are_told_to_come_back() -> None:
    runner = Runner({"result": {}})
    runner.hold.clear()
    async with _client(build_app(runner)) as client, asyncio.timeout(60), asyncio.TaskGroup() as group:
        under_way = [
            group.create_task(client.post("/api/workspaces", json=ASKED)) for _ in range(MAX_AT_ONCE)
        ]
        while len(runner.asked) < MAX_AT_ONCE:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        refused = await client.post("/api/workspaces", json=ASKED)
        runner.hold.set()
    assert refused.status_code == 503
    assert all(task.result().status_code == 200 for task in under_way)


async def test_the_page_loads_nothing_from_elsewhere() -> None:
    async with _client(build_app(Runner())) as client:
        for path in ("/", "/start.html", "/start.js", "/start.css"):
            reply = await client.get(path)
            assert reply.status_code == 200
            assert reply.headers["x-content-type-options"] == "nosniff"
        assert (await client.get("/../pyproject.toml")).status_code == 404
    html = (PAGE / "start.html").read_text()
    assert "http" not in html.replace("https://app.sailresearch.com", "")
    script = (PAGE / "start.js").read_text()
    for keeping in (
        "localStorage",
        "sessionStorage",
        "indexedDB",
        "document.cookie",
        "console.",
        "innerHTML",
    ):
        assert keeping not in script


async def test_the_child_gets_the_key_on_its_input_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAIL_API_KEY", "sk_of-this-machine")
    monkeypatch.setenv("CASCADE_TOKEN", "of-this-machine")
    script = (
        "import json, os, sys; asked = json.load(sys.stdin); "
        "print(json.dumps({'result': {'asked': asked, 'environment': dict(os.environ), 'arguments': sys.argv}}))"
    )
    request = Request(action="status", workspace="acme-lab", api_key=SecretStr(KEY))
    lines = [line async for line in in_own_process(request, command=(sys.executable, "-c", script))]
    result = json.loads(lines[0])["result"]
    assert result["asked"] == {"action": "status", "workspace": "acme-lab", "image": None, "api_key": KEY}
    assert set(result["environment"]) <= {"PATH", "LANG", "HOME", "LC_CTYPE", "SAIL_API_URL"}
    assert result["environment"]["HOME"] == "/nonexistent"
    assert KEY not in json.dumps([result["environment"], result["arguments"]])


async def test_a_child_that_has_ended_unnoticed_is_no_error() -> None:
    request = Request(action="status", workspace="acme-lab", api_key=SecretStr(KEY))
    lines = in_own_process(request, command=(sys.executable, "-c", "import os; print(os.getpid())"))
    async with aclosing(lines):
        pid = int(await anext(lines))
        wait_until_reaped(pid)  # the event loop must not hear of the end before the block is left


def wait_until_reaped(pid: int) -> None:
    """Wait until a child has ended, and been reaped where a thread does that and not the event loop."""
    deadline = time.monotonic() + 1.0
    with suppress(ChildProcessError):
        while time.monotonic() < deadline:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            time.sleep(0.005)


async def test_a_child_that_dies_or_dawdles_becomes_an_error() -> None:
    request = Request(action="deploy", workspace="acme-lab", api_key=SecretStr(KEY))
    died = [
        line async for line in in_own_process(request, command=(sys.executable, "-c", "raise SystemExit(3)"))
    ]
    assert "ended without an answer" in json.loads(died[-1])["error"]
    before = set(psutil.Process().children())
    script = "import time; time.sleep(600)"
    slow = [
        line async for line in in_own_process(request, command=(sys.executable, "-c", script), timeout_s=1.5)
    ]
    assert "did not finish within" in json.loads(slow[-1])["error"]
    assert set(psutil.Process().children()) <= before  # whether or not it came to its sleep in that time


async def test_the_real_child_says_what_is_wrong_with_a_request() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cascade_cli.deploy_sail.child"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(json.dumps({"api_key": KEY}).encode())
    assert "2 field(s) are wrong" in json.loads(said)["error"]
    assert KEY.encode() not in said


def test_a_request_deploys_and_manages_like_the_command(account: FakeSail) -> None:
    deploy = Request(action="deploy", workspace="acme-lab", api_key=SecretStr(KEY))
    lines = _answers(account, deploy)
    assert lines[0] == {"step": "cascade-acme-lab: creating the sandbox"}
    result = lines[-1]["result"]
    assert result["open"] == f"{result['app']}/#token={result['token']}"
    assert result["s3_endpoint"] in result["upload"][0]
    assert _answers(account, deploy)[-1] == lines[-1]
    for action, status in (
        ("status", "running"),
        ("pause", "paused"),
        ("resume", "running"),
        ("delete", "none"),
    ):
        request = deploy.model_copy(update={"action": action})
        assert _answers(account, request) == [{"result": {"status": status}}]
    assert (
        "there is no workspace"
        in _answers(account, deploy.model_copy(update={"action": "pause"}))[0]["error"]
    )


@contextmanager
def _served(app: Starlette) -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            thread.join(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(60)
        listening.close()


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM.exists(), reason="Chromium is not installed")
def test_in_a_browser_the_page_shows_the_steps_and_keeps_nothing() -> None:
    from playwright.sync_api import sync_playwright

    result = {
        "sailbox": "sb-1",
        "app": "https://app.sail.test",
        "open": "https://app.sail.test/#token=t0k",
        "token": "t0k",
        "s3_endpoint": "https://s3.sail.test",
        "upload": ["upload this"],
    }
    runner = Runner({"step": "cascade-acme-lab: creating the sandbox"}, {"result": result})
    with _served(build_app(runner)) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(url)
        page.get_by_label("Workspace name").fill("Acme")
        page.get_by_label("Sail API key").fill(KEY)
        page.get_by_role("button", name="Create workspace").click()
        assert runner.asked == []  # the field's pattern holds it back
        page.get_by_label("Workspace name").fill("acme-lab")
        page.get_by_role("button", name="Create workspace").click()
        page.get_by_role("heading", name="Your workspace is ready").wait_for()
        assert page.get_by_role("link", name="Open my workspace").get_attribute("href") == result["open"]
        assert page.locator("#steps li").all_inner_texts() == ["cascade-acme-lab: creating the sandbox"]
        assert KEY not in page.content()
        stored = page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
        )
        assert KEY not in stored
        runner.lines = ({"error": "Sail refuses the key"},)
        page.get_by_role("button", name="Status").click()
        page.get_by_text("Sail refuses the key").wait_for()
        assert problems == []
        browser.close()
