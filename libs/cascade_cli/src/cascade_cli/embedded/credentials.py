"""The passwords and keys of the embedded servers: made once for a data directory, readable by its owner only."""

import json
import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cascade_cli.embedded.errors import EmbeddedServerError


@dataclass(frozen=True, slots=True)
class Credentials:
    """What is kept in `credentials.json`."""

    nats_password: str
    postgres_password: str
    s3_access_key: str
    s3_secret_key: str
    s3_internal_key: str
    nats_user_passwords: dict[str, str] = field(default_factory=dict)
    """By user name, for the users whose passwords were left to us."""


def load_or_create(path: Path, *, nats_user_names: tuple[str, ...] = ()) -> Credentials:
    """The credentials at `path`, with a password for each named user; new ones where there are none.

    Raises EmbeddedServerError when the file cannot be understood.
    """
    credentials = _load(path) if path.exists() else _generate()
    missing = [name for name in nats_user_names if name not in credentials.nats_user_passwords]
    for name in missing:
        credentials.nats_user_passwords[name] = secrets.token_urlsafe(24)
    if missing or not path.exists():
        _store(path, credentials)
    return credentials


def _generate() -> Credentials:
    return Credentials(
        nats_password=secrets.token_urlsafe(24),
        postgres_password=secrets.token_urlsafe(24),
        s3_access_key=secrets.token_hex(10).upper(),
        s3_secret_key=secrets.token_urlsafe(30),
        s3_internal_key=secrets.token_hex(32),
    )


def _load(path: Path) -> Credentials:
    try:
        stored = json.loads(path.read_text("utf-8"))
        credentials = Credentials(**stored)
    except (ValueError, TypeError) as error:
        raise EmbeddedServerError(
            f"{path} does not hold the credentials of the embedded servers ({error}). Restore it, or remove "
            f"{path.parent} to start over without the data."
        ) from error
    path.chmod(0o600)
    return credentials


def _store(path: Path, credentials: Credentials) -> None:
    """Replace the file at once: a kill half-way leaves the old one."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(json.dumps(asdict(credentials), indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
