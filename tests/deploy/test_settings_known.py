"""Every CASCADE_ variable that compose.yaml and deploy/k8s set is a setting of the service that gets it."""

import pytest
from cascade_api.settings import ApiSettings
from cascade_cli import bundled
from cascade_cli.provisioning.settings import ProvisionSettings
from cascade_cli.provisioning.testing.compose_file import Compose
from cascade_cli.provisioning.testing.kustomize import rendered
from cascade_cli.samples import SamplesSettings
from cascade_core.settings import TelemetrySettings
from cascade_ingest.settings import IngestSettings
from cascade_launcher.backends.kubernetes_settings import KubernetesSettings
from cascade_launcher.settings import LauncherSettings
from cascade_parser.main import ParserSettings
from cascade_requestsim.settings import RequestsimSettings
from pydantic_settings import BaseSettings

SETTINGS: dict[str, tuple[type[BaseSettings], ...]] = {
    "api": (ApiSettings,),
    "ingest": (IngestSettings,),
    "launcher": (LauncherSettings, KubernetesSettings),
    "parser": (ParserSettings,),
    "requestsim": (RequestsimSettings,),
    "provision": (ProvisionSettings, TelemetrySettings),
    "samples": (SamplesSettings,),
}


def _names(service: str) -> set[str]:
    return {
        f"{settings.model_config.get('env_prefix', '')}{field}".upper()
        for settings in SETTINGS[service]
        for field in settings.model_fields
    }


@pytest.mark.parametrize("service", SETTINGS)
def test_compose_sets_what_the_service_reads(compose: Compose, service: str) -> None:
    given = {name for name in compose.environment(service) if name.startswith("CASCADE_")}
    assert given <= _names(service), given - _names(service)


@pytest.mark.parametrize("overlay", ["base", "overlays/dev", "overlays/prod"])
def test_kubernetes_sets_what_the_services_read(overlay: str) -> None:
    documents = rendered(bundled.ROOT / "deploy" / "k8s" / overlay)
    for document in documents:
        if document["kind"] not in ("Deployment", "Job"):
            continue
        (container,) = document["spec"]["template"]["spec"]["containers"]
        given = {one["name"] for one in container["env"] if one["name"].startswith("CASCADE_")}
        assert given <= _names(container["name"]), given - _names(container["name"])
    (shared,) = [
        one
        for one in documents
        if one["kind"] == "ConfigMap" and one["metadata"]["name"].startswith("cascade-config-")
    ]
    known = set().union(*map(_names, SETTINGS))
    assert set(shared["data"]) <= known, set(shared["data"]) - known
