"""Preparing private rows: silent, row by row, nothing non-finite survives, and lanes that ignore values."""

from __future__ import annotations

import warnings

import array_api_strict
import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue
from trainer.models import Model, build, logistic_regression, softmax_regression
from trainer.records import LANE_ROWS, LANES_AT_ONCE, Records, lanes_for, piece_for, prepare
from trainer.streams import random_streams

BAD_VALUES = [np.nan, np.inf, -np.inf]


def prepared(
    model: Model, features: np.ndarray, labels: np.ndarray, dtype: str = "float64", lanes: int = 1, seed: int = 0
) -> Records:
    return prepare(model, features, labels, dtype, lanes, random_streams(seed).lanes)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bad", [*BAD_VALUES, 1e101, -1.7e308])
def test_unusable_rows_become_zero(bad: float, dtype: str) -> None:
    features = np.array([[1.0, 2.0], [3.0, bad], [5.0, 6.0]])
    records = prepared(logistic_regression(2), features, np.array([0, 1, 1]), dtype)
    assert records.all.features[:3].tolist() == [[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]]
    assert records.all.valid[:3].tolist() == [1.0, 0.0, 1.0]


def test_what_can_be_squared_depends_on_the_dtype() -> None:
    features = np.array([[1e18], [1.1e18], [1e100], [1.1e100]])
    for dtype, valid in (("float32", [1.0, 0.0, 0.0, 0.0]), ("float64", [1.0, 1.0, 1.0, 0.0])):
        records = prepared(logistic_regression(1), features, np.zeros(4), dtype)
        assert records.all.valid[:4].tolist() == valid
        assert np.all(np.isfinite(records.all.squares))


@pytest.mark.parametrize("bad", BAD_VALUES)
@pytest.mark.parametrize("model", [softmax_regression(2, 3), build(2, kind="linear_regression")])
def test_a_label_that_is_not_finite_zeroes_its_row(model: Model, bad: float) -> None:
    records = prepared(model, np.ones((2, 2)), np.array([1.0, bad]))
    assert records.all.features[:2].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert records.all.valid[:2].tolist() == [1.0, 0.0]


def test_labels_outside_their_range_are_clipped_to_it() -> None:
    given = np.array([-4.0, 0.2, 1.9, 2.0, 1e300])
    classes = prepared(softmax_regression(1, 3), np.ones((5, 1)), given)
    assert classes.all.labels[:5].tolist() == [0, 0, 2, 2, 2]
    numbers = prepared(build(1, kind="linear_regression"), np.ones((5, 1)), given, "float32")
    assert numbers.all.labels[:5].tolist() == [-1.0, pytest.approx(0.2), 1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_squares_are_upper_bounds_and_positive(dtype: str) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(40, 700)) * 10.0 ** rng.uniform(-30, 17, size=(40, 1))
    features[3] = 0.0
    records = prepared(logistic_regression(700), features, np.zeros(40), dtype)
    exact = np.array([sum(float(v) ** 2 for v in row) for row in records.all.features[:40]])
    assert np.all(records.all.squares[:40] >= exact * (1.0 - 1e-12))
    assert np.all(records.all.squares[:40] > 0.0)
    large = exact > 1e-20
    np.testing.assert_allclose(records.all.squares[:40][large], exact[large], rtol=1e-12)


@pytest.mark.parametrize("replacement", [np.nan, np.inf, 1e300, -1e300, 0.0])
def test_rows_are_independent(replacement: float) -> None:
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(9, 3)), rng.integers(0, 2, 9)
    changed = features.copy()
    changed[4] = replacement
    before = prepared(logistic_regression(3), features, labels, "float32", lanes=3)
    after = prepared(logistic_regression(3), changed, labels, "float32", lanes=3)
    np.testing.assert_array_equal(before.positions, after.positions)
    np.testing.assert_array_equal(before.lane_starts, after.lane_starts)
    others = np.arange(len(before.all.valid)) != before.positions[4]
    for name in ("features", "squares", "labels", "valid"):
        np.testing.assert_array_equal(getattr(before.all, name)[others], getattr(after.all, name)[others])


