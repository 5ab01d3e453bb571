"""Asking the request simulator over the log, and waiting for its one answer."""

import asyncio
import uuid
from typing import Literal

from cascade_core import subjects
from cascade_core.errors import Refused
from cascade_core.facts import AnyFact
from cascade_core.ids import scenario_id
from cascade_core.record import Recorded
from cascade_core.scenarios.facts import ScenarioCompleted, ScenarioFailed, ScenarioRequested
from pydantic import JsonValue

from cascade_api.gateway import Gateway
from cascade_api.scenarios.base_run import BaseRun
from cascade_api.scenarios.errors import BaseSimFailed, BaseSimLate
from cascade_api.scenarios.places import Places

ANSWER_WAIT_S = 60.0
"""An answer takes milliseconds, and a restarted request simulator a few seconds to find the question."""
places = Places(256, "their answers")
"""Each answer may have megabytes."""


async def ask(
    gateway: Gateway, base: BaseRun, kind: Literal["scenario", "estimate"], body: dict[str, JsonValue]
) -> dict[str, JsonValue]:
    """The request simulator's answer on a finished base.

    Raises Refused with the status that the simulator gave, BaseSimLate (504), LogUnavailable, TooManyWaiting (503).
    """
    with places.one():
        answer = await _asked(gateway, base, kind, body)
    match answer:
        case ScenarioCompleted():
            return answer.result
        case ScenarioFailed(status=504):
            raise BaseSimLate(answer.detail, run_id=base.run_id, sim_id=base.sim_id)
        case ScenarioFailed(status=502):
            raise BaseSimFailed(answer.detail, run_id=base.run_id, sim_id=base.sim_id)
        case ScenarioFailed():
            raise Refused(answer.detail, status=answer.status)


async def _asked(
    gateway: Gateway, base: BaseRun, kind: Literal["scenario", "estimate"], body: dict[str, JsonValue]
) -> ScenarioCompleted | ScenarioFailed:
    asked = ScenarioRequested(
        scenario_id=scenario_id(uuid.uuid4().hex[:12]),
        occurred_at=gateway.now(),
        kind=kind,
        trace_id=base.trace.trace_id,
        run_id=base.run_id,
        sim_id=base.sim_id,
        gpu_config=base.config.name,
        body=body,
    )
    stored = await gateway.log.append(asked, event_id=f"scenario-asked:{asked.scenario_id}")
    try:
        async with asyncio.timeout(ANSWER_WAIT_S):
            return await _answer(gateway, asked.scenario_id, stored.position)
    except TimeoutError:
        raise BaseSimLate(
            f"the request simulator did not answer in {ANSWER_WAIT_S:.0f} s; base run {base.run_id}, sim "
            f"{base.sim_id}. Send the request again; `cascade doctor` tells whether it runs.",
            run_id=base.run_id,
            sim_id=base.sim_id,
        ) from None


async def _answer(gateway: Gateway, scenario: str, after: int) -> ScenarioCompleted | ScenarioFailed:
    async with gateway.log.follow([subjects.scenario_filter(scenario)], after=after, batch=1) as batches:
        async for records in batches:
            found = _first_answer(records)
            if found is not None:
                return found
    raise AssertionError("the log is followed for ever")


def _first_answer(records: list[Recorded[AnyFact]]) -> ScenarioCompleted | ScenarioFailed | None:
    for record in records:
        if isinstance(record.fact, ScenarioCompleted | ScenarioFailed):
            return record.fact
    return None
