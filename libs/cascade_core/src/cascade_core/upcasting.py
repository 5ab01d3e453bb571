"""Old facts in today's shape: one function for each step between two schema versions.

Version 1 is the first. A new version adds an entry to `UPCASTERS` and a stored example to `tests/golden`.
"""

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from cascade_core.errors import Corrupt

CURRENT_VERSION = 1

Payload = dict[str, JsonValue]
Upcasters = Mapping[int, Callable[[Payload], Payload]]
UPCASTERS: Upcasters = {}
"""From version n to version n + 1."""


def upcast(
    body: bytes, version: int, *, to: int = CURRENT_VERSION, upcasters: Upcasters = UPCASTERS
) -> bytes:
    """`body`, written as `version`, as a body of version `to`, step by step.

    Raises Corrupt for a body that is no JSON object, and for a version that no upcaster starts from.
    """
    try:
        payload = json.loads(body)
    except ValueError as error:
        raise Corrupt(f"a stored fact is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise Corrupt("a stored fact is not a JSON object")
    for step in range(version, to):
        if step not in upcasters:
            raise Corrupt(f"a stored fact has schema version {version}, which no version of Cascade wrote")
        payload = upcasters[step](payload)
    return json.dumps(payload).encode()
