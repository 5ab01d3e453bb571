"""What can go wrong with an embedded server."""

from cascade_core.errors import CascadeError


class EmbeddedServerError(CascadeError):
    """A server did not start, stopped on its own, or could not be stopped. The message ends with its last log lines."""


class PortTakenError(EmbeddedServerError):
    """The server found its port in use. Where the port was ours to choose, another one is tried."""


class DataDirectoryInUseError(EmbeddedServerError):
    """Another Cascade process works on the same data directory."""
