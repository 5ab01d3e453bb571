"""Old facts in today's shape: one function for each step between two schema versions.

Version 1 is the first. A new version adds an entry to `UPCASTERS` and a stored example to `tests/golden`.
"""

import json
from collections.abc import Callable

from pydantic import JsonValue

CURRENT_VERSION = 1

Payload = dict[str, JsonValue]
Upcasters = dict[int, Callable[[Payload], Payload]]
UPCASTERS: Upcasters = {}
"""From version n to version n + 1."""


def upcast(body: bytes, version: int, upcasters: Upcasters = UPCASTERS) -> bytes:
    """`body`, written as `version`, as a body of the current version."""
    payload: Payload = json.loads(body)
    for step in range(version, version + len(upcasters)):
        if step in upcasters:
            payload = upcasters[step](payload)
    return json.dumps(payload).encode()
