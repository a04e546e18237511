"""From a sweep to its cells: the one field that takes a list, and a calibrate request for each of its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from app.algorithms.calibrate import CalibrateRequest
from app.kit.validation import from_validation
from app.problems import Problem, ProblemItem, json_pointer, unprocessable
from app.sweeps.schemas import MAX_CELLS

Path = tuple[str, ...]
Value = float | int | str


@dataclass(frozen=True)
class Swept:
    """The field that takes a list.

    Attributes:
        path: Where it is in the request.
        values: The list.
    """

    path: Path
    values: tuple[Value, ...]


def find_swept(body: Mapping[str, Any]) -> Swept:
    """The one field of the request that takes a list.

    Raises:
        Problem: 422 where there is none or more than one, or the list is empty, too long, or not of plain values.
    """
    found = list(_lists(body, ()))
    if not found:
        raise unprocessable("missing", "exactly one field of the calibrate request takes a list: the values to sweep")
    if len(found) > 1:
        places = " and ".join(".".join(path) for path, _ in found[:5])
        raise unprocessable("overdetermined", f"one field is swept at a time; lists are at {places}", *found[1][0])
    path, values = found[0]
    if not values:
        raise _invalid("too_short", "a sweep has one value at least", *path)
    if len(values) > MAX_CELLS:
        raise _invalid("too_long", f"a sweep has {MAX_CELLS} values at most", *path)
    for index, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, float | int | str):
            raise _invalid("wrong_type", "a swept value is a number or a word", *path, index)
    return Swept(path, tuple(values))


def read_cell(body: Mapping[str, Any], swept: Swept, value: Value) -> CalibrateRequest:
    """The calibrate request with ``value`` in place of the list.

    Raises:
        Problem: 422 with every fault that the schema finds.
    """
    cell = _replaced(body, swept.path, value)
    try:
        return CalibrateRequest.model_validate(cell)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        raise from_validation(faults, cell) from None


def _lists(value: Any, path: Path) -> Iterator[tuple[Path, list[Any]]]:
    if isinstance(value, list):
        yield path, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _lists(item, (*path, name))


def _replaced(body: Mapping[str, Any], path: Path, value: Value) -> dict[str, Any]:
    first, *rest = path
    return {**body, first: _replaced(body[first], tuple(rest), value) if rest else value}


def _invalid(code: str, detail: str, *pointer: str | int) -> Problem:
    return Problem(
        422, "invalid_request", detail, errors=[ProblemItem(pointer=json_pointer(pointer), code=code, detail=detail)]
    )
