"""What `cascade provision` takes from its environment: the operator's logins, not a service's."""

from cascade_core.settings import BucketSettings, NatsSettings
from pydantic import Field


class ProvisionSettings(NatsSettings, BucketSettings):
    """The servers, with credentials that may make streams and buckets."""

    s3_notification_arn: str | None = Field(
        default=None,
        description="Target that the S3 store sends notifications about the upload bucket to, such as "
        "arn:minio:sqs::CASCADE:nats. None are configured where it is left out; ingest then finds uploads by its scan.",
    )
    provision_wait_s: float = Field(
        default=60.0, ge=0, le=3600, description="How long servers that are not up yet are waited for. [s]"
    )
