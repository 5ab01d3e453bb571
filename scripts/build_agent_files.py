"""Write the files that give an agent Cascade: `docs/agents/`.

    uv run python scripts/build_agent_files.py

API, types and errors come from the app's OpenAPI document, states from the tables in `cascade_core`, rules and tools
from `cascade_mcp`, pages from `docs/`. A test fails while the files are not what this makes.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
from cascade_api.app import build_app
from cascade_api.settings import ApiSettings
from cascade_client import wire_models
from cascade_client.launching import MOST_UNASKED_SIMS
from cascade_client.provenance import RECORDED_BABELSTREAM_KERNELS, RECORDED_OPT_KERNELS
from cascade_client.wire.runs import MOST_REPLICAS
from cascade_client.wire.scenarios import ScenarioResponse
from cascade_core.runs.state import RunState
from cascade_core.sims.transitions import SIM_TRANSITIONS, SimState
from cascade_core.traces.state import TraceState
from cascade_mcp.rules import RULES
from cascade_mcp.server import build_server

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TARGET = DOCS / "agents"
TEMPLATE = Path(__file__).parent / "agent-prompt.template.md"

REFERENCE = "#/components/schemas/{model}"
SKILL_DESCRIPTION = (
    "Work a Cascade app: check GPU workload traces, launch Accel-Sim runs on GPU configs, watch them, compare and "
    "explain simulated times, errors against real hardware and failed sims. Use it when the user mentions Cascade, its "
    "traces, runs, sims or GPU configs."
)
README = "../../README.md"
SUMMARY = (
    "Cascade traces an LLM workload once on a real GPU, simulates it with Accel-Sim on many GPU configs at once, and "
    "says of every number where it comes from."
)

TRACE_STATES: Mapping[TraceState, str] = {
    TraceState.UPLOADING: "Files are arriving; `kernel_count` and `bytes` grow. Next: `processing` or `failed`.",
    TraceState.PROCESSING: "The upload is complete and is being prepared for the simulator. Next: `ready` or `failed`.",
    TraceState.READY: "Runs can launch on it, unless it is a sample. Nothing follows.",
    TraceState.FAILED: "The profiler said so, or preparing it failed; `error` tells. Nothing follows.",
}
SIM_STATES: Mapping[SimState, str] = {
    SimState.PENDING: "Created with its run, waiting for the launcher.",
    SimState.LAUNCHING: "The launcher is starting it.",
    SimState.RUNNING: "It has sent a heartbeat.",
    SimState.LOST: "It has been silent for too long. A heartbeat brings it back; ten times the timeout fails it.",
    SimState.SUCCEEDED: "It reported its success.",
    SimState.FAILED: "It reported a failure, could not be started, or stayed lost.",
    SimState.CANCELLED: "Its run was cancelled before it ended.",
}
RUN_STATES: Mapping[RunState, str] = {
    RunState.ACTIVE: "Some sim has not ended.",
    RunState.SUCCEEDED: "Every sim succeeded.",
    RunState.PARTIAL: "Every sim ended, some succeeded and some did not.",
    RunState.FAILED: "Every sim failed.",
    RunState.CANCELLED: "Every sim ended, none succeeded, and at least one was cancelled.",
}
PARAMETERS = {
    "trace_id": "The trace's `id`, percent-encoded.",
    "run_id": "The run's `id`, such as `run-9f56e171af08`.",
    "sim_id": "The sim's `id`, such as `sim-6b4c91e71437`; runs list theirs.",
    "name": "The file's name, such as `kernel-stats.csv`.",
}
ADVICE = {
    "401": "Stop and ask the user to check `CASCADE_TOKEN`.",
    "404": "List again to find the right id. A bare `Not Found` means that the path is wrong.",
    "409": "For a launch, `detail` names the trace's state: wait while it is `uploading` or `processing`.",
    "413": "Send less.",
    "422": "For a launch, take configs from `GET /api/gpu-configs` that fit the trace.",
    "502": "Look at the run and the sim that it names.",
    "503": "Before repeating a launch, look at the runs.",
    "504": "It goes on: ask again later.",
}


def files() -> dict[Path, str]:
    """Every file by its path below `docs/agents`."""
    prompt = agent_prompt()
    front = f"---\nname: cascade\ndescription: {json.dumps(SKILL_DESCRIPTION)}\n---\n\n"
    return {
        Path("agent-prompt.md"): prompt,
        Path("cascade-skill") / "SKILL.md": front + prompt,
        Path("llms.txt"): llms_txt(),
        Path("llms-full.txt"): llms_full(prompt),
    }


def agent_prompt() -> str:
    """The setup prompt."""
    document = _with_scenario_answer(build_app(ApiSettings(no_auth=True)).openapi())
    routes = list(_routes(document))
    for_agents = [route for route in routes if not _is_simulators(route)]
    filled = {
        "most_replicas": str(MOST_REPLICAS),
        "most_unasked": str(MOST_UNASKED_SIMS),
        "rules": "\n".join(f"- {rule}" for rule in RULES),
        "recorded_kernels": ", ".join(f"`{name}`" for name in sorted(RECORDED_OPT_KERNELS)),
        "babelstream_kernels": ", ".join(f"`{name}`" for name in sorted(RECORDED_BABELSTREAM_KERNELS)),
        "simulator_routes": ", ".join(f"`{verb} {path}`" for verb, path, _ in filter(_is_simulators, routes)),
        "errors": "\n".join(_errors(for_agents)),
        "route_table": _route_table(for_agents),
        "routes": "\n\n".join(_route(*route) for route in for_agents),
        "trace_states": _states(TraceState, TRACE_STATES),
        "sim_states": "\n".join(
            f"- `{state.value}`: {SIM_STATES[state]} {_moves(state)}" for state in SimState
        ),
        "run_states": _states(RunState, RUN_STATES),
        "types": "\n\n".join(_types(document, for_agents)),
        "tools": "\n".join(_tools()),
    }
    text = TEMPLATE.read_text()
    for name, value in filled.items():
        text = text.replace(f"{{{{{name}}}}}", value)
    missing = re.findall(r"\{\{\w+\}\}", text)
    assert not missing, f"nothing fills {missing}"
    return text


def llms_txt() -> str:
    """The list of pages with a line on each."""
    lines = ["# Cascade", "", f"> {SUMMARY}", "", "## Docs", ""]
    # The README is no page of the site, and says what the first page says.
    lines += [f"- [{title}]({path}): {line}" for path, title, line, _ in _pages() if path != README]
    lines += ["", "## For agents", ""]
    lines += [
        "- [Setup prompt](agent-prompt.md): how to connect, which routes to call and how to report",
        "- [Skill](cascade-skill/SKILL.md): the same prompt as a skill",
        "- [Everything](llms-full.txt): every page and the prompt in one file",
    ]
    return "\n".join(lines) + "\n"


def llms_full(prompt: str) -> str:
    """Every page and the prompt in one file."""
    parts = [f"<!-- {path} -->\n\n{text.strip()}\n" for path, _, _, text in _pages()]
    return "\n".join([*parts, f"<!-- agent-prompt.md -->\n\n{prompt}"])


def _with_scenario_answer(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the scenario's answer: its route hands on what the request simulator made."""
    answer = ScenarioResponse.model_json_schema(mode="serialization", ref_template=REFERENCE)
    document["components"]["schemas"] |= {**answer.pop("$defs"), "ScenarioResponse": answer}
    content = document["paths"]["/api/scenarios"]["post"]["responses"]["200"]["content"]
    content["application/json"]["schema"] = {"$ref": REFERENCE.format(model="ScenarioResponse")}
    return document


