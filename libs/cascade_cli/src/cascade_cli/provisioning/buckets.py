"""Makes the two buckets on any S3 store, their housekeeping rule, and the notification of uploads. Idempotent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError
from cascade_core.errors import BucketUnavailable

from cascade_cli.provisioning.settings import ProvisionSettings

ABORT_UPLOADS_AFTER_DAYS = 7
"""Parts of an upload that nobody finished take space that no listing shows."""
DROP_OLD_VERSIONS_AFTER_DAYS = 30
"""Only where an operator turned versioning on; nothing that is current ever expires."""
_NOT_BUILT = frozenset({"NotImplemented", "MethodNotAllowed", "501"})


async def provision_buckets(settings: ProvisionSettings) -> list[str]:
    """Create what is missing; returns a line for each thing that is now in place. Raises BucketUnavailable."""
    done: list[str] = []
    async with _client(settings) as client:
        for bucket in (settings.s3_bucket, settings.s3_internal_bucket):
            await _ensure_bucket(client, bucket)
            done.append(f"bucket {bucket}: there")
            done.append(f"bucket {bucket}: {await _set_housekeeping(client, bucket)}")
        if settings.s3_notification_arn is not None:
            outcome = await _set_notification(client, settings, settings.s3_notification_arn)
            done.append(f"bucket {settings.s3_bucket}: {outcome}")
    return done


@asynccontextmanager
async def _client(settings: ProvisionSettings) -> AsyncIterator[Any]:
    secret = settings.s3_secret_key
    async with get_session().create_client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        region_name=settings.s3_region,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=secret.get_secret_value() if secret else None,
        config=AioConfig(
            s3={"addressing_style": "path"},
            connect_timeout=5,
            read_timeout=30,
            retries={"max_attempts": 2, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    ) as client:
        yield client


async def _ensure_bucket(client: Any, bucket: str) -> None:
    try:
        await _call(client, "create_bucket", Bucket=bucket)
    except _Refused as refused:
        if refused.code not in {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}:
            raise BucketUnavailable(f"the bucket {bucket} cannot be created: {refused}") from refused


async def _set_housekeeping(client: Any, bucket: str) -> str:
    rule = {
        "ID": "cascade-housekeeping",
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": ABORT_UPLOADS_AFTER_DAYS},
        # MinIO knows no rule that only ends uploads (it does so by itself); with this one the rule is whole there too.
        "NoncurrentVersionExpiration": {"NoncurrentDays": DROP_OLD_VERSIONS_AFTER_DAYS},
    }
    try:
        await _call(
            client,
            "put_bucket_lifecycle_configuration",
            Bucket=bucket,
            LifecycleConfiguration={"Rules": [rule]},
        )
    except _Refused as refused:
        if refused.code not in _NOT_BUILT:
            raise BucketUnavailable(f"the lifecycle of {bucket} cannot be set: {refused}") from refused
        return "this store keeps no lifecycle rules; end abandoned uploads by its own means"
    return f"unfinished uploads end after {ABORT_UPLOADS_AFTER_DAYS} days"


async def _set_notification(client: Any, settings: ProvisionSettings, arn: str) -> str:
    prefix = settings.s3_prefix.strip("/")
    queue = {
        "Id": "cascade-uploads",
        "QueueArn": arn,
        "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"],
        "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": f"{prefix}/" if prefix else ""}]}},
    }
    try:
        await _call(
            client,
            "put_bucket_notification_configuration",
            Bucket=settings.s3_bucket,
            NotificationConfiguration={"QueueConfigurations": [queue]},
        )
    except _Refused as refused:
        # Notifications only hasten what the scan finds anyway: no reason to keep everything from starting.
        return (
            f"no notifications, since the store refused CASCADE_S3_NOTIFICATION_ARN={arn} ({refused}); uploads are "
            "found by ingest's scan. Configure that target in the store and run this again, or leave the variable out"
        )
    return f"notifications go to {arn}"


class _Refused(Exception):
    """The store answered with an error."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        self.code = str(error.response.get("Error", {}).get("Code"))


async def _call(client: Any, operation: str, **arguments: Any) -> Any:
    try:
        return await getattr(client, operation)(**arguments)
    except ClientError as error:
        raise _Refused(error) from error
    except (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError) as error:
        raise BucketUnavailable(f"S3 did not answer {operation}: {error}") from error
