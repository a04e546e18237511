"""The cells of a sweep: the fields that have lists, and an ordinary request for each choice of their values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from app.kit.validation import from_model
from app.problems import Problem, ProblemItem, json_pointer, unprocessable
from app.sweeps.schemas import MAX_CELLS

Path = tuple[str, ...]
Value = float | int | str
Request = TypeVar("Request", bound=BaseModel)


@dataclass(frozen=True)
class Swept:
    """A field that takes a list.

    Attributes:
        path: The field's path in the request.
        values: The values in the list.
    """

    path: Path
    values: tuple[Value, ...]


def find_swept(body: Mapping[str, Any]) -> Swept:
    """Return the only field of the request that takes a list.

    Raises:
        Problem: 422 if no field or several fields take lists, or if the list is empty, too long, or not of plain
            values.
    """
    found = list(lists_in(body))
    if not found:
        raise unprocessable(
            "missing", ("exactly one field of the calibrate request must be a list, with the values to sweep")
        )
    if len(found) > 1:
        places = " and ".join(".".join(path) for path, _ in found[:5])
        raise unprocessable(
            "overdetermined", f"only one field can be swept at a time; there are lists at {places}", *found[1][0]
        )
    path, values = found[0]
    return read_values(path, values)


def lists_in(body: Mapping[str, Any], leaving: Collection[str] = ()) -> Iterator[tuple[Path, list[Any]]]:
    """Return the fields that take lists, with their places. ``leaving`` names top-level fields that are skipped."""
    return _lists({name: value for name, value in body.items() if name not in leaving}, ())


def read_values(path: Path, values: list[Any], most: int = MAX_CELLS) -> Swept:
    """Read a field that takes a list.

    Raises:
        Problem: 422 if the list is empty, longer than ``most``, or not of plain values.
    """
    if not values:
        raise invalid("too_short", "a sweep needs at least one value", *path)
    if len(values) > most:
        raise invalid("too_long", f"a sweep has at most {most} values", *path)
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, float | int | str):
            raise invalid("wrong_type", "a swept value must be a number or a word", *path, index)
    return Swept(path, tuple(values))


def read_cell(schema: type[Request], body: Mapping[str, Any], choice: Mapping[Path, Value]) -> Request:
    """Read the request of one cell, with a chosen value in place of each list.

    Raises:
        Problem: 422 with every fault that the schema finds.
    """
    cell = dict(body)
    for path, value in choice.items():
        cell = _replaced(cell, path, value)
    try:
        return schema.model_validate(cell)
    except ValidationError as error:
        raise from_model(error, schema, cell) from None


def _lists(value: Any, path: Path) -> Iterator[tuple[Path, list[Any]]]:
    if isinstance(value, list):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _lists(item, (*path, name))


def _replaced(body: Mapping[str, Any], path: Path, value: Value) -> dict[str, Any]:
    first, *rest = path
    return {**body, first: _replaced(body[first], tuple(rest), value) if rest else value}


def invalid(code: str, detail: str, *pointer: str | int) -> Problem:
    """Return a 422 in the form of the schemas' own faults."""
    return Problem(
        422, "invalid_request", detail, errors=[ProblemItem(pointer=json_pointer(pointer), code=code, detail=detail)]
    )
