"""Declared columns as people type them: on each line a name and the values that the column may have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(r"(\S+)\s+to\s+(\S+)")
#: Bounds may also be written as two numbers joined by "-" or "..". A category with that text as its only value would be
#: useless, so the meaning is clear.
_SHORT_RANGE = re.compile(rf"({_NUMBER})\s*(?:-|\.\.)\s*({_NUMBER})")


def columns_in(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return the columns that lines declare, in the form of a data set's metadata.

    Faults of a line are not corrected here; the schema of the metadata reports them.

    Args:
        lines: Lines such as ``age: 0 to 120`` or ``age: 0-120`` for a number and its bounds, and ``smoker: no, yes``
            for a text and its values. Empty lines are ignored.

    >>> columns_in(["age: 0 to 120", "", "smoker: no, yes"])
    [{'name': 'age', 'type': 'number', 'lower': 0.0, 'upper': 120.0}, {'name': 'smoker', 'type': 'category', \
'categories': ['no', 'yes']}]

    >>> [(each["lower"], each["upper"]) for each in columns_in(["a: 0-120", "b: -1 - 1", "c: 0..0.5", "d: -2--1"])]
    [(0.0, 120.0), (-1.0, 1.0), (0.0, 0.5), (-2.0, -1.0)]
    """
    return [_column(line) for line in lines if line.strip()]


def _column(line: str) -> dict[str, Any]:
    name, _, values = (part.strip() for part in line.partition(":"))
    bounds = _RANGE.fullmatch(values) or _SHORT_RANGE.fullmatch(values)
    if bounds is not None:
        return {"name": name, "type": "number", "lower": _number(bounds[1]), "upper": _number(bounds[2])}
    return {
        "name": name,
        "type": "category",
        "categories": [each.strip() for each in values.split(",") if each.strip()],
    }


def _number(typed: str) -> float | str:
    try:
        return float(typed)
    except ValueError:
        return typed
