"""Where the test inputs lie, and how a log is read."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

INPUTS = Path(__file__).parent / "inputs"
SHARED = Path(__file__).parents[4] / "shared"

ReadLines: TypeAlias = Callable[[Path], list[str]]
Case: TypeAlias = tuple[dict[str, Any], Path]


@pytest.fixture(scope="session")
def read_lines() -> ReadLines:
    """A log's lines as a worker sends them: split on newlines only, bad bytes replaced."""

    def read(path: Path) -> list[str]:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", errors="replace")
        return text.removesuffix("\n").split("\n") if text else []

    return read


@pytest.fixture(scope="session")
def sample_log(read_lines: ReadLines) -> Callable[[str], list[str]]:
    return lambda name: read_lines(INPUTS / "logs" / f"{name}.log.gz")


@pytest.fixture(scope="session")
def case() -> Callable[[str], Case]:
    """A case's `case.json` and its folder."""

    def read(name: str) -> Case:
        folder = INPUTS / "cases" / name
        return json.loads((folder / "case.json").read_text(encoding="utf-8")), folder

    return read


@pytest.fixture(scope="session")
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the reference material lies beside a full checkout only")
    return SHARED
