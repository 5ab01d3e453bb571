"""Every wire model by name, and what its fields mean: for reference pages and the test against the app's document."""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping

from cascade_client import wire
from cascade_client.wire.base import Body


def models() -> dict[str, type[Body]]:
    """The models of `cascade_client.wire` by their names, which are the API's."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.iter_modules(wire.__path__, f"{wire.__name__}.")
    ]
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Body) and value is not Body
    }


def described_fields() -> Mapping[str, Mapping[str, str]]:
    """By model and field, what the field means."""
    return {
        name: {field: info.description for field, info in model.model_fields.items() if info.description}
        for name, model in models().items()
    }
