"""The Job of one sim, held to the field case `k8s-job-runs-once` (a copy of our own case lies in data/)."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cascade_core.sim_tokens import sim_token
from cascade_launcher.backends.kubernetes_manifest import DATA_DIR, job_manifest, job_name, label_value
from cascade_launcher.backends.kubernetes_settings import KubernetesSettings
from cascade_launcher.backends.protocol import Launch
from cascade_launcher.backends.remote import RemoteOptions
from hypothesis import given, settings
from hypothesis import strategies as st

CASE = json.loads((Path(__file__).parent / "data/k8s-job-runs-once.json").read_text())
SIM = CASE["input"]["sim"]
LAUNCH = Launch(
    sim_id=SIM["sim_id"],
    run_id=SIM["run_id"],
    trace_id=SIM["trace_id"],
    gpu_config=SIM["gpu_config"],
    replica=SIM["replica"],
    attempt="0123456789ab",
)
OPTIONS = RemoteOptions(
    sim_cmd="cascade worker",
    main_url="http://cascade-api:8000",
    token="the-token-itself",
    accelsim_dir=Path("/opt/accel-sim"),
    bucket_name="cascade",
    prefix="accelsim-traces",
    s3_endpoint="http://minio:9000",
    s3_region="us-east-1",
)
SETTINGS = KubernetesSettings(image="cascade:1", namespace="sims", s3_secret="cascade-s3-reader")


def build(
    launch: Launch = LAUNCH, settings: KubernetesSettings = SETTINGS, *, sim_cmd: str = "cascade worker"
) -> Any:
    return job_manifest(
        launch,
        settings,
        sim_cmd=sim_cmd,
        contract=OPTIONS.contract(launch, data_dir=DATA_DIR),
        bucket_environment=OPTIONS.bucket_environment(launch, endpoint=None),
        token_optional=False,
    )


def test_a_sim_with_a_token_of_its_own_gets_no_reference_to_the_apps() -> None:
    options = replace(OPTIONS, sim_tokens=True)
    manifest = job_manifest(
        LAUNCH,
        SETTINGS,
        sim_cmd="cascade worker",
        contract=options.contract(LAUNCH, data_dir=DATA_DIR),
        bucket_environment={},
        token_optional=False,
        own_token=True,
    )
    text = json.dumps(manifest)
    assert sim_token("the-token-itself", LAUNCH.sim_id) in text
    assert "cascade-token" not in text
    assert "the-token-itself" not in text


def at(manifest: Any, path: str) -> Any:
    for key in path.split("."):
        manifest = manifest[key]
    return manifest


@pytest.mark.parametrize(
    "path",
    [
        "kind", "spec.backoffLimit", "spec.template.spec.restartPolicy", "spec.podReplacementPolicy",
    ],
)  # fmt: skip
def test_the_job_is_as_the_case_wants_it(path: str) -> None:
    assert at(build(), path) == CASE["expect"][path]


def test_the_job_runs_one_pod_once() -> None:
    spec = build()["spec"]
    assert [spec["parallelism"], spec["completions"]] in CASE["expect"]["spec.parallelism_completions_in"]
    assert spec["podFailurePolicy"]["rules"] == [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    assert spec["ttlSecondsAfterFinished"] == 3600
    grace = CASE["expect"]["spec.template.spec.terminationGracePeriodSeconds_at_least"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] >= grace


def test_the_same_sim_gives_the_same_job() -> None:
    assert build() == build()
    name = build()["metadata"]["name"]
    expected = CASE["expect"]["metadata.name"]
    assert re.match(expected["regex"], name)
    assert expected["contains"] in name


def test_labels_are_labels_and_the_trace_id_is_an_annotation() -> None:
    manifest = build()
    for labels in (manifest["metadata"]["labels"], manifest["spec"]["template"]["metadata"]["labels"]):
        for value in labels.values():
            assert re.fullmatch(CASE["expect"]["labels_regex"], value)
            assert len(value) <= CASE["expect"]["label_length_at_most"]
    assert manifest["metadata"]["annotations"]["cascade/trace-id"] == SIM["trace_id"]


def test_the_token_is_a_reference_and_no_secret_is_spelled_out() -> None:
    manifest = build()
    assert "the-token-itself" not in json.dumps(manifest)
    (simulator,) = manifest["spec"]["template"]["spec"]["containers"]
    env = {entry["name"]: entry for entry in simulator["env"]}
    assert env["CASCADE_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "cascade-token", "key": "token"}}


def test_the_simulator_gets_the_contract_and_only_the_fetching_container_the_bucket() -> None:
    spec = build()["spec"]["template"]["spec"]
    (simulator,), (fetch,) = spec["containers"], spec["initContainers"]
    names = {entry["name"] for entry in simulator["env"]}
    assert names == {
        "CASCADE_SIM_ID", "CASCADE_MAIN_URL", "CASCADE_TOKEN", "CASCADE_GPU_CONFIG", "CASCADE_TRACE_DIR",
        "CASCADE_ACCELSIM_DIR", "CASCADE_ATTEMPT",
    }  # fmt: skip
    fetch_env = {entry["name"]: entry.get("value") for entry in fetch["env"]}
    assert fetch_env["CASCADE_TRACE_URL"] == f"s3://cascade/accelsim-traces/{SIM['trace_id']}"
    assert fetch_env["CASCADE_TRACE_DIR"] == f"/data/s3/cascade/accelsim-traces/{SIM['trace_id']}"
    assert "CASCADE_TOKEN" not in fetch_env
    assert spec["automountServiceAccountToken"] is False


def test_the_command_runs_without_a_shell_and_kubernetes_expands_nothing_in_it() -> None:
    manifest = build(sim_cmd="worker '$(CASCADE_TOKEN)' '$HOME'")
    (simulator,) = manifest["spec"]["template"]["spec"]["containers"]
    assert simulator["command"] == ["worker", "$$(CASCADE_TOKEN)", "$$HOME"]


def test_pods_that_share_a_claim_read_the_trace_from_it() -> None:
    manifest = build(settings=KubernetesSettings(image="cascade:1", namespace="sims", trace_claim="traces"))
    spec = manifest["spec"]["template"]["spec"]
    assert {"name": "traces", "persistentVolumeClaim": {"claimName": "traces"}} in spec["volumes"]
    assert {"name": "traces", "mountPath": "/data/s3", "readOnly": True} in spec["containers"][0][
        "volumeMounts"
    ]
    assert {"name": "traces", "mountPath": "/data/s3"} in spec["initContainers"][0]["volumeMounts"]


def test_placement_settings_reach_the_pod() -> None:
    placed = KubernetesSettings.model_validate(
        {
            "image": "cascade:1", "namespace": "sims", "node_selector": {"pool": "sims"}, "cpu_limit": "2",
            "tolerations": [{"key": "sims", "operator": "Exists"}], "run_as_user": 10001, "run_as_group": 10001,
            "image_pull_secret": "registry", "service_account": "sims", "priority_class": "low",
        }
    )  # fmt: skip
    spec = build(settings=placed)["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"pool": "sims"}
    assert spec["tolerations"] == [{"key": "sims", "operator": "Exists"}]
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["fsGroup"] == 10001
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["serviceAccountName"] == "sims"
    assert spec["containers"][0]["resources"]["limits"]["cpu"] == "2"


def test_the_job_is_valid_for_the_cluster_api() -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs the development group")
    validate.validate(build(), "1.34", strict=True)


@given(st.text(alphabet="abcdef0123456789-", min_size=1, max_size=100))
@settings(max_examples=50)
def test_any_sim_id_gives_a_job_name_of_its_own(tail: str) -> None:
    name = job_name(f"sim-a{tail}b")
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name)
    assert name != job_name(f"sim-a{tail}c")


@given(st.text(max_size=200))
@settings(max_examples=50)
def test_any_text_becomes_a_label(text: str) -> None:
    value = label_value(text)
    assert re.fullmatch(CASE["expect"]["labels_regex"], value)
    assert len(value) <= 63
