"""The one union of all facts, and its codec: `encode` beside `decode`."""

from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from cascade_core.errors import Corrupt, Refused, UnknownFactVersion
from cascade_core.fact_base import Fact
from cascade_core.kernels.facts import KernelFinished
from cascade_core.logs.facts import LogAppended
from cascade_core.runs.facts import RunFactUnion
from cascade_core.scenarios.facts import ScenarioCompleted, ScenarioFactUnion, ScenarioRequested
from cascade_core.sims.facts import SimFactUnion, SimStepTimelineStored
from cascade_core.traces.facts import TraceFactUnion, TraceObserved
from cascade_core.upcasting import CURRENT_VERSION, upcast

AnyFact: TypeAlias = Annotated[
    TraceFactUnion | RunFactUnion | SimFactUnion | LogAppended | KernelFinished | ScenarioFactUnion,
    Field(discriminator="type"),
]

_ADAPTER: TypeAdapter[AnyFact] = TypeAdapter(AnyFact)
# They carry somebody else's JSON as it is, and that may be nested deeper than a reader goes.
_WITH_FOREIGN_JSON = (TraceObserved, SimStepTimelineStored, ScenarioRequested, ScenarioCompleted)


def fact_type(fact: Fact) -> str:
    """The fact's type name, such as `sim.reported`."""
    name = getattr(fact, "type", None)
    assert isinstance(name, str)
    return name


def encode(fact: AnyFact) -> bytes:
    """The fact as strict JSON in UTF-8.

    Raises Refused for what could be written but never be read again, which would stop every reader: text with lone
    surrogates, and documents nested too deeply. Who takes in foreign text or JSON deals with both before.
    """
    try:
        body = _ADAPTER.dump_json(fact)
    except (PydanticSerializationError, RecursionError) as error:
        raise Refused(f"this {fact_type(fact)} cannot be stored: {error}") from error
    if isinstance(fact, _WITH_FOREIGN_JSON):
        try:
            _ADAPTER.validate_json(body)
        except ValidationError as error:
            raise Refused(
                f"this {fact_type(fact)} cannot be stored: its JSON is nested too deeply. "
                "Send it with fewer than 100 levels"
            ) from error
    return body


def decode(body: bytes, *, version: int = CURRENT_VERSION) -> AnyFact:
    """The fact in `body`, brought up to today's version.

    Raises UnknownFactVersion for a version from the future, Corrupt for anything that is no fact.
    """
    if version > CURRENT_VERSION:
        raise UnknownFactVersion(
            f"a fact of schema version {version} was met, but this Cascade knows versions up to "
            f"{CURRENT_VERSION}. Upgrade this service before it reads on."
        )
    try:
        if version < CURRENT_VERSION:
            return _ADAPTER.validate_json(upcast(body, version))
        return _ADAPTER.validate_json(body)
    except ValidationError as error:
        raise Corrupt(f"a stored fact cannot be read: {error}") from error
