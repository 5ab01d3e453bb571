"""The page of all facts, `docs/events.md`, made from their classes so that it cannot say anything else.

`uv run python -m cascade_core.events_page > docs/events.md` writes it again; a test fails while it is out of date.
"""

import ast
import inspect
import re
import textwrap
import types
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt
from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from cascade_core import subjects
from cascade_core.fact_base import Fact
from cascade_core.facts import AnyFact
from cascade_core.ids import trace_token
from cascade_core.sims.facts import SimReported
from cascade_core.upcasting import CURRENT_VERSION
from cascade_core.writers import WRITERS

_INTRODUCTION = f"""\
<!-- Made by `uv run python -m cascade_core.events_page > docs/events.md`. Change the classes, not this file. -->

# Events

Everything that happens in Cascade is a fact in one JetStream stream, `{subjects.STREAM}`, in one total order. Facts are
never changed. Every service folds the same facts with the same functions (`cascade_core`), so all agree on every trace,
run and sim. Tokens in angle brackets stand for an id; a trace's token is its id in base64url, or a marked hash of a
very long one.

Each message holds a fact as JSON, in schema version {CURRENT_VERSION}, and these headers:

| header | holds |
|---|---|
| `Nats-Msg-Id` | The event id. Deterministic where a retry must not be stored twice. |
| `Cascade-Version` | The schema version of the body. |
| `traceparent` | W3C trace context of the request that caused the fact, where there is one. |
| `Cascade-Claim` | The name of an object in `{subjects.CLAIMS}` that holds the body, where it does not fit a message. |

Every fact has an `occurred_at`: its writer's clock, UTC. It drives timeouts and shown times, never the order.
The bundled samples' facts are written by `cascade serve` itself.
"""


def render() -> str:
    """The whole page, in Markdown."""
    classes = fact_classes()
    parts = [_INTRODUCTION, _contents(classes)]
    parts += [_fact_section(one) for one in classes]
    values = _value_classes(classes)
    parts.append("## Values inside facts\n")
    parts += [f"### {one.__name__}\n\n{_doc(one)}\n\n{_fields_table(one)}" for one in values]
    return "\n".join(parts)


def fact_classes() -> list[type[Fact]]:
    """Every class of the union, in the order in which it names them."""
    found: list[type[Fact]] = []

    def walk(annotation: object) -> None:
        if isinstance(annotation, type) and issubclass(annotation, Fact):
            found.append(annotation)
        for part in get_args(annotation):
            walk(part)

    walk(AnyFact)
    return found


def type_name(fact_class: type[Fact]) -> str:
    """The fact's type name, such as `sim.reported`."""
    return str(fact_class.model_fields["type"].default)


def subject_pattern(fact_class: type[Fact]) -> str:
    """The fact's subject with the ids left open."""
    ids: dict[str, Any] = {
        "trace_id": "trace",
        "run_id": "<run>",
        "sim_id": "<sim>",
        "scenario_id": "<scenario>",
    }
    example: Any = fact_class.model_construct(None, **ids)
    return subjects.subject_of(example).replace(trace_token("trace"), "<trace token>")


def _contents(classes: list[type[Fact]]) -> str:
    rows = [
        f"| [`{type_name(one)}`](#{type_name(one).replace('.', '')}) | {WRITERS[type_name(one)]} "
        f"| `{subject_pattern(one)}` |"
        for one in classes
    ]
    return "\n".join(["| fact | written by | subject |", "|---|---|---|", *rows, ""])


def _fact_section(fact_class: type[Fact]) -> str:
    name = type_name(fact_class)
    lines = [
        f"## {name}",
        "",
        _doc(fact_class),
        "",
        f"Written by {WRITERS[name]} to `{subject_pattern(fact_class)}`.",
    ]
    if fact_class is SimReported:
        beats = subjects.beats_of("<run>", "<sim>")
        lines.append(f"A heartbeat that only repeats the sim's state goes to `{beats}`, which is purged.")
    return "\n".join([*lines, "", _fields_table(fact_class)])


def _value_classes(classes: Iterable[type[BaseModel]]) -> list[type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}

    def walk(annotation: object) -> None:
        if (
            isinstance(annotation, type)
            and issubclass(annotation, BaseModel)
            and annotation.__name__ not in found
        ):
            found[annotation.__name__] = annotation
            fields(annotation)
        for part in get_args(annotation):
            walk(part)

    def fields(model: type[BaseModel]) -> None:
        for field in model.model_fields.values():
            walk(field.annotation)

    for one in classes:
        fields(one)
    return [found[name] for name in sorted(found)]


def _fields_table(model: type[BaseModel]) -> str:
    docs = _attribute_docs(model)
    rows = [
        f"| `{name}` | {_type_text(field.annotation, field.metadata)} | {_cell(docs.get(name, ''), field)} |"
        for name, field in model.model_fields.items()
        if name != "type" and not (name == "occurred_at" and issubclass(model, Fact))
    ]
    return "\n".join(["| field | type | |", "|---|---|---|", *rows, ""])


def _cell(doc: str, field: FieldInfo) -> str:
    if field.is_required():
        return doc
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is None or isinstance(default, BaseModel) or default in ([], {}):
        return doc
    shown = f"Default `{str(default).lower() if isinstance(default, bool) else default}`."
    return f"{doc} {shown}".strip()


def _doc(model: type[BaseModel]) -> str:
    return re.sub(r"\bNone\b", "Null", " ".join(inspect.cleandoc(model.__doc__ or "").split()))


def _attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """The string under each attribute, of the class and those it inherits from."""
    docs: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if not issubclass(one, BaseModel) or one is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(one))).body[0]
        assert isinstance(body, ast.ClassDef)
        for attribute, below in zip(body.body, body.body[1:], strict=False):
            match attribute, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs[name] = re.sub(r"\bNone\b", "null", " ".join(text.split()))
                case _:
                    pass
    return docs


_NAMES: Mapping[object, str] = {
    str: "text", int: "integer", float: "number", bool: "true or false", datetime: "time", type(None): "null",
}  # fmt: skip
_SIGNS: Mapping[type, str] = {Ge: "at least", Gt: "above", Le: "at most", Lt: "below"}


def _type_text(annotation: Any, metadata: Iterable[object] = ()) -> str:
    if annotation is JsonValue:
        return "any JSON"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        text = _type_text(arguments[0], arguments[1:])
    elif origin in (Union, types.UnionType):
        text = " or ".join(_type_text(part) for part in arguments)
    elif origin is Literal:
        text = ", ".join(f"`{part.value if isinstance(part, Enum) else part}`" for part in arguments)
    elif origin is list:
        text = f"list of {_type_text(arguments[0])}"
    elif origin is tuple:
        text = f"{len(arguments)} × {_type_text(arguments[0])}"
    elif origin is dict:
        text = f"object of {_type_text(arguments[1])}"
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        text = ", ".join(f"`{part.value}`" for part in annotation)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        text = f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    else:
        text = _NAMES.get(annotation, "time" if "Aware" in str(annotation) else str(annotation))
    bounds = [
        f"{_SIGNS[type(item)]} {_limits(item)[0]}"
        for item in metadata
        if isinstance(item, BaseMetadata) and type(item) in _SIGNS
    ]
    return f"{text}, {' and '.join(bounds)}" if bounds else text


def _limits(item: object) -> list[object]:
    return [getattr(item, name) for name in ("ge", "gt", "le", "lt") if hasattr(item, name)]


if __name__ == "__main__":
    print(render(), end="")
