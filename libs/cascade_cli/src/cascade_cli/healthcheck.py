"""The image's health check: is the service in this container at work? Exit 0 for yes, 1 with a line for no.

A service with HTTP answers /api/health. The others work exactly as long as they hold their connection to NATS: they
reconnect for ever and end when they cannot go on, so the connection is what there is to look at. Standard library
only, since it starts every few seconds.
"""

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

TIMEOUT_S = 4.0
_ESTABLISHED = "01"
_NATS_PORT = 4222
_WITHOUT_HTTP = frozenset({"ingest", "launcher", "parser", "requestsim", "samples"})


def service_of(command_line: Iterable[str]) -> str:
    """Which service a container's first process runs: the word after `serve`, or `api` for the whole app."""
    words = list(command_line)
    after = words[words.index("serve") + 1 :] if "serve" in words else []
    return after[0] if after and after[0] in _WITHOUT_HTTP else "api"


def holds_connection(tables: Iterable[str], port: int) -> bool:
    """Whether one of these /proc/net/tcp tables shows an established connection to `port` of another host."""
    for table in tables:
        for row in table.split("\n")[1:]:
            columns = row.split()
            if len(columns) > 3 and columns[3] == _ESTABLISHED:
                remote_port = int(columns[2].rpartition(":")[2], 16)
                if remote_port == port:
                    return True
    return False


def problem(service: str, environment: Mapping[str, str], tables: Iterable[str]) -> str | None:
    """What is wrong with `service`; None if nothing is."""
    if service in _WITHOUT_HTTP:
        port = urlsplit(environment.get("CASCADE_NATS_URL", "")).port or _NATS_PORT
        return (
            None if holds_connection(tables, port) else f"{service} has no connection to NATS (port {port})"
        )
    url = f"http://127.0.0.1:{environment.get('CASCADE_PORT') or 8000}/api/health"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S):
            return None
    except (urllib.error.URLError, OSError) as error:
        return f"{url} does not answer: {error}"


def main() -> int:
    """Check the service that this container's first process (or its child) runs."""
    found = problem(service_of(_command_line()), os.environ, _tables())
    if found is not None:
        print(found, file=sys.stderr)
    return 0 if found is None else 1


def _command_line() -> list[str]:
    # Process 1 is the init, whose arguments end with the command that it started.
    return Path("/proc/1/cmdline").read_bytes().decode("utf-8", "replace").split("\0")


def _tables() -> list[str]:
    return [
        path.read_text("ascii") for path in map(Path, ("/proc/net/tcp", "/proc/net/tcp6")) if path.exists()
    ]


if __name__ == "__main__":
    raise SystemExit(main())
