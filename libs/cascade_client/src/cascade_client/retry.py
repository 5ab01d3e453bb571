"""When a call is sent again, and how long to wait before. Pure: the clients do the waiting."""

from dataclasses import dataclass

from cascade_client.errors import ClientError, ServerError, Unavailable, Unreachable


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Growing, bounded waits."""

    attempts: int = 4
    """Times that a call is sent in all."""
    first_wait_s: float = 0.5
    longest_wait_s: float = 10.0

    def wait_s(self, error: ClientError, *, failures: int, idempotent: bool) -> float | None:
        """Seconds to wait after `error`, the `failures`-th in a row; None when it must be raised.

        A call that is not safe to repeat is never repeated: after a lost answer nobody knows whether it was done.
        """
        if not idempotent or failures >= self.attempts or not isinstance(error, (Unreachable, ServerError)):
            return None
        wait = self.first_wait_s * 2.0 ** (failures - 1)
        if isinstance(error, Unavailable) and error.retry_after_s is not None:
            wait = max(wait, error.retry_after_s)
        return min(wait, self.longest_wait_s)


STREAM_RETRIES = RetryPolicy(attempts=8)
"""An event stream that breaks is opened again; so many failures without one event in between end it."""
