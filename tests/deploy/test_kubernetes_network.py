"""deploy/k8s: who may talk to whom. Nothing here enforces it; the policies are held to what each workload is told."""

from collections.abc import Iterator
from typing import Any

import pytest

from .manifests import documents, environment, named

NATS, POSTGRES, API, METRICS = 4222, 5432, 8000, 9464
NAMES, SPANS = {53}, {4318}
BUCKET = {443, 9000}


def policies() -> dict[str, dict[str, Any]]:
    return {
        one["metadata"]["name"]: one["spec"] for one in documents("base") if one["kind"] == "NetworkPolicy"
    }


def selects(selector: dict[str, Any], component: str) -> bool:
    """Whether a pod selector of ours takes in the pods of `component`."""
    labels = selector["matchLabels"]
    values = [component]
    for expression in selector.get("matchExpressions", []):
        assert expression["key"] == "app.kubernetes.io/component"
        assert expression["operator"] == "In"
        values = expression["values"]
    return bool(labels.get("app.kubernetes.io/component", component) == component and component in values)


def reached_by(component: str) -> set[int]:
    """The ports that pods of `component` may talk to."""
    return {
        port["port"]
        for spec in policies().values()
        if selects(spec["podSelector"], component)
        for rule in spec.get("egress", [])
        for port in rule["ports"]
    }


def workloads() -> Iterator[tuple[str, dict[str, str]]]:
    """Every workload that runs our image, and what it is told."""
    for document in documents("base"):
        if document["kind"] in ("Deployment", "Job"):
            yield document["metadata"]["labels"]["app.kubernetes.io/component"], environment(document)


def test_nobody_reaches_what_no_policy_names() -> None:
    everything = policies()["cascade-default-deny"]
    assert everything["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "cascade"}}
    assert everything["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in everything
    for document in documents("base"):
        if document["kind"] in ("Deployment", "StatefulSet", "Job"):
            assert document["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] == "cascade"


def test_every_workload_reaches_what_it_has_a_login_for_and_nothing_else() -> None:
    seen = dict(workloads())
    assert seen.keys() == {"api", "ingest", "launcher", "parser", "requestsim", "samples", "provision"}
    for component, told in seen.items():
        wanted = NAMES | SPANS | {NATS}
        if "CASCADE_S3_SECRET_KEY" in told:
            wanted |= BUCKET
        if "CASCADE_DATABASE_URL" in told:
            wanted |= {POSTGRES}
        if told.get("CASCADE_SAMPLES_AFTER_URL"):
            wanted |= {API}
        if told.get("CASCADE_SIMS") == "kubernetes":
            wanted |= {443, 6443}
        assert reached_by(component) == wanted, component


def test_a_sim_reaches_the_api_and_the_bucket_not_the_log_and_not_the_database() -> None:
    assert reached_by("sim") == NAMES | BUCKET | {API}


@pytest.mark.parametrize("component", [component for component, _ in workloads()])
def test_nats_takes_connections_of_those_who_have_a_login(component: str) -> None:
    (clients, *_) = [
        rule["from"]
        for rule in policies()["cascade-nats"]["ingress"]
        if rule["ports"] == [{"port": "client"}]
    ]
    assert any(selects(one["podSelector"], component) for one in clients if _is_ours(one["podSelector"]))
    assert not any(selects(one["podSelector"], "sim") for one in clients if _is_ours(one["podSelector"]))


def test_the_samples_wait_for_a_service_that_is_there() -> None:
    told = environment(named("base", "Deployment", "cascade-samples"))["CASCADE_SAMPLES_AFTER_URL"]
    (port,) = named("base", "Service", "cascade-api")["spec"]["ports"]
    assert told == f"http://cascade-api:{port['port']}/api/health"


def _is_ours(selector: dict[str, Any]) -> bool:
    return "app.kubernetes.io/name" in selector["matchLabels"]
