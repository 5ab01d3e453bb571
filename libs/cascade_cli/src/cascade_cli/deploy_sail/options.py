"""What a workspace is made of: its names, its options with their checks, and its settings file. Pure.

spec: deploy, the table of flags.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

BOX_NAME = "cascade-main"
APP_PORT = 8000
S3_PORT = 9000
SETTINGS_PATH = "/data/cascade.env"
LOG_PATH = "/data/cascade-serve.log"
CASCADE = "/app/.venv/bin/cascade"
"""The command inside the image."""

DEFAULT_IMAGE = "ghcr.io/atoniolo76/cascade:latest"
DEFAULT_BASE_IMAGE = "ubuntu:22.04"
DEFAULT_ACCELSIM_DIR = "/app/tests/fixtures/accelsim"
DEFAULT_SIM_CMD = f"{CASCADE} worker --replay /app/examples/replay/rtx3070-babelstream.log.gz"

BUCKET = "cascade"
PREFIX = "accelsim-traces"

_WORKSPACE = re.compile(r"[a-z0-9-]{3,32}")
_SAIL_ENDPOINTS = ("SAIL_API_URL", "SAILBOX_API_URL", "SAILBOX_INGRESS_URL")


class OptionError(ValueError):
    """An option cannot be used. The message says which, what was met and what was expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """The flags of `cascade deploy`. Raises OptionError for flags that cannot be used, alone or together."""

    workspace: str
    image: str | None = None
    from_source: bool = False
    base_image: str | None = None
    sim_cmd: str | None = None
    accelsim_dir: str | None = None
    postprocess_cmd: str | None = None
    disk_gib: int | None = None

    def __post_init__(self) -> None:
        check_workspace(self.workspace)
        if self.base_image is not None and not self.from_source:
            raise OptionError(
                "--base-image only counts with --from-source, since a published image has its base already. "
                "Add --from-source, or leave --base-image out"
            )
        if self.image is not None and self.from_source:
            raise OptionError("--image and --from-source exclude each other: pull an image, or build one")
        if self.disk_gib is not None and self.disk_gib < 1:
            raise OptionError(f"--disk-gib is {self.disk_gib}: give whole GiB, 1 or more")
        for name, value in (("--accelsim-dir", self.accelsim_dir),):
            if value is not None and not value.startswith("/"):
                raise OptionError(f"{name} is {value!r}: give the absolute path inside the image")

    @property
    def app_name(self) -> str:
        """The Sail app's name."""
        return app_name(self.workspace)

    @property
    def names_simulator(self) -> bool:
        """Whether a flag says how sims run."""
        return (self.sim_cmd, self.accelsim_dir, self.postprocess_cmd) != (None, None, None)


def check_workspace(workspace: str) -> None:
    """Raise OptionError for a name that a workspace cannot have."""
    if _WORKSPACE.fullmatch(workspace) is None:
        raise OptionError(
            f"the workspace name {workspace!r} cannot be used: give 3 to 32 lowercase letters, digits and hyphens, "
            "such as acme-lab"
        )


def app_name(workspace: str) -> str:
    """The Sail app of a workspace."""
    return f"cascade-{workspace}"


def settings_of(
    options: DeployOptions, *, token: str, api_key: str, app_url: str, s3_url: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """What the app inside the sandbox is told, once, when the workspace is created.

    environ: where other Sail endpoints than the usual ones are named, for a self-hosted Sail.
    """
    settings = {
        "CASCADE_TOKEN": token,
        "CASCADE_WORKSPACE": options.workspace,
        "CASCADE_DATA_DIR": "/data",
        "CASCADE_PORT": str(APP_PORT),
        "CASCADE_S3_PORT": str(S3_PORT),
        "CASCADE_S3_BUCKET": BUCKET,
        "CASCADE_S3_PREFIX": PREFIX,
        "CASCADE_S3_ANONYMOUS": "true",
        "CASCADE_PUBLIC_URL": app_url,
        "CASCADE_S3_PUBLIC_URL": s3_url,
        "CASCADE_SIM_CMD": options.sim_cmd or DEFAULT_SIM_CMD,
        "CASCADE_ACCELSIM_DIR": options.accelsim_dir or DEFAULT_ACCELSIM_DIR,
        # The app checkpoints its own sandbox and forks it.
        "SAIL_API_KEY": api_key,
    }
    if options.postprocess_cmd is not None:
        settings["CASCADE_POSTPROCESS_CMD"] = options.postprocess_cmd
    return settings | {name: environ[name] for name in _SAIL_ENDPOINTS if environ.get(name)}


def rendered_settings(settings: Mapping[str, str]) -> str:
    """The settings file: assignments that a POSIX shell reads. Raises OptionError for a value with a line break."""
    for name, value in settings.items():
        if "\n" in value or "\0" in value:
            raise OptionError(f"{name} must not hold a line break")
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in settings.items())


def parsed_settings(text: str) -> dict[str, str]:
    """The settings in a file that `rendered_settings` wrote."""
    settings: dict[str, str] = {}
    for line in text.split("\n"):
        name, separator, quoted = line.partition("=")
        if separator and not name.startswith("#"):
            settings[name] = "".join(shlex.split(quoted))
    return settings


def start_command() -> str:
    """Starts the app with its settings. A second one beside a running app ends by itself: the data is in use."""
    return f"set -a; . {SETTINGS_PATH}; set +a; exec {CASCADE} serve --sims sail >>{LOG_PATH} 2>&1"
