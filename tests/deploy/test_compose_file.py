"""compose.yaml against the compose specification, and against the rules that no schema knows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cascade_cli.provisioning.nats_config import password_variable, users
from cascade_cli.provisioning.testing.compose_file import (
    Compose,
    UnsetVariableError,
    make_env,
    read_compose,
    read_env,
)
from cascade_core.jetstream.permissions import SERVICES

ROOT = Path(__file__).resolve().parents[2]
OURS = ("api", "ingest", "launcher", "parser", "requestsim")
SERVERS = ("nats", "postgres", "minio")
ONE_SHOT = ("provision", "minio-users")


def test_the_file_obeys_the_compose_specification() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", "compose.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_is_explained_in_the_example() -> None:
    used = set(re.findall(r"\$\{([A-Z0-9_]+)", (ROOT / "compose.yaml").read_text("utf-8")))
    # Settings that are commented out have a default that is told.
    told = set(
        re.findall(r"^(?:# )?([A-Z][A-Z0-9_]+)=", (ROOT / ".env.example").read_text("utf-8"), re.MULTILINE)
    )
    assert used <= told
    assert told - used == {"COMPOSE_PROFILES"}


def test_no_secret_stands_in_the_file_or_the_example() -> None:
    for name in ("compose.yaml", ".env.example"):
        text = (ROOT / name).read_text("utf-8")
        for variable, value in re.findall(r"\b(\w*(?:PASSWORD|SECRET|TOKEN\b)\w*)(?:: |=)(\S+)", text):
            assert value == "generated" or value.startswith("${"), f"{name}: {variable}={value}"


def test_every_service_runs_with_its_own_login(compose: Compose) -> None:
    for service in SERVICES:
        environment = compose.environment(service)
        assert environment["CASCADE_NATS_USER"] == service
        assert environment["CASCADE_NATS_PASSWORD"] == compose.environment("nats")[password_variable(service)]
    passwords = [compose.environment("nats")[password_variable(user)] for user in users() if user != "route"]
    assert len(set(passwords)) == len(passwords)


def test_a_service_gets_no_secret_that_it_does_not_need(compose: Compose) -> None:
    secret = re.compile(r"PASSWORD|SECRET|TOKEN$|DATABASE_URL")
    given = {
        service: {name for name in compose.environment(service) if secret.search(name)} for service in OURS
    }
    assert given == {
        "api": {"CASCADE_NATS_PASSWORD", "CASCADE_DATABASE_URL", "CASCADE_S3_SECRET_KEY", "CASCADE_TOKEN"},
        "ingest": {"CASCADE_NATS_PASSWORD", "CASCADE_S3_SECRET_KEY"},
        "launcher": {"CASCADE_NATS_PASSWORD", "CASCADE_S3_SECRET_KEY", "CASCADE_TOKEN"},
        "parser": {"CASCADE_NATS_PASSWORD"},
        "requestsim": {"CASCADE_NATS_PASSWORD", "CASCADE_S3_SECRET_KEY"},
    }
    operators = compose.environment("provision")["CASCADE_NATS_PASSWORD"]
    assert all(operators not in compose.environment(service).values() for service in OURS)


def test_only_the_optional_samples_run_on_with_the_operators_login(compose: Compose) -> None:
    operators = compose.environment("nats")[password_variable("operator")]
    holders = {name for name in compose.services if operators in compose.environment(name).values()}
    assert holders == {"nats", "provision", "samples"}
    assert compose.services["samples"]["profiles"] == ["samples"]


def test_every_service_restarts_and_has_limits(compose: Compose) -> None:
    for name, service in compose.services.items():
        assert service["restart"] == ("no" if name in ONE_SHOT else "unless-stopped")
        limits = service["deploy"]["resources"]["limits"]
        assert {"cpus", "memory"} <= set(limits), name


def test_without_an_env_file_the_user_is_told_what_to_run() -> None:
    with pytest.raises(UnsetVariableError, match="run deploy/make-env first"):
        read_compose({})


def test_every_image_is_pinned(compose: Compose) -> None:
    for name, service in compose.services.items():
        image = str(service["image"])
        tag = image.rpartition("/")[2].partition(":")[2]
        assert tag, name
        assert tag != "latest", name


def test_our_services_can_change_nothing_outside_their_volumes(compose: Compose) -> None:
    for name in OURS:
        service = compose.services[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]


def test_data_of_the_servers_is_on_named_volumes(compose: Compose) -> None:
    for name in SERVERS:
        mounted = [str(volume).split(":")[0] for volume in compose.services[name]["volumes"]]
        assert f"{name}-data" in mounted
        assert f"{name}-data" in compose.volumes


def test_services_wait_for_what_they_need(compose: Compose) -> None:
    for name in OURS:
        waits = compose.services[name]["depends_on"]
        assert waits["minio-users"]["condition"] == "service_completed_successfully"
    assert set(compose.services["minio-users"]["depends_on"]) == {"provision"}
    assert set(compose.services["provision"]["depends_on"]) == {"nats", "minio"}


def test_the_server_of_the_image_is_the_one_that_the_tests_run(compose: Compose) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "nats-server", "--version"], capture_output=True, text=True, check=True
    )
    version = done.stdout.strip().removeprefix("nats-server: v")
    assert compose.services["nats"]["image"] == f"nats:{version}-alpine"
    assert str(compose.services["postgres"]["image"]).startswith("postgres:18")


def test_make_env_writes_secrets_that_nats_reads_as_text(env_file: Path) -> None:
    assert env_file.stat().st_mode & 0o777 == 0o600
    values = read_env(env_file)
    secrets = {name: value for name, value in values.items() if re.search("PASSWORD|SECRET|TOKEN$", name)}
    assert len(secrets) == 16
    for name, value in secrets.items():
        assert re.fullmatch(r"k[0-9a-f]{32}", value), name


def test_make_env_keeps_what_is_there_and_adds_what_is_new(tmp_path: Path) -> None:
    target = tmp_path / ".env"
    target.write_text("CASCADE_TOKEN=chosen\nMINE=1\n")
    make_env(target)
    first = target.read_text()
    assert first.startswith("CASCADE_TOKEN=chosen\nMINE=1\n")
    assert "POSTGRES_PASSWORD=k" in first
    make_env(target)
    assert target.read_text() == first


@pytest.mark.parametrize("script", ["deploy/make-env", "deploy/minio/init.sh"])
def test_shellcheck_finds_nothing_in_the_scripts(script: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "shellcheck", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_collector_reads_its_configuration() -> None:
    document = yaml.safe_load((ROOT / "deploy/otel/collector.yaml").read_text("utf-8"))
    for pipeline in document["service"]["pipelines"].values():
        for kind in ("receivers", "processors", "exporters"):
            assert set(pipeline[kind]) <= set(document[kind])
