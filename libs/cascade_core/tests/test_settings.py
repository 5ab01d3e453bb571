"""Settings, the end of a process with wrong ones, and how a service process runs and ends."""

import asyncio
import os
import signal

import pytest
from cascade_core import lifecycle
from cascade_core.errors import CascadeError, LogUnavailable, NotFound, Refused, Unavailable
from cascade_core.settings import BaseUrl, BucketSettings, NatsSettings, TelemetrySettings, Token, load
from pydantic_settings import BaseSettings, SettingsConfigDict


def test_defaults_hold_and_the_environment_overrules_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_NATS_REPLICAS", "3")
    monkeypatch.setenv("CASCADE_NATS_URL", "")
    settings = load(NatsSettings)
    assert (settings.nats_replicas, settings.nats_url) == (3, "nats://127.0.0.1:4222")


def test_a_wrong_setting_ends_the_process_with_its_name_and_without_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CASCADE_NATS_REPLICAS", "many")
    with pytest.raises(SystemExit) as ended:
        load(NatsSettings)
    assert ended.value.code == 2
    lines = capsys.readouterr().err.split("\n")
    assert lines[0].startswith("CASCADE_NATS_REPLICAS: ")
    assert "many" not in lines[0]


def test_a_login_in_the_url_goes_before_the_one_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_NATS_USER", "somebody")
    monkeypatch.setenv("CASCADE_NATS_PASSWORD", "secret")
    assert load(NatsSettings).nats_user == "somebody"
    named = NatsSettings(nats_url="nats://own:login@127.0.0.1:4222")
    assert (named.nats_user, named.nats_password) == (None, None)


def test_secrets_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_S3_SECRET_KEY", "hunter2")
    monkeypatch.setenv("CASCADE_NATS_PASSWORD", "hunter2")
    assert "hunter2" not in repr(load(BucketSettings))
    assert "hunter2" not in repr(load(NatsSettings))


class _Placed(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="CASCADE_")
    public_url: BaseUrl


@pytest.mark.parametrize(
    "url", ["host:8000", "ftp://host", "http://", "http://host:99999", "//host", "http://[::1"]
)
def test_a_url_that_no_client_can_use_ends_the_process(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_PUBLIC_URL", url)
    with pytest.raises(SystemExit):
        load(_Placed)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://host/", "http://host"),
        ("https://host/app//", "https://host/app"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_a_base_url_is_kept_without_a_slash_at_its_end(
    given: str, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASCADE_PUBLIC_URL", given)
    assert load(_Placed).public_url == kept


class _Guarded(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="CASCADE_")
    token: Token


@pytest.mark.parametrize("token", ["a\n", " a", "a ", "\ta", "a\nb", "a\x7fb", "\x00", "\u00a0a"])
def test_a_token_that_no_header_can_carry_ends_the_process(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        os, "environ", {**os.environ, "CASCADE_TOKEN": token}
    )  # NUL, as a mapping may hold it
    with pytest.raises(SystemExit) as ended:
        load(_Guarded)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("CASCADE_TOKEN: it begins or ends with a blank")


@pytest.mark.parametrize("token", ["dev-token", "a b", "tökén", 'a"b%20', ""])
def test_other_tokens_are_taken(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CASCADE_TOKEN", token)
    assert load(_Guarded).token.get_secret_value() == token


@pytest.mark.parametrize("group", [NatsSettings, BucketSettings, TelemetrySettings])
def test_every_setting_says_what_it_is(
    group: type[NatsSettings | BucketSettings | TelemetrySettings],
) -> None:
    assert all(field.description for field in group.model_fields.values())


def test_error_families_answer_what_to_do() -> None:
    assert (Refused("no").status, Refused("no", status=409).status, NotFound("gone").status) == (
        422,
        409,
        404,
    )
    assert issubclass(NotFound, Refused)
    assert issubclass(LogUnavailable, Unavailable)
    assert Refused("why").detail == "why"
    assert issubclass(Unavailable, CascadeError)


def test_a_service_ends_with_code_0_when_it_is_told_to_stop() -> None:
    async def main(stop: asyncio.Event) -> None:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        await stop.wait()

    assert lifecycle.run(main, service="test") == 0


def test_an_error_of_ours_ends_a_service_with_code_1() -> None:
    async def failing() -> None:
        raise LogUnavailable("gone")

    async def main(stop: asyncio.Event) -> None:
        await lifecycle.until_stopped(stop, failing())

    assert lifecycle.run(main, service="test") == 1


def test_a_bug_ends_a_service_loudly() -> None:
    async def failing() -> None:
        raise ZeroDivisionError

    async def main(stop: asyncio.Event) -> None:
        await lifecycle.until_stopped(stop, failing())

    with pytest.raises((ZeroDivisionError, BaseExceptionGroup)):
        lifecycle.run(main, service="test")


async def test_tasks_are_cancelled_when_the_service_stops() -> None:
    stop = asyncio.Event()
    ended: list[str] = []

    async def working() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("worked")

    running = asyncio.create_task(lifecycle.until_stopped(stop, working(), working()))
    await asyncio.sleep(0)
    stop.set()
    async with asyncio.timeout(60):
        await running
    assert ended == ["worked", "worked"]
