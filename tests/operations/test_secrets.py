"""No secret where it is not needed: logs, facts, answers, files, process arguments, child environments."""

import json
import os
import re
import secrets
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from cascade_cli import bundled
from cascade_cli.testing_runs import operator_log
from cascade_cli.testing_serve import Server, eventually, serving
from cascade_core import facts, subjects

HELD_REPLAY = Path(__file__).parents[1] / "crash" / "held_replay.py"
"""A worker whose sims stand still until a file is there: so they are seen, however late anybody looks."""
OPERATORS_OWN = "AKIA-of-the-operators-shell-" + secrets.token_hex(6)
SIM_ID, RUN_ID = re.compile(r"\bsim-[0-9a-f]{12}\b"), re.compile(r"\brun-[0-9a-f]{12}\b")
NAMED_AS = {
    "cascade_api.main": "api",
    "cascade_ingest.main": "ingest",
    "cascade_launcher.main": "launcher",
    "cascade_parser.main": "parser",
    "cascade_requestsim.main": "requestsim",
    str(HELD_REPLAY): "sim",
}
MAY_HOLD: dict[str, set[str]] = {
    "serve": {"token", "the operator's own"},
    "api": {"token", "postgres_password", "s3_secret_key", "nats:api"},
    "ingest": {"s3_secret_key", "nats:ingest"},
    "launcher": {"token", "s3_secret_key", "nats:launcher"},
    "parser": {"nats:parser"},
    "requestsim": {"s3_secret_key", "nats:requestsim"},
    "sim": set(),  # each holds a token of its own
    "store": {"s3_internal_key"},
    "server": set(),
}
"""What each process needs. `store` and `server` are embedded servers, which read their passwords from files."""


def secrets_of(server: Server) -> dict[str, str]:
    """Every secret of a running app, by name."""
    kept: dict[str, Any] = json.loads((server.data_dir / "embedded" / "credentials.json").read_text("utf-8"))
    by_service = {f"nats:{name}": password for name, password in kept.pop("nats_user_passwords").items()}
    del kept["s3_access_key"]  # a name, not a secret
    return {"token": server.token, "the operator's own": OPERATORS_OWN} | kept | by_service


def role_of(process: psutil.Process, arguments: Sequence[str], root: int) -> str:
    """What the process is for."""
    if process.pid == root:
        return "serve"
    if any(Path(argument).name == "weed" for argument in arguments):
        return "store"
    return next((role for module, role in NAMED_AS.items() if module in arguments), "server")


def look_at_processes(server: Server) -> tuple[set[str], list[str]]:
    """The roles that were seen in the tree, and every secret that lies where it should not."""
    assert server.process is not None
    root = psutil.Process(server.process.pid)
    roles: set[str] = set()
    found: list[str] = []
    for process in [root, *root.children(recursive=True)]:
        try:
            arguments, environ = process.cmdline(), process.environ()
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue  # it has just ended
        if process.pid != root.pid and arguments == root.cmdline():
            continue  # a fork that is about to become something else
        role = role_of(process, arguments, root.pid)
        roles.add(role)
        for name, secret in secrets_of(server).items():
            if any(secret in argument for argument in arguments):
                found.append(f"{name} in the arguments of {role}: {arguments[:3]}")
            holders = [variable for variable, value in environ.items() if secret in value]
            if holders and name not in MAY_HOLD[role]:
                found.append(f"{name} in {holders} of {role}: {arguments[:3]}")
    return roles, found


async def text_of_everything(server: Server, run_id: str) -> dict[str, str]:
    """Every text that leaves: logs and files, facts, answers, by where they are."""
    told: dict[str, str] = {}
    logs = [*server.directory.glob("*.log"), *(server.data_dir / "embedded").rglob("*.log")]
    for file in [*logs, *(server.data_dir / "work").rglob("*")]:
        if file.is_file():
            told[str(file)] = file.read_text("utf-8", "replace")
    async with operator_log(server.data_dir) as log:
        for record in await log.read([subjects.ALL]):
            told[f"fact {record.position}"] = facts.encode(record.fact).decode()
    async with server.client() as client:
        run = await server.run(run_id)
        paths = ["health", "ready", "metrics", "openapi.json", "traces", "runs", "gpu-configs"]
        paths += [f"runs/{run_id}", f"runs/{run_id}/kernels", "runs/nothing", "traces/demo"]
        paths += [f"sims/{sim['id']}/log" for sim in run["sims"]]
        for path in paths:
            told[f"GET {path}"] = (await client.get(f"/api/{path}")).text
        wrong = {"Authorization": f"Bearer {server.token}x"}
        told["wrong token"] = (await client.get("/api/runs", headers=wrong)).text
    return told


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_no_secret_is_where_it_is_not_needed(tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    worker = [sys.executable, str(HELD_REPLAY), str(go_on), "--replay", str(bundled.REPLAY_LOG)]
    settings = {
        "CASCADE_LOG_FORMAT": "json",
        "CASCADE_LOG_LEVEL": "DEBUG",
        "CASCADE_SIM_CMD": shlex.join(worker),
        "CASCADE_SIM_TOKENS": "1",
        "AWS_SECRET_ACCESS_KEY": OPERATORS_OWN,
        "UNRELATED_API_KEY": OPERATORS_OWN,
    }
    async with serving(tmp_path, samples=False, settings=settings) as server:
        await server.upload("demo")
        run_id = await server.launch("demo", {"SM80_A100": 1, "SM80_A30": 1})
        roles: set[str] = set()
        found: list[str] = []

        async def all_were_looked_at() -> bool:
            seen, misplaced = look_at_processes(server)
            roles.update(seen)
            found.extend(misplaced)
            return roles == MAY_HOLD.keys()

        await eventually(all_were_looked_at, "a process of each kind runs")
        go_on.touch()
        while (await server.run(run_id))["state"] == "active":
            await all_were_looked_at()
        assert (await server.ended(run_id))["state"] == "succeeded"
        assert roles == MAY_HOLD.keys()
        told = await text_of_everything(server, run_id)
        known = secrets_of(server)
    told[str(server.directory / "serve.log")] = (server.directory / "serve.log").read_text("utf-8")
    for place, text in told.items():
        found += [f"{name} in {place}" for name, secret in known.items() if secret in text]
    assert not found, "\n".join(sorted(set(found)))
    lines_name_their_sims(told[str(server.directory / "serve.log")])
    modes = {path.name: path.stat().st_mode & 0o077 for path in server.data_dir.rglob("credentials.json")}
    assert modes == {"credentials.json": 0}
    assert os.environ.get("CASCADE_TOKEN") != server.token


def lines_name_their_sims(log: str) -> None:
    """Every line of ours is an object that names service, level and time, and the run and sim that it is about."""
    lines = [json.loads(line) for line in log.split("\n") if line.startswith("{")]
    events = {line["event"] for line in lines}
    assert {"sim launched", "sim ended", "serving", "projector leads"} <= events
    for line in lines:
        assert {"service", "level", "timestamp"} <= line.keys(), line
        text = json.dumps(line)
        assert not SIM_ID.search(text) or "sim_id" in line, line
        assert not RUN_ID.search(text) or "run_id" in line, line
