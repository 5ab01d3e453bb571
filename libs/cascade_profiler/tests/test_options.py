"""Options: combinations that cannot work, destinations, names, and credentials that must stay out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from cascade_profiler.errors import OptionsError
from cascade_profiler.options import (
    ProfileOptions,
    S3Destination,
    check,
    check_run_name,
    default_run_name,
    trace_steps_from,
)
from cascade_profiler.workload import Workload

WORKLOAD = Workload("m", ["p"], max_tokens=8, repeats=3)
S3: dict[str, object] = {"endpoint": "https://s3.example.com", "bucket": "my-runs"}


def test_keeping_the_capture_is_refused_with_an_upload() -> None:
    options = ProfileOptions(keep_nsys_rep=True, s3=S3Destination.from_mapping(S3))

    with pytest.raises(OptionsError, match="keep_nsys_rep=True is refused together with s3"):
        check(WORKLOAD, options)
    check(WORKLOAD, ProfileOptions(keep_nsys_rep=True))


def test_a_timing_only_run_is_no_trace_for_an_app() -> None:
    cascade = S3Destination.from_mapping({**S3, "layout": "cascade"})

    with pytest.raises(OptionsError, match="no trace that an app could simulate"):
        check(WORKLOAD, ProfileOptions(trace_steps=(), s3=cascade))
    check(WORKLOAD, ProfileOptions(trace_steps=(), s3=S3Destination.from_mapping(S3)))


@pytest.mark.parametrize(
    "name", ["aws_secret_access_key", "access_key_id", "token", "password", "AWS_SESSION_TOKEN"]
)
def test_credentials_in_the_destination_are_refused_and_say_where_they_belong(name: str) -> None:
    with pytest.raises(OptionsError, match=r"looks like a credential.*Modal secret") as refusal:
        S3Destination.from_mapping({**S3, name: "hunter2hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_credentials_in_the_url_are_refused_without_repeating_them() -> None:
    with pytest.raises(OptionsError, match="carries credentials") as refusal:
        S3Destination.from_mapping({**S3, "endpoint": "https://key:hunter2@s3.example.com"})
    assert "hunter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endpoint": "s3.example.com"}, "is no URL"),
        ({"endpoint": 5}, "must be a string"),
        ({"bucket": "My_Runs"}, "is no bucket name"),
        ({"addressing_style": "pathstyle"}, "use 'path'"),
        ({"layout": "flat"}, "use 'run' or 'cascade'"),
        ({"prefix": "../up"}, "plain path"),
        ({"acl": "public"}, "has no option 'acl'"),
    ],
)
def test_destinations_that_cannot_work_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        S3Destination.from_mapping({**S3, **changes})


@pytest.mark.parametrize("missing", ["endpoint", "bucket"])
def test_a_destination_needs_endpoint_and_bucket(missing: str) -> None:
    with pytest.raises(OptionsError, match=f"lacks '{missing}'"):
        S3Destination.from_mapping({name: value for name, value in S3.items() if name != missing})


def test_the_address_of_a_run_has_bucket_prefix_and_name() -> None:
    documented = {**S3, "prefix": "/profiles/", "region": "auto", "addressing_style": "path"}

    assert S3Destination.from_mapping(documented).uri("my-run") == "s3://my-runs/profiles/my-run/"
    assert S3Destination.from_mapping(S3).uri("my-run") == "s3://my-runs/my-run/"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trace_repeat": 0}, "steady repeats are 1 to 2"),
        ({"trace_repeat": 3}, "steady repeats are 1 to 2"),
        ({"trace_steps": (-1,)}, "count from 0"),
        ({"spinlock_handling": "skip"}, "spinlock_handling is 'skip'"),
        ({"run_name": "a/b"}, "cannot be used"),
        ({"stage_timeout_s": 0.0}, "over 0 seconds"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        check(WORKLOAD, ProfileOptions(**options))


def test_graphs_can_be_timed_but_not_traced() -> None:
    graphs = Workload("m", ["p"], repeats=2, enforce_eager=False)

    with pytest.raises(OptionsError, match="CUDA graphs"):
        check(graphs, ProfileOptions(trace_steps=(0,)))
    check(graphs, ProfileOptions(trace_steps=()))


@pytest.mark.parametrize(
    ("raw", "steps"),
    [
        ("plan", "plan"),
        (None, "plan"),
        ("0,5", (0, 5)),
        (" 5 , 0,5", (0, 5)),
        ("", ()),
        ([], ()),
        ([5, 0], (0, 5)),
    ],
)
def test_trace_steps_are_read_as_users_write_them(raw: object, steps: object) -> None:
    assert trace_steps_from(raw) == steps


@pytest.mark.parametrize("raw", ["all", "0;5", "-1", [1.5], [True], 5, {"0": 1}, "١"])
def test_other_trace_steps_are_refused(raw: object) -> None:
    with pytest.raises(OptionsError, match="trace_steps"):
        trace_steps_from(raw)


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a b", "a\n", "a" * 201, "*", "ü"])
def test_run_names_that_could_not_be_a_directory_and_a_key_are_refused(name: str) -> None:
    with pytest.raises(OptionsError, match="cannot be used"):
        check_run_name(name)


def test_the_default_run_name_has_time_model_and_layers() -> None:
    now = datetime(2026, 11, 7, 12, 0, 0, tzinfo=UTC)

    assert default_run_name(now, "facebook/opt-125m") == "20261107-120000__facebook_opt-125m"
    layered = default_run_name(now, "facebook/opt-125m", ("model.decoder.layers.10.self_attn",))
    assert layered == "20261107-120000__facebook_opt-125m__model.decoder.layers.10.self_attn"
    check_run_name(default_run_name(now, "../../weird model:üñ", ("x" * 500,)))
