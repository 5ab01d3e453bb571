"""The runbook, the alerts and the dashboard speak of things that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from cascade_api import observing
from cascade_cli.app_stack import METRICS_ORDER
from cascade_core import metrics
from cascade_core.sims.transitions import SimState
from cascade_core.traces.state import TraceState
from prometheus_client import REGISTRY

from scripts.audit_dependencies import Dependency, Report, Vulnerability, verdict

ROOT = Path(__file__).parents[2]
RUNBOOK = (ROOT / "docs" / "operations" / "runbook.md").read_text("utf-8")
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "cascade.json").read_text("utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])
]


def known_metrics() -> dict[str, set[str]]:
    """Every sample name that Cascade shows, with its labels."""
    assert metrics.SIMS
    assert observing.OTHER
    known: dict[str, set[str]] = {}
    for collector in list(REGISTRY._collector_to_names):
        labels = set(getattr(collector, "_labelnames", ()))
        for name in REGISTRY._collector_to_names[collector]:
            known[name] = labels
    return known


@pytest.mark.parametrize("alert", [rule["alert"] for rule in RULES])
def test_every_alert_has_a_section_that_says_what_to_do(alert: str) -> None:
    section = re.search(rf"^## {alert}\n(.*?)(?=^## |\Z)", RUNBOOK, re.DOTALL | re.MULTILINE)
    assert section is not None
    assert all(word in section[1] for word in ("**Means**", "**Look**", "**Do**"))


def test_every_section_of_an_alert_is_of_one_that_exists() -> None:
    assert set(re.findall(r"^## (Cascade\w+)$", RUNBOOK, re.MULTILINE)) == {rule["alert"] for rule in RULES}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_names_metrics_and_labels_that_exist(expression: str) -> None:
    known = known_metrics()
    names = set(re.findall(r"\b(cascade_\w+|process_\w+)", expression))
    assert names <= known.keys()
    assert names or expression.startswith("up{")
    assert expression.count("(") == expression.count(")")
    for name, matchers in re.findall(r"\b(cascade_\w+)\{((?:[^{}]|\{\w+\})*)\}", expression):
        assert set(re.findall(r"(\w+)=~?\"", matchers)) <= known[name]
    for grouped in re.findall(r"by \(([^)]*)\)", expression):
        labels = set().union(*(known[name] for name in names)) | {"le"}
        assert {label.strip() for label in grouped.split(",")} <= labels
    states = {state.value for state in SimState} | {state.value for state in TraceState}
    assert set(re.findall(r'state="(\w+)"', expression)) <= states


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    ours = {name for name in known_metrics() if name.startswith("cascade_")}
    families = {re.sub(r"_(total|created|bucket|count|sum)$", "", name) for name in ours}
    shown = " ".join(EXPRESSIONS)
    assert [family for family in families if family not in shown] == []


def test_the_runbook_names_every_reader_that_has_metrics() -> None:
    sources = [*(ROOT / "libs").glob("*/src/**/*.py"), *(ROOT / "services").glob("*/src/**/*.py")]
    readers = {
        name for path in sources for name in re.findall(r'\breader="([^"]+)"', path.read_text("utf-8"))
    }
    listed = re.search(r"^Readers of the log, .*?(?=\n\n)", RUNBOOK, re.DOTALL | re.MULTILINE)
    assert listed is not None
    # A rebuild is a command of its own, which shows no metrics.
    assert set(re.findall(r"`(\w+)`", listed[0])) - {"reader"} == readers - {"rebuild"}


def test_the_runbook_scrapes_every_service_that_shows_metrics() -> None:
    scraped = re.search(r"scrape_configs:\n(.*?)\n```", RUNBOOK, re.DOTALL)
    assert scraped is not None
    jobs = yaml.safe_load(f"scrape_configs:\n{scraped[1]}")["scrape_configs"]
    targets = {
        target.split(":")[0]
        for job in jobs
        for static in job["static_configs"]
        for target in static["targets"]
    }
    assert targets == {"api", *METRICS_ORDER}
    # The alert that a service is down finds them by the job's name.
    assert all(job["job_name"].startswith("cascade") for job in jobs)
    assert 'up{job=~"cascade.*"} == 0' in EXPRESSIONS


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert {"title", "uid", "schemaVersion", "panels", "templating"} <= DASHBOARD.keys()
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
        for target in panel.get("targets", []):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_an_audit_fails_on_a_vulnerability_and_only_on_one() -> None:
    fine = Dependency(name="attrs", version="26.1.0")
    away = Dependency(name="anyio", skip_reason="Dependency not found on PyPI and could not be audited")
    bad = Dependency(name="yarl", version="1", vulns=[Vulnerability(id="CVE-1", fix_versions=["2"])])
    assert verdict(Report(dependencies=[fine, bad])).code == 1
    assert verdict(Report(dependencies=[fine, bad])).lines[0] == "yarl 1: CVE-1, fixed in 2"
    assert verdict(Report(dependencies=[fine, away])).lines == [
        "1 locked runtime dependencies without a known vulnerability; 1 could not be looked up"
    ]
    assert verdict(Report(dependencies=[away])).code == 0
    assert "not audited" in verdict(Report(dependencies=[away])).lines[0]
