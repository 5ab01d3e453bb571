"""deploy/k8s: every document against the API's own schemas, and against what the services and the launcher need."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from cascade_cli import bundled
from cascade_cli.provisioning.testing.compose_file import Compose
from cascade_cli.provisioning.testing.kustomize import Document, without_hashes

from .manifests import (
    K8S,
    KUSTOMIZATIONS,
    SERVICES,
    container_of,
    containers,
    documents,
    environment,
    named,
    replicas,
    shared_config,
)

VERSION = kubernetes_validate.latest_version()
KUBECTL = shutil.which("kubectl")
BACKEND = bundled.ROOT / "services/launcher/src/cascade_launcher/backends/kubernetes.py"


@pytest.fixture(scope="module")
def secrets() -> dict[str, Document]:
    """What deploy/k8s/make-secrets prints, by name."""
    keys = {
        f"S3_{role}": f"{role.lower()}:it's-secret"
        for role in ("OPERATOR", "API", "INGEST", "LAUNCHER", "REQUESTSIM", "SAMPLES")
    }
    done = subprocess.run(
        [K8S / "make-secrets", "cascade"],
        env={"PATH": os.defpath, "CASCADE_DATABASE_URL": "postgresql://u:p@db:5432/c", **keys},
        capture_output=True,
        text=True,
        check=True,
    )
    return {document["metadata"]["name"]: document for document in yaml.safe_load_all(done.stdout)}


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_every_document_obeys_the_schema(kustomization: str) -> None:
    assert len(documents(kustomization)) > 25
    for document in documents(kustomization):
        kubernetes_validate.validate(document, VERSION, strict=True)


@pytest.mark.skipif(
    KUBECTL is None, reason="kubectl, whose kustomize this is compared with, is not installed"
)
@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_the_renderer_of_these_tests_renders_what_kustomize_renders(kustomization: str) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", K8S / kustomization], capture_output=True, text=True, check=True
    )

    def generated(name: str) -> bool:
        return name.startswith(("cascade-config-", "cascade-nats-config-"))

    def sorted_(found: list[Document]) -> list[Document]:
        plain = without_hashes(found, is_generated=generated)
        return sorted(
            (_env_sorted(one) for one in plain), key=lambda one: (one["kind"], one["metadata"]["name"])
        )

    assert sorted_(list(documents(kustomization))) == sorted_(list(yaml.safe_load_all(done.stdout)))


def _env_sorted(document: Document) -> Document:
    # A strategic merge puts what a patch adds first; the order means nothing here.
    for container in document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", []):
        container.get("env", []).sort(key=lambda one: one["name"])
    return document


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_every_secret_that_is_named_is_made(kustomization: str, secrets: dict[str, Document]) -> None:
    for document in secrets.values():
        kubernetes_validate.validate(document, VERSION, strict=True)
    assert secrets["cascade-s3-api"]["stringData"] == {"access-key": "api", "secret-key": "it's-secret"}
    for _, container in containers(kustomization):
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                assert reference["key"] in secrets[reference["name"]]["stringData"], reference
    launcher = environment(named(kustomization, "Deployment", "cascade-launcher"))
    assert launcher["CASCADE_K8S_TOKEN_SECRET"] in secrets
    assert launcher["CASCADE_K8S_S3_SECRET"] in secrets


def test_secrets_are_told_what_is_missing() -> None:
    done = subprocess.run(
        [K8S / "make-secrets", "cascade"],
        env={"PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "CASCADE_DATABASE_URL" in done.stderr
    shellcheck = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", K8S / "make-secrets"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shellcheck.returncode == 0, shellcheck.stdout


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_scalers_and_budgets_point_at_something(kustomization: str) -> None:
    labels = {
        (document["kind"], document["metadata"]["name"]): document["spec"]["template"]["metadata"]["labels"]
        for document in documents(kustomization)
        if document["kind"] in ("Deployment", "StatefulSet")
    }
    budgets = [one for one in documents(kustomization) if one["kind"] == "PodDisruptionBudget"]
    # Nobody waits for the samples, of which there is one: a budget would only hold up a node that is drained.
    kept = {*SERVICES, "nats"} - {"samples"}
    assert {one["metadata"]["name"] for one in budgets} == {f"cascade-{name}" for name in kept}
    for budget in budgets:
        assert budget["spec"]["selector"]["matchLabels"] in labels.values()
    scalers = [one for one in documents(kustomization) if one["kind"] == "HorizontalPodAutoscaler"]
    assert {one["spec"]["scaleTargetRef"]["name"] for one in scalers} == {
        "cascade-api",
        "cascade-parser",
        "cascade-requestsim",
    }
    for scaler in scalers:
        assert ("Deployment", scaler["spec"]["scaleTargetRef"]["name"]) in labels
    for service in (one for one in documents(kustomization) if one["kind"] == "Service"):
        assert service["spec"]["selector"] in labels.values()


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_applying_again_leaves_the_number_of_pods_to_the_scalers(kustomization: str) -> None:
    for scaler in (one for one in documents(kustomization) if one["kind"] == "HorizontalPodAutoscaler"):
        scaled = named(kustomization, "Deployment", scaler["spec"]["scaleTargetRef"]["name"])
        assert "replicas" not in scaled["spec"]
        assert 1 <= scaler["spec"]["minReplicas"] <= scaler["spec"]["maxReplicas"]


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_no_container_may_more_than_it_needs(kustomization: str) -> None:
    for document, container in containers(kustomization):
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is (document["metadata"]["name"] == "cascade-launcher")
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_every_service_of_compose_runs_with_the_same_command_and_login(
    kustomization: str, compose: Compose
) -> None:
    for service in SERVICES:
        deployment = named(kustomization, "Deployment", f"cascade-{service}")
        assert replicas(kustomization, service) >= 1, service
        container = container_of(deployment)
        assert container["args"] == compose.services[service]["command"]
        assert (
            environment(deployment)["CASCADE_NATS_USER"] == compose.environment(service)["CASCADE_NATS_USER"]
        )
    deployments = [one for one in documents(kustomization) if one["kind"] == "Deployment"]
    assert len(deployments) == len(SERVICES)


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_the_operators_login_is_for_preparing_and_for_the_samples(kustomization: str) -> None:
    holders = set()
    for document, container in containers(kustomization):
        references = [one.get("valueFrom", {}).get("secretKeyRef") for one in container.get("env", [])]
        if {"name": "cascade-nats", "key": "operator"} in references:
            holders.add(document["metadata"]["name"])
    assert holders == {"cascade-nats", "cascade-provision", "cascade-samples"}


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_the_samples_write_only_with_their_own_s3_user(kustomization: str) -> None:
    samples = named(kustomization, "Deployment", "cascade-samples")
    # One that goes before the next one comes: a second one would do all of the work again.
    assert samples["spec"]["strategy"] == {"type": "Recreate"}
    assert samples["spec"]["replicas"] == 1
    names = {
        one["valueFrom"]["secretKeyRef"]["name"]
        for one in container_of(samples)["env"]
        if one["name"].startswith("CASCADE_S3_")
    }
    assert names == {"cascade-s3-samples"}


def test_every_service_without_http_shows_its_metrics_on_a_named_port() -> None:
    port = int(shared_config("base")["CASCADE_METRICS_PORT"])
    for service in set(SERVICES) - {"api"}:
        ports = container_of(named("base", "Deployment", f"cascade-{service}"))["ports"]
        assert ports == [{"name": "metrics", "containerPort": port}], service


def test_the_launcher_may_do_what_its_backend_calls_and_no_more() -> None:
    verbs = {"create": "create", "read": "get", "list": "list", "patch": "patch", "delete": "delete"}
    kinds = {"job": "jobs", "pod": "pods", "pod_log": "pods/log"}
    calls = re.findall(r"self\._(?:batch|core)\.([a-z]+)_namespaced_([a-z_]+)", BACKEND.read_text("utf-8"))
    called = {(kinds[kind], verbs[verb]) for verb, kind in calls}
    allowed = {
        (resource, verb)
        for rule in named("base", "Role", "cascade-launcher")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert allowed == called


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_sims_run_the_image_of_the_launcher(kustomization: str) -> None:
    launcher = named(kustomization, "Deployment", "cascade-launcher")
    assert environment(launcher)["CASCADE_K8S_IMAGE"] == container_of(launcher)["image"]


@pytest.mark.parametrize(
    ("kustomization", "copies"), [("base", 3), ("overlays/dev", 1), ("overlays/prod", 3)]
)
def test_there_are_as_many_servers_as_copies_of_the_log(kustomization: str, copies: int) -> None:
    nats = named(kustomization, "StatefulSet", "cascade-nats")
    assert nats["spec"]["replicas"] == copies
    assert shared_config(kustomization)["CASCADE_NATS_REPLICAS"] == str(copies)
    container = container_of(nats)
    routes = [one for one in container["env"] if re.fullmatch(r"CASCADE_NATS_ROUTE_\d", one["name"])]
    assert len(routes) == 3
    assert container["args"][1] == ("/etc/nats/cluster.conf" if copies > 1 else "/etc/nats/nats.conf")


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_the_api_is_probed_and_event_streams_are_not_held_up(kustomization: str) -> None:
    container = container_of(named(kustomization, "Deployment", "cascade-api"))
    assert container["livenessProbe"]["httpGet"]["path"] == "/api/health"
    assert container["readinessProbe"]["httpGet"]["path"] == "/api/ready"
    annotations = named(kustomization, "Ingress", "cascade")["metadata"]["annotations"]
    prefix = "nginx.ingress.kubernetes.io/"
    assert annotations[f"{prefix}proxy-buffering"] == "off"
    assert int(annotations[f"{prefix}proxy-read-timeout"]) >= 3600
    assert annotations[f"{prefix}proxy-body-size"] == "0"
