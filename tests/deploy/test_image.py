"""The Dockerfile, as far as it can be held to account without an engine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from cascade_cli.healthcheck import holds_connection, problem, service_of

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A1B2 0200007F:107E {state} 00000000:00000000 00:00000000 00000000 10001 0 1 1 0
"""


def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "hadolint", "deploy/Dockerfile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_base_is_pinned_and_the_last_one_is_the_builders_choice() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases[-1] == "${BASE_IMAGE}"
    assert re.search(r"^ARG BASE_IMAGE=ubuntu:22\.04$", DOCKERFILE, re.MULTILINE)
    for base in bases:
        assert base == "${BASE_IMAGE}" or re.search(r":\d+\.\d+\.\d+", base), base


def test_sail_can_build_it() -> None:
    # Sail's builder takes tmpfs and bind mounts only, and no ONBUILD.
    assert not re.search(r"--mount=type=(cache|secret|ssh)", DOCKERFILE)
    assert "ONBUILD" not in DOCKERFILE


def test_it_does_not_run_as_root() -> None:
    assert re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE) == ["10001:10001"]


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    ignore = [line for line in (ROOT / ".dockerignore").read_text("utf-8").split("\n") if line[:1] == "!"]
    allowed = {line[1:] for line in ignore}
    for copied in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in copied.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert source.strip("/").split("/")[0] in allowed, source


def test_locked_versions_are_installed() -> None:
    for command in re.findall(r"uv sync [^\n\\]*", DOCKERFILE):
        assert "--frozen" in command
        assert "--no-dev" in command
    assert "npm ci" in DOCKERFILE


@pytest.mark.parametrize(
    ("command", "service"),
    [
        ("tini -- cascade serve", "api"),
        ("tini -- cascade serve --sims sail", "api"),
        ("tini -- cascade serve api", "api"),
        ("tini -- cascade serve parser", "parser"),
        ("tini -- cascade serve samples", "samples"),
    ],
)
def test_the_health_check_knows_which_service_runs(command: str, service: str) -> None:
    assert service_of(command.split()) == service


def test_a_service_is_healthy_while_it_holds_its_connection_to_nats() -> None:
    environment = {"CASCADE_NATS_URL": "nats://nats:4222"}
    assert holds_connection([TABLE.format(state="01")], 4222)
    assert problem("parser", environment, [TABLE.format(state="01")]) is None
    assert "no connection to NATS" in str(problem("parser", environment, [TABLE.format(state="06")]))
    assert "no connection to NATS" in str(problem("parser", {"CASCADE_NATS_URL": "nats://n:4333"}, [TABLE]))


def test_the_api_is_healthy_while_it_answers(unused_port: int) -> None:
    found = problem("api", {"CASCADE_PORT": str(unused_port)}, [])
    assert found is not None
    assert f"http://127.0.0.1:{unused_port}/api/health" in found
