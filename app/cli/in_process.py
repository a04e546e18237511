"""Answers requests without a server. It reads them as the service does, and answers by the same functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from app.cli.refusals import refuse_problem
from app.cli.requests import Asked
from app.context import Context
from app.db.database import Database
from app.kit import collector
from app.kit.process_pool import ProcessPool
from app.kit.validation import from_model
from app.problems import Problem
from app.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")
_Request = TypeVar("_Request", bound=BaseModel)


class _Here(ProcessPool):
    """Runs jobs in this process. Nobody else waits for it, and the user can press Ctrl+C."""

    def run_within(self, seconds: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)


def answer(
    schema: type[_Request],
    asked: Asked,
    respond: Callable[[Context, _Request], BaseModel],
    *,
    exclude_unset: bool = False,
    exclude_none: bool = False,
) -> str:
    """Return the JSON text of the answer, as the endpoint writes it.

    Args:
        schema: The schema of the request.
        asked: The request.
        respond: The function that answers the endpoint's requests.
        exclude_unset, exclude_none: Which values the endpoint leaves out of the answer.
    """
    collector.resume()
    # No setting matters here, and the database in memory is never opened.
    context = Context(
        Settings.model_construct(),
        Database("sqlite://"),
        processes=_Here(1, 20.0, 2**31),
        audit_processes=_Here(1, 120.0, 2**32),
    )
    try:
        found = respond(context, _read(schema, asked.body))
    except Problem as problem:
        refuse_problem(problem, asked.places)
    return found.model_dump_json(by_alias=True, exclude_unset=exclude_unset, exclude_none=exclude_none)


def _read(schema: type[_Request], body: Mapping[str, Any]) -> _Request:
    try:
        return TypeAdapter(schema).validate_python(body, from_attributes=True)
    except ValidationError as error:
        raise from_model(error, schema, body) from None