Route = tuple[str, str, Mapping[str, Any]]


def _routes(document: Mapping[str, Any]) -> Iterator[Route]:
    for path, verbs in document["paths"].items():
        if path.startswith("/api/"):
            for verb, operation in verbs.items():
                yield verb.upper(), path, operation


def _is_simulators(route: Route) -> bool:
    verb, path, _ = route
    return path.startswith("/api/sims/") and verb in ("POST", "PUT")


def _route_table(routes: Iterable[Route]) -> str:
    rows = [f"| {verb} | `{path}` | {_first_sentence(operation)} |" for verb, path, operation in routes]
    return "\n".join(["| method | path | what it does |", "|---|---|---|", *rows])


def _route(verb: str, path: str, operation: Mapping[str, Any]) -> str:
    lines = [f"### {verb} {path}", "", str(operation["description"]).strip(), ""]
    for parameter in operation.get("parameters", []):
        said = parameter.get("description") or PARAMETERS.get(parameter["name"])
        note = f": {said}" if said else ""
        kind = "" if parameter["required"] else ", optional"
        lines.append(f"- {parameter['in'].capitalize()} parameter `{parameter['name']}`{kind}{note}")
    bodies = operation.get("requestBody", {}).get("content", {}).values()
    lines += [f"- Body: {_type(body.get('schema', {}))}." for body in bodies]
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            kinds = [
                _returned(kind, body.get("schema", {})) for kind, body in response.get("content", {}).items()
            ]
            lines.append(f"- Returns: `{status}`" + (f" with {', '.join(kinds)}." if kinds else "."))
    refused = [status for status in operation["responses"] if not status.startswith("2")]
    if refused:
        lines.append(f"- Errors: {', '.join(f'`{status}`' for status in sorted(refused))}.")
    return "\n".join(lines)


def _returned(kind: str, schema: Mapping[str, Any]) -> str:
    return (
        _type(schema)
        if kind == "application/json"
        else f"`{kind}`" + (f" of {_type(schema)}" if schema else "")
    )


