"""Bodies of the health routes."""

from pydantic import Field

from cascade_client.wire.base import Body


class Health(Body):
    """The app's process serves requests."""

    ok: bool = Field(description="Always true.")
    auth: bool = Field(description="False only when the app runs with CASCADE_NO_AUTH=1.")
    workspace: str | None = Field(description="The workspace's name, where the operator gave one.")
    s3_endpoint: str = Field(description="Where traces are uploaded to.")


class Ready(Body):
    """Each server behind the app in a word: `ok` where it answers."""

    ok: bool = Field(description="True when every server answers and the read models are up to date.")
    nats: str = Field(description="The event log.")
    postgres: str = Field(description="The read models.")
    s3: str = Field(description="The bucket.")
    projection: str = Field(description="How far the read models are behind the event log.")
