"""Events of the run stream. spec: types, Events."""

from typing import Literal

from pydantic import BaseModel, Field

from cascade_api.wire.results import KernelStat
from cascade_api.wire.runs import RunDetail, SimSummary


class SnapshotEvent(BaseModel):
    """Always first on the stream."""

    type: Literal["snapshot"] = "snapshot"
    run: RunDetail = Field(description="The run as it is at connect time.")
    kernels: list[KernelStat] = Field(description="Every sim's stats with `stats` emptied.")


class SimEvent(BaseModel):
    """A sim changed."""

    type: Literal["sim"] = "sim"
    sim: SimSummary = Field(description="The sim after a change: state, heartbeat, progress or metrics.")


class LogEvent(BaseModel):
    """New output of one sim."""

    type: Literal["log"] = "log"
    sim_id: str = Field(description="The sim the lines came from.")
    lines: list[str] = Field(description="The new chunk, as the simulator sent it.")


class KernelEvent(BaseModel):
    """A kernel finished on one sim."""

    type: Literal["kernel"] = "kernel"
    stat: KernelStat = Field(description="A kernel that just finished, with the full `stats` map.")


RunEvent = SnapshotEvent | SimEvent | LogEvent | KernelEvent
