"""What all bodies share."""

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """A body of the API. Unknown fields come from a newer app and are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())
