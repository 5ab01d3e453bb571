"""What a running `cascade serve` tells other commands on this machine: its URLs, in a file only its user may read."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path("embedded") / "running.json"


@dataclass(frozen=True, slots=True)
class RunningUrls:
    """Where a running app and its servers are. Holds credentials: mode 600, gone when the app stops."""

    pid: int
    url: str
    token: str | None
    nats_url: str
    database_url: str
    s3_endpoint: str
    s3_bucket: str
    s3_internal_bucket: str
    s3_prefix: str
    s3_access_key: str | None
    s3_secret_key: str | None


@contextmanager
def announced(data_dir: Path, urls: RunningUrls) -> Iterator[None]:
    """Keep the file during the block."""
    path = data_dir / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as target:
        json.dump(asdict(urls), target)
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def read(data_dir: Path) -> RunningUrls | None:
    """The running app of this data directory; None where none runs (a file left by a killed one does not count)."""
    try:
        urls = RunningUrls(**json.loads((data_dir / FILE).read_text()))
        os.kill(urls.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return urls
