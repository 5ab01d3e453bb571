"""The `users.conf` that a separately run NATS server includes: one user per service, with its permissions. Pure.

The permissions are those of the embedded server (`cascade_core.jetstream.permissions`), so that a service may do the
same everywhere. Passwords stay out of the file: the server reads each from its own environment.
"""

import json
from collections.abc import Iterable

from cascade_core.jetstream.permissions import SERVICES, permissions_of

OPERATOR = "operator"
"""May do everything: makes the streams, seeds, rebuilds, backs up."""
BUCKET_EVENTS_USER = "minio"
"""The S3 store's login: it may publish bucket notifications and nothing else."""
BUCKET_EVENTS_SUBJECT = "minio.events"

_HEADER = """\
# Who may do what on NATS. Written by `cascade nats-config`; a test keeps it up to date with the code.
# nats-server reads each password from its environment. A password must begin with a letter and hold letters and
# digits only, because the server would read 12e3 as a number and $x as another variable.
"""


def password_variable(user: str) -> str:
    """The environment variable that holds the password of `user`."""
    return f"CASCADE_NATS_{user.upper()}_PASSWORD"


def users() -> tuple[str, ...]:
    """Every login in the file."""
    return (OPERATOR, *SERVICES, BUCKET_EVENTS_USER)


def users_config(*, bucket_events: str = BUCKET_EVENTS_SUBJECT) -> str:
    """The whole text of `users.conf`."""
    blocks = [_user(OPERATOR, None, None)]
    for service in SERVICES:
        permissions = permissions_of(service, bucket_events=bucket_events)
        blocks.append(_user(service, permissions.publish, permissions.subscribe))
    blocks.append(_user(BUCKET_EVENTS_USER, (bucket_events,), ()))
    return f"{_HEADER}authorization {{\n  users = [\n{''.join(blocks)}  ]\n}}\n"


def _user(name: str, publish: tuple[str, ...] | None, subscribe: tuple[str, ...] | None) -> str:
    lines = [f"user: {name}", f"password: ${password_variable(name)}"]
    if publish is not None and subscribe is not None:
        lines += ["permissions {", *_allowed("publish", publish), *_allowed("subscribe", subscribe), "}"]
    body = "".join(f"      {line}\n" for line in lines)
    return f"    {{\n{body}    }}\n"


def _allowed(action: str, subjects: Iterable[str]) -> list[str]:
    # In double quotes a $ is a plain character. An empty list of allowed subjects would allow all.
    quoted = [json.dumps(subject) for subject in subjects]
    if not quoted:
        return [f'  {action}: {{ deny: [">"] }}']
    return [f"  {action}: {{", "    allow: [", *(f"      {subject}" for subject in quoted), "    ]", "  }"]
