"""The two or three signed S3 requests that starting a store takes.

Not a client: the product talks to buckets through `cascade_core.s3`. Importing that client's library costs more time
than all three servers take to start, so the start of the store signs by itself.
Source: AWS, "Create a signed AWS API request" (Signature Version 4).
"""

import hashlib
import hmac
import http.client
import urllib.parse
from dataclasses import dataclass
from datetime import UTC, datetime

REGION = "us-east-1"
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class S3Access:
    """Where a store is and how to enter it."""

    endpoint: str
    access_key: str | None
    """None where requests go unsigned."""
    secret_key: str | None
    bucket: str
    internal_bucket: str


def request(
    method: str, access: S3Access, path: str, body: bytes = b"", *, query: str = ""
) -> tuple[int, bytes]:
    """Send one request for `path`, which starts with `/` and is not quoted yet; the status and the body.

    `query` is in canonical form already. Blocks. Raises OSError and http.client.HTTPException.
    """
    host = urllib.parse.urlsplit(access.endpoint).netloc
    quoted = urllib.parse.quote(path, safe="/-_.~")
    headers = _signed_headers(method, access, host=host, quoted=quoted, query=query, body=body)
    connection = http.client.HTTPConnection(host, timeout=_TIMEOUT_S)
    try:
        connection.request(method, f"{quoted}?{query}" if query else quoted, body=body, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _signed_headers(
    method: str, access: S3Access, *, host: str, quoted: str, query: str, body: bytes
) -> dict[str, str]:
    if access.access_key is None or access.secret_key is None:
        return {}
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": time}
    signed = ";".join(headers)
    canonical = "\n".join(
        [method, quoted, query, *(f"{name}:{value}" for name, value in headers.items()), "", signed, digest]
    )
    scope = f"{time[:8]}/{REGION}/s3/aws4_request"
    to_sign = "\n".join(
        ["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode("utf-8")).hexdigest()]
    )
    key = f"AWS4{access.secret_key}".encode()
    for part in (*scope.split("/"), to_sign):
        key = hmac.new(key, part.encode("utf-8"), hashlib.sha256).digest()
    credential = f"{access.access_key}/{scope}"
    authorization = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={key.hex()}"
    return {**headers, "authorization": authorization}
