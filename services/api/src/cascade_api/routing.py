"""What the framework's routes say of a path: which methods it takes."""

from collections.abc import Sequence

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope


def methods_taken(scope: Scope, routes: Sequence[BaseRoute]) -> list[str]:
    """The methods that some of `routes` take at the request's path, by name; none where no route serves it.

    The request's own method is not among them: a route that takes it would have answered.
    """
    found: set[str] = set()
    for route in routes:
        match, _ = route.matches(scope)
        if match is Match.PARTIAL and isinstance(route, Route):
            found |= (route.methods or set()) - {"HEAD"}
    return sorted(found)
