"""Scaling by declared bounds: row by row, within one, silent."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.errors import InvalidValue
from trainer.scaling import CategoryColumn, Column, NumberColumn, feature_norm_bound, num_features, scale_features

COLUMNS: list[Column] = [
    NumberColumn(0.0, 10.0),
    NumberColumn(-3.0, -3.0),
    CategoryColumn(3),
    NumberColumn(-1e300, 1e300),
]
ANY_NUMBER = st.floats(allow_nan=True, allow_infinity=True)


def test_bounds_map_to_one_and_beyond_is_clipped() -> None:
    values: list[list[float]] = [
        [0.0, 10.0, 5.0, 99.0, -1e308],
        [-3.0, 7.0, -3.0, 0.0, 1.0],
        [0, 1, 2, 3, -1],
        [0.0, 1e300, -1e300, 1.0, 0.0],
    ]
    scaled = scale_features(COLUMNS, values)
    assert scaled.shape == (5, num_features(COLUMNS)) == (5, 6)
    assert scaled[:, 0].tolist() == [-1.0, 1.0, 0.0, 1.0, -1.0]
    assert scaled[:, 1].tolist() == [0.0] * 5
    assert scaled[:, 2:5].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert scaled[:, 5].tolist() == [0.0, 1.0, -1.0, 1e-300, 0.0]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(ANY_NUMBER, ANY_NUMBER, ANY_NUMBER, ANY_NUMBER), min_size=1, max_size=5))
def test_scaled_values_are_within_one(rows: list[tuple[float, float, float, float]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled = scale_features(COLUMNS, list(zip(*rows, strict=True)))
    finite = np.all(np.isfinite(rows), axis=1)
    assert np.all(np.isnan(scaled[~finite]))
    assert np.all(np.abs(scaled[finite]) <= 1.0)


@settings(max_examples=100, deadline=None)
@given(st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 4), st.integers(-1, 3))
def test_scaled_rows_are_within_the_norm_bound(row: tuple[float, ...], category: int) -> None:
    scaled = scale_features(COLUMNS, [[row[0]], [row[1]], [category], [row[3]]])
    assert np.linalg.norm(scaled) <= feature_norm_bound(COLUMNS)
    assert feature_norm_bound(COLUMNS) == 2.0


@pytest.mark.parametrize("replacement", [np.nan, np.inf, -1e308, 1e308, 4.0])
def test_scaling_is_row_by_row(replacement: float) -> None:
    rng = np.random.default_rng(9)
    values = [
        rng.uniform(-5, 15, 20),
        rng.uniform(-5, 5, 20),
        rng.integers(0, 3, 20).astype(float),
        rng.normal(size=20),
    ]
    changed = [np.where(np.arange(20) == 7, replacement, column) for column in values]
    before, after = scale_features(COLUMNS, values), scale_features(COLUMNS, changed)
    others = np.arange(20) != 7
    np.testing.assert_array_equal(before[others], after[others])
    one_by_one = np.vstack([scale_features(COLUMNS, [column[i : i + 1] for column in values]) for i in range(20)])
    np.testing.assert_array_equal(one_by_one, before)


def test_no_rows_are_scaled_to_no_rows() -> None:
    assert scale_features(COLUMNS, [[], [], [], []]).shape == (0, 6)


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: NumberColumn(1.0, 0.0), "must not be below"),
        (lambda: NumberColumn(float("nan"), 0.0), "lower"),
        (lambda: NumberColumn(0.0, float("inf")), "upper"),
        (lambda: CategoryColumn(0), "num_categories"),
        (lambda: scale_features([], []), "declared"),
        (lambda: scale_features(COLUMNS, [[1.0]]), "4 columns are declared, but 1 are given"),
        (lambda: scale_features(COLUMNS[:2], [[1.0], [1.0, 2.0]]), "as long"),
    ],
)
def test_what_does_not_fit_is_refused(attempt: object, complaint: str) -> None:
    assert callable(attempt)
    with pytest.raises(InvalidValue, match=complaint):
        attempt()
