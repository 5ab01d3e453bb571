"""The bundled OPT-125m samples (reconstructed from published statistics)."""

from pathlib import Path

import pytest
from cascade_timing.testing import Sample

SAMPLES = Path(__file__).parents[3] / "samples"

H100 = Sample(SAMPLES / "opt125m-h100-e2e", SAMPLES / "opt125m-h100-e2e")
H200 = Sample(SAMPLES / "opt125m-h100-e2e", SAMPLES / "opt125m-h200")
A100 = Sample(SAMPLES / "opt125m-a100-e2e", SAMPLES / "opt125m-a100-e2e")


@pytest.fixture(scope="session")
def h100() -> Sample:
    return H100


@pytest.fixture(scope="session", params=[H100, H200, A100], ids=["h100", "h200", "a100"])
def sample(request: pytest.FixtureRequest) -> Sample:
    found = request.param
    assert isinstance(found, Sample)
    return found
