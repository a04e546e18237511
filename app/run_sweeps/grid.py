"""The grid of a request: the settings of the sweep, and a run request for each cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from pydantic import ValidationError

from app.kit import limits
from app.kit.validation import from_model
from app.problems import Problem, ProblemItem, json_pointer, unprocessable
from app.run_sweeps.schemas import FIXED, MAX_CELLS, MAX_SWEPT, RunSweepRequest, SweepTerms
from app.runs.schemas import RunRequest
from app.sweeps.cells import Swept, Value, invalid, lists_in, read_cell, read_values


@dataclass(frozen=True)
class Cell:
    """A cell of the grid: one value of each swept field, and the request for a run with these values."""

    values: tuple[Value, ...]
    request: RunRequest


@dataclass(frozen=True)
class Grid:
    """A parsed request, before any calibration."""

    terms: SweepTerms
    swept: tuple[Swept, ...]
    cells: tuple[Cell, ...]

    @property
    def fields(self) -> list[str]:
        return [".".join(each.path) for each in self.swept]

    def in_cell(self, number: int, problem: Problem) -> Problem:
        """Return the refusal of one cell as a refusal of the sweep, which names the cell's values and points at them.

        A 404 stays unchanged, since it is the same for all cells.
        """
        if problem.status == 404:
            return problem
        cell = self.cells[number]
        errors = [item.model_copy(update={"pointer": self._in_lists(item.pointer, cell)}) for item in problem.errors]
        words = ", ".join(f"{field} {value}" for field, value in zip(self.fields, cell.values, strict=True))
        return Problem(
            problem.status,
            problem.code,
            f"In the cell of {words}: {problem.detail}",
            errors=errors,
            members=problem.members,
            headers=problem.headers,
        )

    def _in_lists(self, pointer: str, cell: Cell) -> str:
        return _in_lists(pointer, self.swept, cell.values)


def read_grid(request: RunSweepRequest) -> Grid:
    """Read the grid of a request. In the order of cells, the last field changes fastest.

    Raises:
        Problem: 422 with the faults of the sweep, else with the faults of all its cells, each at the value that causes
            it.
    """
    body = request.root
    own = {name: value for name, value in body.items() if name in SweepTerms.model_fields}
    run = {name: value for name, value in body.items() if name not in own}
    terms = _read_terms(own)
    _check_fields(run)
    swept = _swept(run)
    cells: list[Cell] = []
    faults: dict[tuple[str, str], ProblemItem] = {}
    for values in product(*(each.values for each in swept)):
        choice = {each.path: value for each, value in zip(swept, values, strict=True)}
        try:
            cells.append(Cell(values, read_cell(RunRequest, run, choice)))
        except Problem as problem:
            for item in problem.errors:
                pointer = _in_lists(item.pointer, swept, values)
                faults.setdefault((pointer, item.code), item.model_copy(update={"pointer": pointer}))
    if faults:
        items = list(faults.values())[: limits.LISTED_FAULTS]
        detail = items[0].detail if len(items) == 1 else f"The request has {len(faults)} faults; `errors` lists them."
        raise Problem(422, "invalid_request", detail, errors=items)
    return Grid(terms, swept, tuple(cells))


def _read_terms(own: Mapping[str, Any]) -> SweepTerms:
    try:
        return SweepTerms.model_validate(own)
    except ValidationError as error:
        raise from_model(error, SweepTerms, own) from None


def _check_fields(run: Mapping[str, Any]) -> None:
    if run.get("dataset") is not None:
        detail = "the runs of a sweep train on a registered data set: make one with POST /v1/datasets"
        raise unprocessable("unsupported", detail, "dataset")
    if run.get("expected_plan_hash") is not None:
        detail = "a sweep has one hash for the plans of all cells: give expected_sweep_hash"
        raise unprocessable("unsupported", detail, "expected_plan_hash")
    if run.get("dataset_id") is None:
        raise unprocessable("missing", "a sweep needs a dataset_id: what its runs train on", "dataset_id")
    for name in FIXED:
        if isinstance(run.get(name), list):
            raise unprocessable("unsupported", f"{name} must be the same in all runs of a sweep: give one value", name)


def _swept(run: Mapping[str, Any]) -> tuple[Swept, ...]:
    # Lists inside the model are not swept: they are the widths of its layers.
    found = list(lists_in(run, leaving=FIXED))
    if not found:
        raise unprocessable(
            "missing",
            ("one or two fields of the run request must be lists, with the values of the grid"),
            "hyperparameters",
        )
    if len(found) > MAX_SWEPT:
        places = ", ".join(".".join(path) for path, _ in found[:5])
        detail = f"at most {MAX_SWEPT} fields can be swept at a time; there are lists at {places}"
        raise unprocessable("overdetermined", detail, *found[MAX_SWEPT][0])
    swept = tuple(read_values(path, values, MAX_CELLS) for path, values in found)
    for each in swept:
        for place, value in enumerate(each.values):
            if value in each.values[:place]:
                detail = "each value may occur once in its list: a second run of the same cell would be charged, too"
                raise invalid("invalid_value", detail, *each.path, str(place))
    size = math.prod(len(each.values) for each in swept)
    if size > MAX_CELLS:
        detail = f"a sweep may have at most {MAX_CELLS} cells, and this one would have {size}"
        raise invalid("too_long", detail, *swept[-1].path)
    return swept


def _in_lists(pointer: str, swept: tuple[Swept, ...], values: tuple[Value, ...]) -> str:
    """Translate a pointer in a cell's request to the sweep's request. A pointer to a swept field becomes a pointer to
    the value in its list."""
    for each, value in zip(swept, values, strict=True):
        place = json_pointer(each.path)
        if pointer == place or pointer.startswith(f"{place}/"):
            return f"{place}/{each.values.index(value)}{pointer[len(place) :]}"
    return pointer
