"""What can go wrong between the worker, its gateway and its simulator.

Each class answers one question: what does the worker do now? Nothing here is raised for a simulator that
merely fails: that is an outcome, reported with the final heartbeat.
"""


class WorkerError(Exception):
    """Root of everything the worker raises on purpose."""


class GatewayError(WorkerError):
    """A call to the gateway that will not come to a good end."""


class GatewayRefusedError(GatewayError):
    """The gateway answered with something that a retry cannot change (any 4xx, or a redirect).

    The token, the body or the name is wrong, the file is too big, or the sim does not exist.
    """

    def __init__(self, *, call: str, status: int, detail: str) -> None:
        self.call = call
        self.status = status
        self.detail = detail
        super().__init__(f"{call} was refused with {status}: {detail}")


class FencedOffError(GatewayRefusedError):
    """409: another start of the same sim has the gateway's ear. Stop without a word; never splice two
    logs."""


class GatewayUnavailableError(GatewayError):
    """A 5xx, a lost connection or an unreadable reply: worth another try until the retry policy's time is
    up."""

    def __init__(self, *, call: str, reason: str) -> None:
        self.call = call
        self.reason = reason
        super().__init__(f"{call} failed: {reason}")


class CannotStartError(WorkerError):
    """Something that the simulation needs is missing or unusable. The sim fails with exit code 2."""


class TraceDownloadError(CannotStartError):
    """The trace could not be fetched from the bucket."""


class SettingsError(WorkerError):
    """A wrong or missing environment variable, named in the message. Nothing can be reported without it."""


class SourceFailedError(WorkerError):
    """The replay or the estimate broke off. The sim fails with exit code 1."""