def _errors(routes: Iterable[Route]) -> Iterator[str]:
    meant: dict[str, str] = {}
    for _, path, operation in routes:
        for status, response in operation["responses"].items():
            if not status.startswith("2") and path != "/api/ready":
                meant.setdefault(status, str(response["description"]).strip())
    for status, text in sorted(meant.items()):
        yield f"- **{status}.** {text} {ADVICE.get(status, '')}".rstrip()


def _states(kind: Iterable[Any], said: Mapping[Any, str]) -> str:
    return "\n".join(f"- `{state.value}`: {said[state]}" for state in kind)


def _moves(state: SimState) -> str:
    following = [f"`{move.value}`" for move in SimState if move in SIM_TRANSITIONS[state]]
    return f"Next: {', '.join(following)}." if following else "Nothing follows."


def _types(document: Mapping[str, Any], routes: Iterable[Route]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    ours = wire_models.described_fields()
    states = {"TraceState", "SimState", "RunState", "JsonValue"}
    for name in sorted(_reached([operation for _, _, operation in routes], schemas) - states):
        schema = schemas[name]
        lines = [f"### {name}", ""]
        if text := str(schema.get("description", "")).strip():
            lines += [text, ""]
        if "properties" not in schema:
            lines.append(f"{_type(schema)}.")
        for field, shape in schema.get("properties", {}).items():
            said = shape.get("description") or ours.get(name, {}).get(field, "")
            lines.append(f"- `{field}` ({_type(shape)}){f': {_flat(said)}' if said else ''}")
        yield "\n".join(lines).rstrip()


def _reached(items: list[Any], schemas: Mapping[str, Any]) -> set[str]:
    seen: set[str] = set()
    todo = list(items)
    while todo:
        item = todo.pop()
        if isinstance(item, Mapping):
            name = str(item.get("$ref", "")).rsplit("/", 1)[-1]
            if name and name not in seen:
                seen.add(name)
                todo.append(schemas[name])
            todo += item.values()
        elif isinstance(item, list):
            todo += item
    return seen


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rsplit('/', 1)[-1]}`"
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(_type(option) for option in schema[union]))
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"list of {len(schema['prefixItems'])} {_type(schema['prefixItems'][0])}"
        case "array":
            return f"list of {_type(schema.get('items', {}))}"
        case "object" if (
            isinstance(schema.get("additionalProperties"), Mapping) and schema["additionalProperties"]
        ):
            return f"object of {_type(schema['additionalProperties'])}"
        case str(kind):
            return f"time as {kind}" if schema.get("format") == "date-time" else kind
        case _:
            return "any JSON"


def _tools() -> Iterator[str]:
    server = build_server("http://127.0.0.1:8000", None)
    for tool in anyio.run(server.list_tools):
        yield f"- `{tool.name}`: {_flat(tool.description or '')}"


def _pages() -> Iterator[tuple[str, str, str, str]]:
    """Path relative to `docs/agents`, title, first sentence and text of each page.

    The README first, then the pages in the order of the site's sidebar, then those that it leaves out.
    """
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n", 1)[1]
    sidebar = [DOCS / name for name in re.findall(r"[-:] (\S+\.md)$", navigation, re.MULTILINE)]
    others = [
        path
        for path in sorted(DOCS.rglob("*.md"))
        if path not in sidebar and TARGET not in path.parents and "snippets" not in path.parts
    ]
    pages = [*sidebar, *others]
    for path in [ROOT / "README.md", *pages]:
        text = path.read_text()
        title = next((line.lstrip("# ") for line in text.split("\n") if line.startswith("# ")), path.stem)
        relative = path.relative_to(ROOT if path.name == "README.md" and path.parent == ROOT else DOCS)
        up = "../.." if path.parent == ROOT else ".."
        yield f"{up}/{relative.as_posix()}", title, _page_line(text), text


def _page_line(text: str) -> str:
    """The first sentence of a page's prose."""
    blocks = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL).split("\n\n")
    for block in (re.sub(r"\AGenerated by .*?; do not edit\. ?", "", _flat(block)) for block in blocks):
        if re.match(r"[A-Za-z*`]", block) and not block.startswith("Status:"):
            words = re.sub(r"[*`\[]|\]\([^)]*\)", "", re.sub(r"\A\*\*[^*]+\.\*\* ", "", block))
            return re.sub(r":$", ".", re.split(r"(?<=[.!?]) (?=[A-Z])", words, maxsplit=1)[0])
    return "Reference."


def _first_sentence(operation: Mapping[str, Any]) -> str:
    return re.split(r"(?<=\.)\s", str(operation["description"]).strip(), maxsplit=1)[0]


def _flat(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    for relative, content in files().items():
        target = TARGET / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        print(f"{target.relative_to(ROOT)}: {len(content):,} characters")
