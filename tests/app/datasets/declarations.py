"""Declarations and files that the tests of data sets share."""

from __future__ import annotations

from typing import Any

from app.datasets.columns import CategoryColumn, Column, NumberColumn

AGE = NumberColumn(name="age", type="number", lower=0.0, upper=120.0)
REGION = CategoryColumn(name="region", type="category", categories=["north", "south"])
OUTCOME = CategoryColumn(name="outcome", type="category", categories=["no", "yes"])
COLUMNS: list[Column] = [AGE, REGION, OUTCOME]

CSV = b"age,region,outcome\n40,north,no\n50.5,south,yes\n"


def metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of a public data set over `COLUMNS`; a value of None leaves the field out."""
    declared = {
        "name": "study",
        "public": True,
        "declared_size": 100,
        "columns": [column.model_dump() for column in COLUMNS],
        "label": "outcome",
    }
    return {name: value for name, value in {**declared, **changes}.items() if value is not None}


def private_metadata(budget_id: str, **changes: Any) -> dict[str, Any]:
    return metadata(public=False, budget_id=budget_id, **changes)
