"""Tokens that open one sim's routes only, derived from the app's token: nothing to store, nothing to look up.

With a sim's token the app's own cannot be found, nor another sim's. A new app token ends all of them.
"""

import base64
import hashlib
import hmac

PREFIX = "sim1."
"""Names the derivation, so that a token of another kind is told apart before anything is computed."""
_CONTEXT = b"cascade sim token 1\0"


def sim_token(app_token: str, sim_id: str) -> str:
    """The token of one sim. Empty where the app has none."""
    if not app_token:
        return ""
    digest = hmac.digest(app_token.encode(), _CONTEXT + sim_id.encode(), hashlib.sha256)
    return PREFIX + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
