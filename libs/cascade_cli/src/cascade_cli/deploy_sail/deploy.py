"""Brings a workspace to where it answers, from wherever it is. Each step looks first: a rerun repeats nothing."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from cascade_cli.deploy_sail.options import (
    BUCKET,
    LOG_PATH,
    PREFIX,
    SETTINGS_PATH,
    DeployOptions,
    parsed_settings,
    rendered_settings,
    settings_of,
    start_command,
)
from cascade_cli.deploy_sail.sdk import Clock, DeployError, SailWorkspace

HEALTHY_TIMEOUT_S = 300.0
"""The first start unpacks the servers and makes a database."""
RESTART_PATIENCE_S = 10.0
"""How long an app that should be running gets to answer before it is started again."""
POLL_S = 1.0
REQUEST_TIMEOUT_S = 10.0
LOG_LINES = 15

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Deployed:
    """Where a workspace is, and how to enter it."""

    sailbox_id: str
    app_url: str
    s3_url: str
    token: str

    @property
    def open_url(self) -> str:
        """Logs the browser in. The part after # never leaves the browser."""
        return f"{self.app_url}/#token={quote(self.token, safe='')}"

    def lines(self) -> list[str]:
        """spec: deploy, what `cascade deploy` prints."""
        return [
            f"sailbox: {self.sailbox_id}",
            f"app: {self.app_url}",
            f"s3: {self.s3_url} (bucket {BUCKET}, prefix {PREFIX}, path-style, unsigned)",
            f"token: {self.token}",
            f"open: {self.open_url}",
            f"logs: {LOG_PATH} inside the sailbox",
        ]


class Deployer:
    """One deploy. `say` hears of each step as it begins."""

    def __init__(
        self, sdk: Any, http: httpx.Client, *, environ: Mapping[str, str], say: Say, clock: Clock = time
    ) -> None:
        self._sdk = sdk
        self._http = http
        self._environ = environ
        self._say = say
        self._clock = clock

    def deploy(self, options: DeployOptions) -> Deployed:
        """Find or create the workspace, wake it, start the app, wait until it answers. Raises DeployError."""
        api_key = self._api_key()
        workspace = SailWorkspace(self._sdk, options.app_name, self._clock)
        box = workspace.find()
        if box is None:
            self._step(options, "building the image" if options.from_source else "creating the sandbox")
            box = workspace.create(options)
        elif box.status in ("paused", "sleeping"):
            self._step(options, "resuming")
        box = workspace.awake(box)
        app_url, s3_url = workspace.urls(box)
        settings = self._settings(workspace, box, options, api_key=api_key, app_url=app_url, s3_url=s3_url)
        if not self._answers(app_url, within_s=RESTART_PATIENCE_S if settings.found else 0.0):
            self._step(options, "starting Cascade")
            workspace.run_in_background(box, start_command())
            if not self._answers(app_url, within_s=HEALTHY_TIMEOUT_S):
                said = workspace.tail(box, LOG_PATH, LOG_LINES).strip()
                raise DeployError(
                    f"the app at {app_url} does not answer after {HEALTHY_TIMEOUT_S:.0f} s."
                    + (
                        f" The end of {LOG_PATH}:\n{said}"
                        if said
                        else f" Look at {LOG_PATH} inside the sailbox."
                    )
                )
        self._step(options, "healthy")
        return Deployed(box.sailbox_id, app_url, s3_url, settings.token)

    def _settings(
        self,
        workspace: SailWorkspace,
        box: Any,
        options: DeployOptions,
        *,
        api_key: str,
        app_url: str,
        s3_url: str,
    ) -> "_Settings":
        stored = workspace.read(box, SETTINGS_PATH)
        if stored is not None:
            token = parsed_settings(stored).get("CASCADE_TOKEN", "")
            if not token:
                raise DeployError(
                    f"{SETTINGS_PATH} inside the sailbox {box.sailbox_id} holds no CASCADE_TOKEN. Delete the workspace "
                    "and deploy again"
                )
            if options.names_simulator:
                self._step(
                    options,
                    "the simulator settings stay as they were when the workspace was created; to change them, delete "
                    "the workspace and deploy again",
                )
            return _Settings(token, found=True)
        token = self._environ.get("CASCADE_TOKEN") or secrets.token_urlsafe(24)
        settings = settings_of(
            options, token=token, api_key=api_key, app_url=app_url, s3_url=s3_url, environ=self._environ
        )
        workspace.write_secret(box, SETTINGS_PATH, rendered_settings(settings))
        return _Settings(token, found=False)

    def _api_key(self) -> str:
        # Also finds the key of `sail auth login`.
        key = self._sdk.Config.from_env_optional_api_key().api_key
        if not key:
            raise DeployError(
                "SAIL_API_KEY is not set. Create a key on https://app.sailresearch.com, export it as SAIL_API_KEY and "
                "run the same command again"
            )
        return str(key)

    def _answers(self, app_url: str, *, within_s: float) -> bool:
        give_up_at = self._clock.monotonic() + within_s
        while True:
            if _is_healthy(self._http, app_url):
                return True
            if self._clock.monotonic() >= give_up_at:
                return False
            self._clock.sleep(POLL_S)

    def _step(self, options: DeployOptions, what: str) -> None:
        self._say(f"{options.app_name}: {what}")


@dataclass(frozen=True, slots=True)
class _Settings:
    token: str
    found: bool


def _is_healthy(http: httpx.Client, app_url: str) -> bool:
    try:
        reply = http.get(f"{app_url}/api/health", timeout=REQUEST_TIMEOUT_S)
        return reply.status_code == 200 and reply.json().get("ok") is True
    except (httpx.HTTPError, ValueError, AttributeError):
        return False  # the ingress has a page of its own while nobody listens behind it
