"""A small log of three kernels (our own text, in the simulator's form) and the reference material's real ones."""

from pathlib import Path

import pytest

INPUTS = Path(__file__).parent / "inputs"
SHARED = Path(__file__).parents[4] / "shared"


@pytest.fixture(scope="session")
def three_kernels() -> list[str]:
    return (INPUTS / "three-kernels.log").read_text("utf-8").removesuffix("\n").split("\n")


@pytest.fixture(scope="session")
def real_logs() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the reference material lies beside a full checkout only")
    return SHARED / "accelsim" / "logs"
