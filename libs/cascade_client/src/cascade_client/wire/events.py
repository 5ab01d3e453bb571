"""Events of a run's stream."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from cascade_client.wire.base import Body
from cascade_client.wire.results import KernelStat
from cascade_client.wire.runs import RunDetail, SimSummary


class SnapshotEvent(Body):
    """The run as it is at connect time: first on every connection."""

    type: Literal["snapshot"] = Field(default="snapshot", description="Always `snapshot`.")
    run: RunDetail = Field(description="The whole run.")
    kernels: list[KernelStat] = Field(description="Every finished kernel, with `stats` empty.")


class SimEvent(Body):
    """A sim changed."""

    type: Literal["sim"] = Field(default="sim", description="Always `sim`.")
    sim: SimSummary = Field(description="The sim after the change.")


class LogEvent(Body):
    """New output of one sim."""

    type: Literal["log"] = Field(default="log", description="Always `log`.")
    sim_id: str = Field(description="The sim.")
    lines: list[str] = Field(description="The chunk as the simulator sent it.")


class KernelEvent(Body):
    """A sim finished a kernel."""

    type: Literal["kernel"] = Field(default="kernel", description="Always `kernel`.")
    stat: KernelStat = Field(description="The kernel with its full `stats`.")


RunEvent: TypeAlias = SnapshotEvent | SimEvent | LogEvent | KernelEvent

RUN_EVENT: TypeAdapter[RunEvent] = TypeAdapter(Annotated[RunEvent, Field(discriminator="type")])
