"""`cascade deploy` against a Sail account in memory."""

import inspect
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import pytest
import sail
from cascade_cli import bundled
from cascade_cli.deploy_sail import manage
from cascade_cli.deploy_sail.deploy import Deployed, Deployer
from cascade_cli.deploy_sail.options import (
    DEFAULT_IMAGE,
    DeployOptions,
    OptionError,
    parsed_settings,
    rendered_settings,
)
from cascade_cli.deploy_sail.sdk import DeployError
from cascade_cli.deploy_sail.testing import CutOffError, FakeClock, FakeImage, FakeSail, FakeSailbox
from cascade_cli.main import app
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

OPTIONS = DeployOptions(workspace="acme-lab")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[FakeSail]:
    """An empty account."""
    account = FakeSail(tmp_path / "sail")
    yield account
    account.close()


class Deploy:
    """Runs deploys and keeps what they said."""

    def __init__(self, account: FakeSail) -> None:
        self.account = account
        self.said: list[str] = []

    def __call__(self, options: DeployOptions = OPTIONS, **environ: str) -> Deployed:
        self.said = []
        with httpx.Client(transport=self.account.transport()) as http:
            return Deployer(
                self.account, http, environ=environ, say=self.said.append, clock=FakeClock()
            ).deploy(options)


@pytest.fixture
def deploy(account: FakeSail) -> Deploy:
    """See `Deploy`."""
    return Deploy(account)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_first_deploy_creates_the_workspace_and_prints_how_to_reach_it(
    deploy: Deploy, account: FakeSail
) -> None:
    deployed = deploy(CASCADE_TOKEN="chosen")
    assert deploy.said == [
        "cascade-acme-lab: creating the sandbox",
        "cascade-acme-lab: starting Cascade",
        "cascade-acme-lab: healthy",
    ]
    assert deployed.lines() == [
        "sailbox: sb-0",
        "app: https://sb-0-8000.sail.test",
        "s3: https://sb-0-9000.sail.test (bucket cascade, prefix accelsim-traces, path-style, unsigned)",
        "token: chosen",
        "open: https://sb-0-8000.sail.test/#token=chosen",
        "logs: /data/cascade-serve.log inside the sailbox",
    ]
    (box,) = account.boxes
    assert (box.name, list(account.apps)) == ("cascade-main", ["cascade-acme-lab"])
    assert box.auto_sleep == sail.AutoSleep.never()
    assert box.image == FakeImage(ref=DEFAULT_IMAGE)
    assert box.exposed == {8000, 9000}


def test_the_link_carries_any_token_whole(deploy: Deploy) -> None:
    fragment = urlsplit(deploy(CASCADE_TOKEN="100%25&a=b#c+/").open_url).fragment
    assert unquote(fragment.removeprefix("token=")) == "100%25&a=b#c+/"
    assert not set(fragment.removeprefix("token=")) & set("&#+/")


def test_the_settings_are_for_the_owner_only_and_reach_the_app(deploy: Deploy, account: FakeSail) -> None:
    deployed = deploy(SAIL_API_URL="https://sail.example")
    (box,) = account.boxes
    stored = box.root / "data/cascade.env"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert not (box.root / "data/cascade.env.new").exists()
    settings = parsed_settings(stored.read_text())
    assert settings | {"CASCADE_DATA_DIR": ""} == {
        "CASCADE_TOKEN": deployed.token,
        "CASCADE_WORKSPACE": "acme-lab",
        "CASCADE_DATA_DIR": "",
        "CASCADE_PORT": "8000",
        "CASCADE_S3_PORT": "9000",
        "CASCADE_S3_BUCKET": "cascade",
        "CASCADE_S3_PREFIX": "accelsim-traces",
        "CASCADE_S3_ANONYMOUS": "true",
        "CASCADE_PUBLIC_URL": deployed.app_url,
        "CASCADE_S3_PUBLIC_URL": deployed.s3_url,
        "CASCADE_SIM_CMD": "/app/.venv/bin/cascade worker --replay /app/examples/replay/rtx3070-babelstream.log.gz",
        "CASCADE_ACCELSIM_DIR": "/app/tests/fixtures/accelsim",
        "SAIL_API_KEY": "sk_test",
        "SAIL_API_URL": "https://sail.example",
    }
    assert (box.root / "data/started").read_text() == "serve --sims sail\n"
    environment = (box.root / "data/environment").read_text()
    for name, value in settings.items():
        assert f"{name}={value}\n" in environment
    # What an image ships by default is in this checkout.
    assert (bundled.ROOT / "examples/replay/rtx3070-babelstream.log.gz").is_file()


def test_a_rerun_finds_everything_and_says_the_same(deploy: Deploy, account: FakeSail) -> None:
    first = deploy()
    account.calls.clear()
    assert deploy() == first
    assert deploy.said == ["cascade-acme-lab: healthy"]
    assert not {"Sailbox.create", "fs.write", "exec", "resume"} & set(account.calls)


