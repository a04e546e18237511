"""The form that tries a released model on one row: a field for each declared feature, and what is predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from app.dashboard.fields import Field, FilledForm

#: The most features for which the form is offered: nobody would fill in more.
MOST_FEATURES = 40
#: The most numbers of a model that is read for its page; larger ones are not loaded just to be looked at.
MOST_NUMBERS = 50_000


def can_be_tried(run: Mapping[str, Any]) -> bool:
    """Return whether the run has a model that is small enough and makes predictions."""
    if run["state"] != "succeeded" or run["result"] is None or run["model"]["kind"] == "mean":
        return False
    numbers: int = sum(math.prod(shape) for shape in run["result"]["parameters"].values())
    return numbers <= MOST_NUMBERS


def form_of(model: Mapping[str, Any], given: Mapping[str, str]) -> FilledForm | None:
    """Return the form with what was typed; it begins with the middle of each range. None if there are too many
    features."""
    features = model["features"]
    if len(features) > MOST_FEATURES:
        return None
    return FilledForm(sections=(("One row", tuple(_field(place, each, given) for place, each in enumerate(features))),))


def _field(place: int, column: Mapping[str, Any], given: Mapping[str, str]) -> Field:
    name, pointers = f"feature-{place}", (f"/rows/0/{place}",)
    if column["type"] == "category":
        value = given.get(name, column["categories"][0])
        choices = (("", tuple((each, each) for each in column["categories"])),)
        return Field(name, column["name"], value, choices=choices, pointers=pointers)
    lower, upper = column["lower"], column["upper"]
    value = given.get(name, f"{lower / 2.0 + upper / 2.0:.6g}")
    return Field(name, column["name"], value, f"{lower:g} to {upper:g}", pointers=pointers)


def body_of(model: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that the fields make. Text that is not a number is sent unchanged, and the service says what
    is wrong."""
    cells = [
        typed if column["type"] == "category" else _number(typed)
        for column, typed in (
            (column, given.get(f"feature-{place}", "")) for place, column in enumerate(model["features"])
        )
    ]
    return {"rows": [cells]}


def _number(typed: str) -> float | str:
    try:
        number = float(typed)
    except ValueError:
        return typed
    return number if math.isfinite(number) else typed
