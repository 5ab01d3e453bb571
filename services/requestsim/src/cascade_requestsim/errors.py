"""What the request model refuses, and why.

Refused (422)
├── ProfileRefused          a finished sim cannot become a performance profile
│   ├── ProfileInputMissing a document that the profile needs was not supplied
│   └── UnsupportedModel    quantised, sharded, sparse or unknown model shapes; unknown GPU configs
├── ScenarioRefused         the scenario cannot be simulated on this profile
│   ├── CapacityExceeded    a request (or the model itself) does not fit the KV cache
│   └── StepLimitExceeded   the scenario needs more steps than the service runs
└── NoProgress              the scheduler built an empty batch: a bug, reported instead of a hang
"""

from cascade_core.errors import Refused


class ProfileRefused(Refused):
    """A finished sim cannot become a performance profile."""


class ProfileInputMissing(ProfileRefused):
    """A document that the profile needs was not supplied."""


class UnsupportedModel(ProfileRefused):
    """The model or the GPU lies outside what the request model describes."""


class ScenarioRefused(Refused):
    """The scenario cannot be simulated on this profile."""


class CapacityExceeded(ScenarioRefused):
    """A request, or the model itself, does not fit the KV cache, so that it could never finish."""


class StepLimitExceeded(ScenarioRefused):
    """The scenario needs more scheduler steps than the service runs for one answer."""


class NoProgress(ScenarioRefused):
    """Requests are left but none can run. The checks before the start should make this impossible."""
