"""Refuses query parameters that a call does not have. Otherwise, a misspelt filter would filter nothing."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from accounting.near_names import hint
from app.kit import limits
from app.problems import Problem, ProblemItem, json_pointer


async def refuse_unknown_parameters(request: Request) -> None:
    """Answer 422 to a query parameter that neither the endpoint nor its dependencies declare."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute), "a dependency of routers"
    if not request.query_params:
        return
    declared = set(_declared(route.dependant))
    detail = "There is no query parameter of this name here."
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in declared]
    items = [
        ProblemItem(
            pointer=json_pointer(("query", name))[: limits.POINTER_LENGTH],
            code="unknown_field",
            detail=detail + hint(name, declared),
        )
        for name in unknown[: limits.LISTED_FAULTS]
    ]
    if items:
        raise Problem(422, "invalid_request", items[0].detail if len(unknown) == 1 else detail, errors=items)


def _declared(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from (each.alias or name for name, each in model.model_fields.items())
        else:
            yield field.alias
    for part in dependant.dependencies:
        yield from _declared(part)


#: The dependency for `APIRouter(dependencies=[...])`.
KnownParametersOnly = Depends(refuse_unknown_parameters)
