"""Heartbeats for a sim whose trace is still on its way, where nothing else says that it is alive.

A thread of its own and the standard library: it must neither wait for the download nor bring another client along.
"""

import http.client
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

_logger = structlog.get_logger(__name__)

EVERY_S = 5.0
"""As often as the worker does."""
ANSWER_WITHIN_S = 10.0


@contextmanager
def beating(*, main_url: str, sim_id: str, token: str) -> Iterator[None]:
    """Say `running` of the sim for the length of the block. A gateway that does not answer costs a log line."""
    over = threading.Event()
    # A daemon: an answer that is still awaited must not keep the simulator from starting.
    threading.Thread(target=_beat, args=(_heartbeat(main_url, sim_id, token), over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _heartbeat(main_url: str, sim_id: str, token: str) -> urllib.request.Request:
    # Without the attempt's header: the sim belongs to the first start that names itself, which is the simulator's.
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    return urllib.request.Request(  # noqa: S310 -- a `BaseUrl` is http or https
        f"{main_url}/api/sims/{sim_id}/heartbeat",
        data=json.dumps({"state": "running"}).encode(),
        headers=headers,
        method="POST",
    )


def _beat(heartbeat: urllib.request.Request, over: threading.Event) -> None:
    while True:
        try:
            with urllib.request.urlopen(heartbeat, timeout=ANSWER_WITHIN_S):  # noqa: S310 -- as above
                pass
        except (OSError, http.client.HTTPException) as error:
            _logger.warning("no heartbeat while the trace is fetched", error=str(error))
        if over.wait(EVERY_S):
            return
