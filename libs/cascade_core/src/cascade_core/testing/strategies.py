"""Hypothesis strategies for every fact, drawn from the facts' own fields so that a new field is covered at once."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, get_args

from annotated_types import BaseMetadata
from hypothesis import strategies as st
from pydantic import BaseModel

from cascade_core.events_page import fact_classes

# Any text that UTF-8 can hold, line separators, NUL and unassigned code points included.
texts = st.text(alphabet=st.characters(codec="utf-8"), max_size=20)
floats = st.floats(allow_nan=False, allow_infinity=False)
times = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - `timezones` makes it aware
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(texts, json_values, max_size=4)


def ids(prefix: str) -> st.SearchStrategy[str]:
    """Generated ids of one kind."""
    return st.from_regex(rf"{prefix}-[a-z0-9][a-z0-9-]{{0,20}}", fullmatch=True)


# By the field's name, where its type alone does not say what may be in it.
_FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "run_id": ids("run"),
    "sim_id": ids("sim"),
    "scenario_id": ids("scn"),
    "occurred_at": times,
    "heartbeat_seen_at": st.none() | times,
    "last_heartbeat_at": st.none() | times,
    "started_at": st.none() | times,
    "finished_at": st.none() | times,
    "metadata": st.none() | documents,
    "compare": st.none() | documents,
    "body": documents,
    "result": documents,
    "simulated": documents,
    "stats": st.dictionaries(texts, floats | texts, max_size=4),
}


def models(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Instances of `model`, each field drawn by its name or its type."""
    fields = {}
    for name, field in model.model_fields.items():
        bounds = tuple(item for item in field.metadata if isinstance(item, BaseMetadata))
        fields[name] = _FIELDS[name] if name in _FIELDS else _of(field.annotation, bounds)
    return st.builds(model.model_validate, st.fixed_dictionaries(fields))


def _of(annotation: Any, bounds: tuple[object, ...] = ()) -> st.SearchStrategy[Any]:
    if annotation is str:
        return texts
    if annotation is float:
        return floats
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return models(annotation)
    if getattr(annotation, "__origin__", None) is list:
        return st.lists(_of(get_args(annotation)[0]), max_size=3)
    if type(None) in get_args(annotation):
        return st.one_of(*(st.none() if part is type(None) else _of(part) for part in get_args(annotation)))
    bounded: Any = Annotated[annotation, *bounds] if bounds else annotation
    return st.from_type(bounded)


def facts() -> st.SearchStrategy[Any]:
    """Any fact."""
    return st.one_of(*(models(one) for one in fact_classes()))
