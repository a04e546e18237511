from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from app.datasets.inline import load_inline
from app.datasets.schemas import InlineDataset
from app.problems import Problem
from tests.app.datasets.declarations import COLUMNS, OUTCOME


def inline(rows: list[Any], **changes: Any) -> InlineDataset:
    columns = [column.model_dump() for column in COLUMNS]
    declared = {"public": True, "columns": columns, "label": "outcome", "rows": rows}
    return InlineDataset.model_validate(declared | changes)


def test_rows_become_arrays_in_declared_order_and_bounds() -> None:
    loaded = load_inline(inline([[40, "north", "no"], [500.5, "south", "yes"]]))
    assert loaded.features.tolist() == [[40.0, 0.0], [120.0, 1.0]]
    assert loaded.labels.tolist() == [0, 1]
    assert loaded.labels.dtype == np.int64
    assert (loaded.id, loaded.public, loaded.declared_size) == (None, True, 2)
    assert [column.name for column in loaded.columns] == ["age", "region"]
    assert loaded.label == OUTCOME


def test_a_number_as_label_stays_a_number() -> None:
    loaded = load_inline(inline([[40, "north", "no"]], label="age"))
    assert loaded.labels.tolist() == [40.0]
    assert loaded.features.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("row", "code", "pointer"),
    [
        ([40, "north"], "ragged_row", "/dataset/rows/1"),
        ([40, "north", "no", 1], "ragged_row", "/dataset/rows/1"),
        (["40", "north", "no"], "not_a_number", "/dataset/rows/1/0"),
        ([40, "8675309", "no"], "unknown_category", "/dataset/rows/1/1"),
        ([40, "north", 8675309], "unknown_category", "/dataset/rows/1/2"),
    ],
)
def test_cells_at_fault_are_pointed_at(row: list[Any], code: str, pointer: str) -> None:
    with pytest.raises(Problem) as caught:
        load_inline(inline([[1, "north", "no"], row]), "dataset")
    (item,) = caught.value.errors
    assert (item.code, item.pointer) == (code, pointer)
    assert "8675309" not in repr(caught.value.body("id"))


REFUSED: dict[str, dict[str, Any]] = {
    "private": {"public": False},
    "no_rows": {"rows": []},
    "boolean": {"rows": [[True, "north", "no"]]},
    "null": {"rows": [[None, "north", "no"]]},
    "nan": {"rows": [[float("nan"), "north", "no"]]},
    "infinity": {"rows": [[float("inf"), "north", "no"]]},
    "long_text": {"rows": [[1, "x" * 201, "no"]]},
    "many_rows": {"rows": [[1, "north", "no"]] * 100_001},
    "unknown_label": {"label": "income"},
    "repeated_column": {"columns": [OUTCOME.model_dump()] * 2},
    "unknown_field": {"declared_size": 5},
}


@pytest.mark.parametrize("fault", REFUSED)
def test_what_the_schema_refuses(fault: str) -> None:
    with pytest.raises(ValidationError):
        inline(**{"rows": [[1, "north", "no"]], **REFUSED[fault]})


def test_inline_data_must_say_that_they_are_public() -> None:
    with pytest.raises(ValidationError, match="public"):
        InlineDataset.model_validate(
            {"columns": [c.model_dump() for c in COLUMNS], "label": "age", "rows": [[1, "north", "no"]]}
        )