def test_a_chosen_token_counts_only_at_the_first_deploy(deploy: Deploy) -> None:
    first = deploy(CASCADE_TOKEN="first")
    assert deploy(CASCADE_TOKEN="second").token == first.token == "first"


def test_a_paused_workspace_is_resumed_where_it_was(deploy: Deploy, account: FakeSail) -> None:
    first = deploy()
    account.boxes[0].pause()
    assert deploy() == first
    assert deploy.said == ["cascade-acme-lab: resuming", "cascade-acme-lab: healthy"]
    assert account.calls.count("exec") == 1


def test_an_app_that_ended_is_started_again(deploy: Deploy, account: FakeSail) -> None:
    first = deploy()
    account.boxes[0].crash()
    assert deploy() == first
    assert deploy.said == ["cascade-acme-lab: starting Cascade", "cascade-acme-lab: healthy"]


@pytest.mark.parametrize(
    "moment",
    ["App.find", "Sailbox.create", "Sailbox.create.done", "fs.write", "fs.write.done", "run", "exec"],
)
def test_a_deploy_that_broke_off_anywhere_is_finished_by_the_next(
    deploy: Deploy, account: FakeSail, moment: str
) -> None:
    account.break_after = moment
    with pytest.raises(CutOffError):
        deploy()
    deployed = deploy()
    assert deploy.said[-1] == "cascade-acme-lab: healthy"
    assert len([box for box in account.boxes if box.status == "running"]) == 1
    assert deploy() == deployed


def test_a_terminated_sandbox_is_replaced(deploy: Deploy, account: FakeSail) -> None:
    deploy()
    account.boxes[0].terminate()
    assert deploy().sailbox_id == "sb-1"


def test_of_two_sandboxes_everybody_uses_the_older(deploy: Deploy, account: FakeSail) -> None:
    deploy()
    account.Sailbox.create(
        app=account.apps["cascade-acme-lab"],
        image=FakeImage(ref="x"),
        name="cascade-main",
        ingress_ports=[8000, 9000],
    )
    assert deploy().sailbox_id == "sb-0"


def test_a_sandbox_that_is_being_created_is_waited_for(deploy: Deploy, account: FakeSail) -> None:
    deploy()
    box = account.boxes[0]
    box.status = "creating"
    box.on_get = lambda: setattr(box, "status", "running")
    assert deploy().sailbox_id == "sb-0"


def test_flags_reach_the_image_and_the_settings(deploy: Deploy, account: FakeSail) -> None:
    deploy(
        DeployOptions(
            workspace="acme-lab",
            from_source=True,
            base_image="docker.io/acme/accel-sim:1.3",
            sim_cmd="/app/.venv/bin/cascade worker --delay '0'",
            accelsim_dir="/opt/accel-sim",
            postprocess_cmd="/opt/post traces",
            disk_gib=300,
        )
    )
    assert deploy.said[0] == "cascade-acme-lab: building the image"
    (box,) = account.boxes
    assert box.image.dockerfile == bundled.ROOT / "deploy/Dockerfile"
    assert box.image.context_dir == bundled.ROOT
    assert box.image.build_args == {"BASE_IMAGE": "docker.io/acme/accel-sim:1.3"}
    assert (box.size, box.disk_limit_gib) == ("m", 300)
    environment = (box.root / "data/environment").read_text()
    assert "CASCADE_SIM_CMD=" in environment
    assert "worker --delay '0'\n" in environment
    assert "CASCADE_ACCELSIM_DIR=/opt/accel-sim\n" in environment
    assert "CASCADE_POSTPROCESS_CMD=/opt/post traces\n" in environment


def test_simulator_settings_are_written_once(deploy: Deploy, account: FakeSail) -> None:
    deploy()
    deploy(DeployOptions(workspace="acme-lab", sim_cmd="other"))
    assert any("delete the workspace and deploy again" in line for line in deploy.said)
    assert "other" not in (account.boxes[0].root / "data/cascade.env").read_text()


