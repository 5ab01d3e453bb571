"""The few things that are asked of Sail, by its SDK, with its errors translated.

The SDK (package `sail`, the successor of `sail-sdk`) is an extra, since only `cascade deploy` and sims on Sail need it.
Statements about its behaviour are from its docstrings, version 0.17.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from cascade_cli import bundled
from cascade_cli.deploy_sail.options import (
    APP_PORT,
    BOX_NAME,
    DEFAULT_BASE_IMAGE,
    DEFAULT_IMAGE,
    S3_PORT,
    DeployOptions,
)

BUILD_TIMEOUT_S = 3600
CREATING_TIMEOUT_S = 600.0
"""How long a sandbox that an earlier, broken-off deploy asked for may take to start."""
POLL_S = 2.0
# `status` values of a sandbox that is gone. sail.sailbox.SailboxStatus
_GONE = ("failed", "terminating", "terminated")


class DeployError(Exception):
    """The workspace could not be brought to where it should be. The message says what to do."""


class Clock(Protocol):
    """The time, so that tests need not wait."""

    def monotonic(self) -> float: ...
    def sleep(self, seconds: float, /) -> None: ...


def installed_sdk() -> ModuleType:
    """The SDK. Raises DeployError where the extra is not installed."""
    try:
        import sail
    except ImportError as error:
        raise DeployError(
            "`cascade deploy` needs the Sail SDK. Run it as `uv run --extra sail cascade deploy ...`"
        ) from error
    module: ModuleType = sail
    return module


@contextmanager
def translated(sdk: Any, doing: str) -> Iterator[None]:
    """The SDK's errors as DeployError."""
    try:
        yield
    except sdk.PermissionDeniedError as error:
        raise DeployError(
            f"{doing}: Sail refuses the key ({error}). Set SAIL_API_KEY to a key of your account, from "
            "https://app.sailresearch.com"
        ) from error
    except sdk.SailError as error:
        again = " Run the same command again." if error.retryable else ""
        raise DeployError(f"{doing}: {error}.{again}".replace("..", ".")) from error


class SailWorkspace:
    """The Sail app and the sandbox of one workspace."""

    def __init__(self, sdk: Any, app_name: str, clock: Clock = time) -> None:
        self._sdk = sdk
        self._app_name = app_name
        self._clock = clock

    def find(self) -> Any | None:
        """The workspace's sandbox, also when it is paused; None where there is none. Makes nothing."""
        with translated(self._sdk, "looking for the workspace"):
            try:
                app = self._sdk.App.find(self._app_name)
            except self._sdk.NotFoundError:
                return None
            boxes = self._sdk.Sailbox.list(app_id=app, name=BOX_NAME, exclude_statuses=_GONE)
        # Two deploys at the same moment may have made two; everybody uses the older one.
        return min(
            boxes, key=lambda box: (box.created_at is None, box.created_at, box.sailbox_id), default=None
        )

    def create(self, options: DeployOptions) -> Any:
        """A new sandbox from the image that the options name, which is pulled or built first."""
        with translated(self._sdk, "creating the sandbox"):
            app = self._sdk.App.find(self._app_name, mint_if_missing=True)
            limits: dict[str, Any] = {}
            if options.disk_gib is not None:
                chosen = self._sdk.Sailbox.size_for(disk_gib=options.disk_gib)
                limits = {
                    "size": chosen.size,
                    "memory_limit_gib": chosen.memory_limit_gib,
                    "disk_limit_gib": chosen.disk_limit_gib or options.disk_gib,
                }
            return self._sdk.Sailbox.create(
                app=app,
                name=BOX_NAME,
                image=self._image(options),
                image_build_timeout=BUILD_TIMEOUT_S,
                ingress_ports=[APP_PORT, S3_PORT],
                # Sims report over the network; an app that sleeps between two reports would lose time each time.
                auto_sleep=self._sdk.AutoSleep.never(),
                **limits,
            )

    def awake(self, box: Any) -> Any:
        """`box`, running: resumed where it was paused or asleep, waited for where it is being created."""
        with translated(self._sdk, "waking the sandbox"):
            give_up_at = self._clock.monotonic() + CREATING_TIMEOUT_S
            while box.status == "creating":
                if self._clock.monotonic() >= give_up_at:
                    raise DeployError(
                        f"the sandbox {box.sailbox_id} is still being created; look at it on the Sail dashboard"
                    )
                self._clock.sleep(POLL_S)
                box = self._sdk.Sailbox.get(box.sailbox_id)
            if box.status in _GONE:
                raise DeployError(f"the sandbox {box.sailbox_id} is {box.status}; run the same command again")
            return box.resume() if box.status in ("paused", "sleeping") else box

    def urls(self, box: Any) -> tuple[str, str]:
        """The public URLs of the app and of its S3 endpoint; a port that is not published yet is."""
        return self._url(box, APP_PORT), self._url(box, S3_PORT)

    def read(self, box: Any, path: str) -> str | None:
        """A text file of the sandbox; None where there is none."""
        with translated(self._sdk, f"reading {path}"):
            try:
                content: bytes = box.fs.read(path)
            except self._sdk.FileNotFoundError:
                return None
        return content.decode("utf-8")

    def write_secret(self, box: Any, path: str, text: str) -> None:
        """A file that only its owner reads, whole or not at all."""
        with translated(self._sdk, f"writing {path}"):
            box.fs.write(f"{path}.new", text, mode=0o600)
            box.run(["mv", "-f", f"{path}.new", path], check=True, timeout=60)

    def run_in_background(self, box: Any, command: str) -> None:
        """Start a shell command that outlives this one."""
        with translated(self._sdk, "starting Cascade"):
            box.exec(command, background=True).wait()

    def tail(self, box: Any, path: str, lines: int) -> str:
        """The end of a file of the sandbox, for an error message; empty where it cannot be read."""
        try:
            result = box.run(["tail", "-n", str(lines), path], timeout=30)
        except self._sdk.SailError:
            return ""
        return str(result.stdout)

    def _url(self, box: Any, port: int) -> str:
        with translated(self._sdk, f"publishing port {port}"):
            try:
                listener = box.listener(port)
            except self._sdk.NotFoundError:
                listener = box.expose(port, "http")
        url = getattr(listener.endpoint, "url", None)
        if url is None:
            raise DeployError(f"Sail gives port {port} no address yet; run the same command again")
        return str(url).rstrip("/")

    def _image(self, options: DeployOptions) -> Any:
        if not options.from_source:
            return self._sdk.Image.from_registry(options.image or DEFAULT_IMAGE)
        dockerfile = bundled.ROOT / "deploy" / "Dockerfile"
        if not Path(dockerfile).is_file():
            raise DeployError("--from-source needs a checkout of the repository; without one, use --image")
        return self._sdk.Image.from_dockerfile(
            dockerfile,
            context_dir=bundled.ROOT,
            build_args={"BASE_IMAGE": options.base_image or DEFAULT_BASE_IMAGE},
        )
