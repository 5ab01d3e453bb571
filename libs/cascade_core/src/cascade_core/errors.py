"""Every error that Cascade raises on purpose.

CascadeError
├── Refused        the caller is wrong: 4xx, or the message is parked
│   └── NotFound   the thing named does not exist: 404
├── Unavailable    try again: 503, bounded growing delay
└── Corrupt        stop and look: stored data breaks a rule that must hold
"""


class CascadeError(Exception):
    """Root of the tree. The message says what was met, what was expected and what to do."""


class Refused(CascadeError):
    """The caller asked for something that cannot be. `status` is the HTTP status that says so."""

    status = 422

    def __init__(self, detail: str, *, status: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        if status is not None:
            self.status = status


class NotFound(Refused):
    """The trace, run, sim or file that was named does not exist."""

    status = 404

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.certain = False
        """Whether whoever looked knows that nothing was on its way."""


class Unavailable(CascadeError):
    """A server that Cascade needs cannot be reached or is full. The same call may succeed later."""


class LogUnavailable(Unavailable):
    """The event log did not take or give a fact in time."""


class BucketUnavailable(Unavailable):
    """The S3 endpoint did not answer, or answered with a server error."""


class AppendConflict(CascadeError):
    """Somebody else wrote this subject first. Raised only for appends that demand to be first."""


class Corrupt(CascadeError):
    """Stored data breaks a rule. A restart at the checkpoint is cheap, a wrong read model is not."""


class UnknownFactVersion(Corrupt):
    """A fact was written by a newer Cascade. Upgrade this service before it reads on."""