def test_an_app_that_never_answers_shows_the_end_of_its_log(
    deploy: Deploy, account: FakeSail, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = account.Sailbox.create

    def dead(**arguments: Any) -> FakeSailbox:
        box = create(**arguments)
        box.app_starts = False
        return box

    monkeypatch.setattr(account.Sailbox, "create", dead)
    with pytest.raises(DeployError, match=r"does not answer after 300 s(.|\n)*the data directory is in use"):
        deploy()


def test_a_refused_key_is_named_without_being_shown(deploy: Deploy, account: FakeSail) -> None:
    account.fail["App.find"] = sail.PermissionDeniedError("invalid api key")
    with pytest.raises(DeployError, match="Set SAIL_API_KEY") as refused:
        deploy()
    assert "sk_test" not in str(refused.value)


def test_without_a_key_the_user_is_told_where_to_get_one(deploy: Deploy, account: FakeSail) -> None:
    account.api_key = None
    with pytest.raises(DeployError, match=r"SAIL_API_KEY is not set.*app\.sailresearch\.com"):
        deploy()


def test_a_passing_trouble_asks_for_the_same_command_again(deploy: Deploy, account: FakeSail) -> None:
    account.fail["Sailbox.create"] = sail.TransportError("connection reset")
    with pytest.raises(DeployError, match=r"connection reset\. Run the same command again"):
        deploy()


def test_an_image_of_an_unknown_registry_is_refused_before_anything_is_made(
    deploy: Deploy, account: FakeSail
) -> None:
    with pytest.raises(DeployError, match="public registry"):
        deploy(DeployOptions(workspace="acme-lab", image="localhost:5000/cascade"))
    assert account.boxes == []


@pytest.mark.parametrize("name", ["ab", "a" * 33, "Acme", "acme_lab", "acme lab", "", "acme\n"])
def test_a_workspace_name_is_checked(name: str) -> None:
    with pytest.raises(OptionError, match="3 to 32 lowercase letters, digits and hyphens"):
        DeployOptions(workspace=name)


def test_flags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OptionError, match="--base-image only counts with --from-source"):
        DeployOptions(workspace="acme-lab", base_image="debian:12")
    with pytest.raises(OptionError, match="exclude each other"):
        DeployOptions(workspace="acme-lab", image="x", from_source=True)
    with pytest.raises(OptionError, match="--disk-gib is 0"):
        DeployOptions(workspace="acme-lab", disk_gib=0)
    with pytest.raises(OptionError, match="absolute path"):
        DeployOptions(workspace="acme-lab", accelsim_dir="accel-sim")


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_]{1,12}", fullmatch=True), st.text(st.characters(exclude_characters="\0\n"))
    )
)
def test_settings_come_back_as_they_were(values: dict[str, str]) -> None:
    assert parsed_settings(rendered_settings(values)) == values


def test_a_setting_with_a_line_break_is_refused() -> None:
    with pytest.raises(OptionError, match="line break"):
        rendered_settings({"CASCADE_SIM_CMD": "a\nCASCADE_NO_AUTH=1"})


def test_the_command_line_has_every_flag_of_the_page() -> None:
    shown = CliRunner().invoke(app, ["deploy", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    names = (
        "workspace",
        "image",
        "from-source",
        "base-image",
        "sim-cmd",
        "accelsim-dir",
        "postprocess-cmd",
        "disk-gib",
    )
    for flag in (f"--{name}" for name in names):
        assert flag in shown.output
    wrong = CliRunner().invoke(app, ["deploy", "--workspace", "A"])
    assert wrong.exit_code == 2
    assert "3 to 32 lowercase letters" in wrong.output


def test_manage_shows_pauses_resumes_and_deletes(deploy: Deploy, account: FakeSail) -> None:
    assert manage.status(account, "acme-lab") == "none"
    with pytest.raises(DeployError, match="there is no workspace acme-lab"):
        manage.pause(account, "acme-lab")
    deploy()
    assert manage.status(account, "acme-lab") == "running"
    assert manage.pause(account, "acme-lab") == "paused"
    assert manage.resume(account, "acme-lab", FakeClock()) == "running"
    assert manage.delete(account, "acme-lab") == "none"
    assert manage.status(account, "acme-lab") == "none"
    assert account.boxes[0].status == "terminated"


def test_the_fake_takes_what_the_sdk_takes(account: FakeSail, deploy: Deploy) -> None:
    deploy()
    box = account.boxes[0]
    pairs: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
        (account.App.find, sail.App.find),
        (account.Sailbox.create, sail.Sailbox.create),
        (account.Sailbox.list, sail.Sailbox.list),
        (account.Sailbox.get, sail.Sailbox.get),
        (account.Image.from_registry, sail.Image.from_registry),
        (account.Image.from_dockerfile, sail.Image.from_dockerfile),
        *(
            (getattr(box, name), getattr(sail.Sailbox, name))
            for name in ("listener", "expose", "run", "exec")
        ),
        (box.fs.read, sail.SailboxFs.read),
        (box.fs.write, sail.SailboxFs.write),
    ]
    for fake, real in pairs:
        known = inspect.signature(real).parameters
        for name, parameter in inspect.signature(fake).parameters.items():
            assert name in known, (real, name)
            assert parameter.kind == known[name].kind, (real, name)
    for name in ("resume", "pause", "terminate"):
        assert callable(getattr(sail.Sailbox, name))
    assert sail.Config.from_env_optional_api_key is not None
