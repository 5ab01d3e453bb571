"""Which app the commands talk to: the one that the environment names, else the one that runs on this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cascade_client.client import CascadeClient
from cascade_client.errors import ApiError, ClientError, Conflict, Invalid, NotFound, Unauthorized
from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from cascade_cli import running
from cascade_cli.output import fail


class ConnectSettings(BaseSettings):
    """What names an app."""

    model_config = SettingsConfigDict(
        env_prefix="CASCADE_", frozen=True, extra="ignore", env_ignore_empty=True
    )

    url: str | None = Field(default=None, description="The app's URL. Default: the app that serves here.")
    token: SecretStr | None = Field(default=None, description="Its bearer token.")
    data_dir: Path = Field(
        default=Path("data"), description="Where a `cascade serve` on this machine says its URL."
    )


@dataclass(frozen=True, slots=True)
class App:
    """An app to talk to."""

    url: str
    token: SecretStr | None
    here: running.RunningUrls | None
    """What the app on this machine says of itself, where it is the one."""

    def token_text(self) -> str | None:
        """The bare token, for the header only."""
        return self.token.get_secret_value() if self.token is not None else None


def known_app() -> App | None:
    """The app; None where the environment names none and none runs here."""
    settings = ConnectSettings()
    here = running.read(settings.data_dir)
    own = settings.url is None or (here is not None and settings.url.rstrip("/") == here.url)
    if own and here is not None:
        # The running app's own word goes before a token that was meant for another one.
        token = SecretStr(here.token) if here.token else settings.token
        return App(here.url, token, here)
    return App(settings.url, settings.token, None) if settings.url is not None else None


def find_app() -> App:
    """The app; ends the command with the next step where none is known."""
    app = known_app()
    if app is None:
        fail(
            f"no app is known: CASCADE_URL is not set and none runs on {ConnectSettings().data_dir.absolute()}",
            "export CASCADE_URL and CASCADE_TOKEN, or start `cascade serve` in this directory",
        )
    return app


@contextmanager
def connected() -> Iterator[CascadeClient]:
    """A client of the app; its errors end the command in one sentence."""
    app = find_app()
    try:
        with CascadeClient(app.url, app.token_text()) as client:
            yield client
    except ClientError as error:
        fail(said(error), next_step(error))


def said(error: ClientError) -> str:
    """The error without what only programs need."""
    return error.detail.rstrip(".") if isinstance(error, ApiError) else str(error).rstrip(".")


def next_step(error: ClientError) -> str:
    """What to do about it, where the error itself does not say."""
    match error:
        case Unauthorized():
            return "set CASCADE_TOKEN to the app's token"
        case NotFound() if error.detail.startswith("trace "):
            return "see what there is with `cascade traces`"
        case NotFound() if error.detail.startswith("run "):
            return "see what there is with `cascade runs`"
        case Conflict() if error.detail.endswith("not ready"):
            return "see why with `cascade traces`, and wait where it is still arriving"
        case Invalid() if not error.problems:
            return "see which configs fit with `cascade configs`"
        case _:
            return ""
