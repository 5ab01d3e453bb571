"""Every CASCADE_ variable that compose.yaml and deploy/k8s set is a setting of the service that gets it."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from cascade_api.settings import ApiSettings
from cascade_cli.provisioning.settings import ProvisionSettings
from cascade_cli.provisioning.testing.compose_file import Compose, read_compose, read_env
from cascade_cli.samples import SamplesSettings
from cascade_core.settings import TelemetrySettings
from cascade_ingest.settings import IngestSettings
from cascade_launcher.backends.kubernetes_settings import KubernetesSettings
from cascade_launcher.settings import LauncherSettings
from cascade_parser.main import ParserSettings
from cascade_requestsim.settings import RequestsimSettings
from pydantic_settings import BaseSettings

from .manifests import (
    KUSTOMIZATIONS,
    SERVICES,
    container_of,
    documents,
    environment,
    named,
    shared_config,
)

SETTINGS: dict[str, tuple[type[BaseSettings], ...]] = {
    "api": (ApiSettings,),
    "ingest": (IngestSettings,),
    "launcher": (LauncherSettings, KubernetesSettings),
    "parser": (ParserSettings,),
    "requestsim": (RequestsimSettings,),
    "provision": (ProvisionSettings, TelemetrySettings),
    "samples": (SamplesSettings,),
}
LEFT_TO_THE_DEFAULT = {
    "CASCADE_HEARTBEAT_TIMEOUT_S",
    "CASCADE_OPENAI_WAIT_S",
    "CASCADE_OTLP_ENDPOINT",
    "CASCADE_POSTPROCESS_CMD",
    "CASCADE_WORKSPACE",
}
"""What .env hands on and an overlay has to name itself; each service is the same without."""


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


@pytest.mark.parametrize(("written", "own_tokens"), [(None, False), ("0", False), ("1", True)])
def test_whether_sims_have_tokens_of_their_own_is_told_to_the_launcher_alone(
    env_file: Path, written: str | None, own_tokens: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = read_env(env_file)
    assert variables.pop("CASCADE_SIM_TOKENS") == "0"
    compose = read_compose(variables if written is None else variables | {"CASCADE_SIM_TOKENS": written})
    readers = {name for name in SETTINGS if "CASCADE_SIM_TOKENS" in _names(name)}
    assert readers == {"launcher"}
    assert {name for name in compose.services if "CASCADE_SIM_TOKENS" in compose.environment(name)} == readers
    _set(monkeypatch, compose.environment("launcher"))
    assert LauncherSettings().sim_tokens is own_tokens


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_kubernetes_leaves_the_shared_token_to_sims_unless_it_is_changed(
    kustomization: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {
        service: environment(named(kustomization, "Deployment", f"cascade-{service}")) for service in SERVICES
    }
    assert {service for service in SERVICES if "CASCADE_SIM_TOKENS" in told[service]} == {"launcher"}
    _set(monkeypatch, told["launcher"])
    assert LauncherSettings().sim_tokens is False


@pytest.mark.parametrize("service", SERVICES)
def test_what_compose_tells_a_service_has_a_place_on_kubernetes(compose: Compose, service: str) -> None:
    deployment = named("base", "Deployment", f"cascade-{service}")
    places = environment(deployment).keys() | shared_config("base").keys() | LEFT_TO_THE_DEFAULT
    given = {name for name in compose.environment(service) if name.startswith("CASCADE_")}
    assert given <= places, given - places


@pytest.mark.parametrize("overlay", KUSTOMIZATIONS)
def test_kubernetes_sets_what_the_services_read(overlay: str) -> None:
    for document in documents(overlay):
        if document["kind"] not in ("Deployment", "Job"):
            continue
        service = container_of(document)["name"]
        given = {name for name in environment(document) if name.startswith("CASCADE_")}
        assert given <= _names(service), given - _names(service)
    known = set().union(*map(_names, SETTINGS))
    shared = set(shared_config(overlay))
    assert shared <= known, shared - known


def _set(monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("CASCADE_")]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
