"""Identifiers and their one encoding as NATS subject tokens.

Run and sim ids are generated here. Trace ids are whatever a directory may be called, so they are never put into
a subject, a key or a file name as they are: `trace_token` encodes them, `trace_id_of` decodes. Two ids never share
a token.
"""

import base64
import binascii
import hashlib
import re
from typing import Annotated, NewType

from pydantic import StringConstraints

TraceId = NewType("TraceId", str)
GENERATED_ID = r"[a-z0-9][a-z0-9-]{0,99}"
RunId = Annotated[str, StringConstraints(pattern=rf"^run-{GENERATED_ID}$")]
SimId = Annotated[str, StringConstraints(pattern=rf"^sim-{GENERATED_ID}$")]
ScenarioId = Annotated[str, StringConstraints(pattern=rf"^scn-{GENERATED_ID}$")]

_GENERATED = re.compile(rf"(run|sim|scn)-{GENERATED_ID}")
# A subject stays below 255 characters: the fixed tokens take fewer than 60 of them.
_LONGEST_REVERSIBLE_TOKEN = 180
# `=` never occurs in unpadded base64url, so hashed and reversible tokens cannot meet.
_HASH_MARK = "="


def run_id(hex12: str) -> str:
    """`run-` and 12 hex digits; the caller draws the digits."""
    return f"run-{hex12}"


def sim_id(hex12: str) -> str:
    """`sim-` and 12 hex digits; the caller draws the digits."""
    return f"sim-{hex12}"


def scenario_id(hex12: str) -> str:
    """`scn-` and 12 hex digits; the caller draws the digits."""
    return f"scn-{hex12}"


def is_generated_id(text: str) -> bool:
    """Whether `text` has the form of a run, sim or scenario id, and so is safe as a subject token."""
    return _GENERATED.fullmatch(text) is not None


def trace_token(trace_id: str) -> str:
    """The subject token of a trace id: base64url without padding, or a marked SHA-256 for very long ids.

    The empty id, which no directory has, is hashed as well, since a subject may hold no empty token.
    """
    raw = trace_id.encode("utf-8", "surrogatepass")
    token = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    if 0 < len(token) <= _LONGEST_REVERSIBLE_TOKEN:
        return token
    return _HASH_MARK + hashlib.sha256(raw).hexdigest()


def trace_id_of(token: str) -> str | None:
    """The trace id behind `token`, or None where it is a hash (the fact's body then tells the id) or no token."""
    padded = token + "=" * (-len(token) % 4)
    try:
        trace_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        return None
    # base64 has several spellings of some bytes; only the one that `trace_token` makes is a token.
    return trace_id if trace_token(trace_id) == token else None
