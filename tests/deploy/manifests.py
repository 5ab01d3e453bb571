"""deploy/k8s as it is rendered, for the tests of this folder."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from cascade_cli import bundled
from cascade_cli.provisioning.testing.kustomize import Document, rendered

K8S = bundled.ROOT / "deploy" / "k8s"
KUSTOMIZATIONS = ("base", "overlays/dev", "overlays/prod")
SERVICES = ("api", "ingest", "launcher", "parser", "requestsim", "samples")


@cache
def documents(kustomization: str) -> tuple[Document, ...]:
    """Everything that `kubectl apply -k` applies."""
    return tuple(rendered(K8S / kustomization))


def named(kustomization: str, kind: str, name: str) -> Document:
    """The one document of that kind and name."""
    (found,) = [
        document
        for document in documents(kustomization)
        if document["kind"] == kind and document["metadata"]["name"] == name
    ]
    return found


def replicas(kustomization: str, service: str) -> int:
    """How many pods a service has at least: the Deployment's own number, or its autoscaler's smallest."""
    name = f"cascade-{service}"
    for document in documents(kustomization):
        if (
            document["kind"] == "HorizontalPodAutoscaler"
            and document["spec"]["scaleTargetRef"]["name"] == name
        ):
            return int(document["spec"]["minReplicas"])
    return int(named(kustomization, "Deployment", name)["spec"]["replicas"])


def containers(kustomization: str) -> Iterator[tuple[Document, dict[str, Any]]]:
    """Every container, with the workload that it belongs to."""
    for document in documents(kustomization):
        if document["kind"] in ("Deployment", "StatefulSet", "Job"):
            for container in document["spec"]["template"]["spec"]["containers"]:
                yield document, container


def container_of(document: Document) -> dict[str, Any]:
    """A workload's only container."""
    (container,) = document["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = container
    return found


def environment(document: Document) -> dict[str, str]:
    """A workload's own variables; one that comes from a secret is empty."""
    return {one["name"]: one.get("value", "") for one in container_of(document)["env"]}


def shared_config(kustomization: str) -> dict[str, str]:
    """What every service is told by the ConfigMap."""
    (found,) = [
        document
        for document in documents(kustomization)
        if document["kind"] == "ConfigMap" and document["metadata"]["name"].startswith("cascade-config-")
    ]
    told: dict[str, str] = found["data"]
    return told