def test_lanes_are_drawn_alike_likely_and_rows_are_sorted_by_them() -> None:
    features = np.arange(6000.0)[:, None]
    records = prepared(logistic_regression(1), features, np.zeros(6000), lanes=7, seed=5)
    assert records.lane_starts[0] == 0
    assert records.lane_starts[-1] == records.count == 6000
    assert stats.chisquare(np.diff(records.lane_starts)).pvalue > 1e-3
    np.testing.assert_array_equal(records.all.features[records.positions, 0], np.arange(6000.0))
    other = prepared(logistic_regression(1), features, np.zeros(6000), lanes=7, seed=6)
    assert not np.array_equal(records.positions, other.positions)


@pytest.mark.parametrize("rows", [0.01, 3.0, 128.0, 200.0, 1024.0, 1025.0, 60_000.0])
def test_pieces_hold_the_records_that_are_gathered_together_nearly_always(rows: float) -> None:
    gathered = rows * min(lanes_for(rows), LANES_AT_ONCE) / lanes_for(rows)
    assert stats.poisson.cdf(piece_for(rows), gathered) >= 0.97
    assert piece_for(rows) % 16 == 0
    assert piece_for(rows) <= 1.2 * gathered + 32


def test_lanes_hold_so_many_rows_of_a_step() -> None:
    assert [lanes_for(rows) for rows in (0.1, 1.0, LANE_ROWS, LANE_ROWS + 1, 60_000)] == [1, 1, 1, 2, 235]


@pytest.mark.parametrize("xp", [np, array_api_strict])
@pytest.mark.parametrize("rows", [np.array([0, 2, 5]), np.empty(0, dtype=np.intp), slice(3, 9), slice(0, 0)])
def test_blocks_are_the_rows_and_padding_to_whole_pieces(rows: slice | np.ndarray, xp: object) -> None:
    features = array_api_strict.asarray(np.arange(9.0)[:, None]) if xp is array_api_strict else np.arange(9.0)[:, None]
    labels = features[:, 0] * 0
    records = prepare(logistic_regression(1), features, labels, "float64", 1, random_streams(0).lanes)
    expected = np.arange(9.0)[rows]
    block = records.block(rows, 4)
    assert block.features.shape[0] % 4 == 0
    assert 0 <= block.features.shape[0] - expected.size < 4
    np.testing.assert_array_equal(np.asarray(block.features)[: expected.size, 0], expected)
    assert {block.labels.shape, block.squares.shape, block.valid.shape} == {(block.features.shape[0],)}


def test_silent() -> None:
    extremes = np.array([[np.nan], [np.inf], [1.7e308], [5e-324], [-0.0]])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        records = prepared(logistic_regression(1), extremes, np.array([np.inf, np.nan, 1e308, -1e308, 0.5]), "float32")
    assert np.all(np.isfinite(records.all.features))


def test_the_callers_arrays_are_left_alone() -> None:
    features = np.array([[np.nan, 1.0], [2.0, 3.0]])
    prepared(logistic_regression(2), features, np.array([0, 1]))
    np.testing.assert_array_equal(features, [[np.nan, 1.0], [2.0, 3.0]])


def test_shapes_are_refused_without_naming_the_number_of_rows() -> None:
    for features, labels in [
        (np.ones((11, 3)), np.zeros(11)),
        (np.ones((11, 2)), np.zeros(12)),
        (np.ones(11), np.zeros(11)),
        (np.ones((11, 2)), np.zeros((11, 1))),
    ]:
        with pytest.raises(InvalidValue) as refusal:
            prepared(logistic_regression(2), features, labels)
        assert "11" not in refusal.value.detail
        assert "12" not in refusal.value.detail
    with pytest.raises(InvalidValue, match="float64 or float32"):
        prepared(logistic_regression(2), np.ones((2, 2)), np.zeros(2), "float16")
