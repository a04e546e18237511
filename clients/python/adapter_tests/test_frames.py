"""Tables of pandas and Polars, as rows that a model predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import polars
import pytest
from test_onnx import COLUMNS, model_of, rows_for

MODEL = model_of("softmax_regression", COLUMNS["mixed"])
ROWS = rows_for(COLUMNS["mixed"], rows=50)


@pytest.mark.parametrize("table", [pandas.DataFrame, polars.DataFrame])
def test_a_table_is_read_by_its_names(table: Any) -> None:
    turned = table(dict(reversed(ROWS.items())))
    assert np.array_equal(MODEL.predict_proba(turned), MODEL.predict_proba(ROWS))


def test_types_of_pandas_are_read() -> None:
    frame = pandas.DataFrame(ROWS)
    frame["color"], frame["size"] = frame["color"].astype("category"), frame["size"].astype("string")
    frame["fixed"], frame["a"] = frame["fixed"].astype("float32"), frame["a"].round().astype("Int64")
    expected = MODEL.predict_proba(ROWS | {"a": np.round(ROWS["a"]), "fixed": ROWS["fixed"].astype(np.float32)})
    assert np.array_equal(MODEL.predict_proba(frame), expected)


@pytest.mark.parametrize("table", [pandas.DataFrame, polars.DataFrame])
def test_faults_are_told_by_column_and_row(table: Any) -> None:
    with pytest.raises(ValueError, match="the table lacks the columns 'size'"):
        MODEL.predict(table({name: cells for name, cells in ROWS.items() if name != "size"}))
    with pytest.raises(ValueError, match="no columns 'z'"):
        MODEL.predict(table(ROWS | {"z": ROWS["a"]}))
    with pytest.raises(ValueError, match="'size' has none of its declared categories in row 1"):
        MODEL.predict(table(ROWS | {"size": ["s", "?"] + ["m"] * 48}))
    for missing in ([1.0, None] + [2.0] * 48, [1.0, float("nan")] + [2.0] * 48):
        with pytest.raises(ValueError, match=r"'a' .* row 1"):
            MODEL.predict(table(ROWS | {"a": missing}))


def test_a_missing_integer_and_repeated_names_are_refused() -> None:
    frame = pandas.DataFrame(ROWS)
    frame["a"] = pandas.array([1, None] + [2] * 48, dtype="Int64")
    with pytest.raises(ValueError, match="'a' has NaN or infinity in row 1"):
        MODEL.predict(frame)
    with pytest.raises(ValueError, match="columns 'a' more than once"):
        MODEL.predict(pandas.concat([frame, frame[["a"]]], axis=1))
