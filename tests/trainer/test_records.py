"""Preparing private rows: silent, row by row, nothing non-finite survives, and slots that ignore values."""

from __future__ import annotations

import warnings

import array_api_strict
import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue
from calibrators.spec import default_capacity
from trainer.models import Model, build, logistic_regression, softmax_regression
from trainer.records import BLOCK_ROWS, Records, prepare
from trainer.streams import random_streams

BAD_VALUES = [np.nan, np.inf, -np.inf]


def prepared(
    model: Model, features: np.ndarray, labels: np.ndarray, dtype: str = "float64", capacity: int = 0, seed: int = 0
) -> Records:
    return prepare(model, features, labels, dtype, max(capacity, len(features)), random_streams(seed).slots)


def given(records: Records, name: str, count: int) -> np.ndarray:
    """What is kept of the first rows that were given."""
    found: np.ndarray = getattr(records.all, name)[records.positions[:count]]
    return found


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bad", [*BAD_VALUES, 1e101, -1.7e308])
def test_unusable_rows_become_zero(bad: float, dtype: str) -> None:
    features = np.array([[1.0, 2.0], [3.0, bad], [5.0, 6.0]])
    records = prepared(logistic_regression(2), features, np.array([0, 1, 1]), dtype)
    assert given(records, "features", 3).tolist() == [[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]]
    assert given(records, "valid", 3).tolist() == [True, False, True]


def test_what_can_be_squared_depends_on_the_dtype() -> None:
    features = np.array([[1e18], [1.1e18], [1e100], [1.1e100]])
    for dtype, valid in (("float32", [True, False, False, False]), ("float64", [True, True, True, False])):
        records = prepared(logistic_regression(1), features, np.zeros(4), dtype)
        assert given(records, "valid", 4).tolist() == valid
        assert np.all(np.isfinite(records.all.squares))


@pytest.mark.parametrize("bad", BAD_VALUES)
@pytest.mark.parametrize("model", [softmax_regression(2, 3), build(2, kind="linear_regression")])
def test_a_label_that_is_not_finite_zeroes_its_row(model: Model, bad: float) -> None:
    records = prepared(model, np.ones((2, 2)), np.array([1.0, bad]))
    assert given(records, "features", 2).tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert given(records, "valid", 2).tolist() == [True, False]


def test_labels_outside_their_range_are_clipped_to_it() -> None:
    labels = np.array([-4.0, 0.2, 1.9, 2.0, 1e300])
    classes = prepared(softmax_regression(1, 3), np.ones((5, 1)), labels)
    assert given(classes, "labels", 5).tolist() == [0, 0, 2, 2, 2]
    numbers = prepared(build(1, kind="linear_regression"), np.ones((5, 1)), labels, "float32")
    assert given(numbers, "labels", 5).tolist() == [-1.0, pytest.approx(0.2), 1.0, 1.0, 1.0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_squares_are_upper_bounds_and_positive(dtype: str) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(40, 700)) * 10.0 ** rng.uniform(-30, 17, size=(40, 1))
    features[3] = 0.0
    records = prepared(logistic_regression(700), features, np.zeros(40), dtype)
    exact = np.array([sum(float(v) ** 2 for v in row) for row in given(records, "features", 40)])
    assert np.all(given(records, "squares", 40) >= exact * (1.0 - 1e-12))
    assert np.all(given(records, "squares", 40) > 0.0)
    large = exact > 1e-20
    np.testing.assert_allclose(given(records, "squares", 40)[large], exact[large], rtol=1e-12)


@pytest.mark.parametrize("replacement", [np.nan, np.inf, 1e300, -1e300, 0.0])
def test_rows_are_independent(replacement: float) -> None:
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(9, 3)), rng.integers(0, 2, 9)
    changed = features.copy()
    changed[4] = replacement
    before = prepared(logistic_regression(3), features, labels, "float32", capacity=12)
    after = prepared(logistic_regression(3), changed, labels, "float32", capacity=12)
    np.testing.assert_array_equal(before.positions, after.positions)
    others = np.arange(len(before.all.valid)) != before.positions[4]
    for name in ("features", "squares", "labels", "valid"):
        np.testing.assert_array_equal(getattr(before.all, name)[others], getattr(after.all, name)[others])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tiny_entries_become_zero(dtype: str) -> None:
    """So that no product of two numbers that are kept is subnormal, nor a sum of such products."""
    tiny = 2.0**-40 if dtype == "float32" else 2.0**-450
    values = np.array([[tiny, np.nextafter(tiny, 0.0), 1e-310, -5e-324, -tiny, 1.0]])
    records = prepared(build(6, kind="linear_regression"), values, np.zeros(1), dtype)
    assert given(records, "features", 1).tolist() == [[tiny, 0.0, 0.0, 0.0, -tiny, 1.0]]
    info = np.finfo(records.all.features.dtype)
    ulp = float(np.spacing(records.all.features.dtype.type(tiny)))
    assert ulp * ulp >= float(info.smallest_normal)


def test_rows_are_in_slots_of_a_secret_permutation() -> None:
    """Each row in one slot, all orders equally likely; a record that comes or goes changes its own slot alone."""
    features = np.arange(1.0, 5001.0)[:, None]
    some = prepared(logistic_regression(1), features, np.zeros(5000), capacity=6000, seed=5)
    assert sorted(some.positions.tolist()) == list(range(6000))
    assert (some.capacity, some.spare) == (6000, 6000)
    np.testing.assert_array_equal(given(some, "features", 5000), features)
    assert not given(some, "valid", 6000)[5000:].any()
    assert not some.all.valid[6000]
    assert stats.kstest(some.positions[:500] / 6000.0, "uniform").pvalue > 1e-3
    other = prepared(logistic_regression(1), features, np.zeros(5000), capacity=6000, seed=6)
    assert not np.array_equal(some.positions, other.positions)
    fewer = prepared(logistic_regression(1), features[:-1], np.zeros(4999), capacity=6000, seed=5)
    changed = np.flatnonzero(
        np.any(some.all.features != fewer.all.features, axis=1) | (some.all.valid != fewer.all.valid)
    )
    assert changed.tolist() == [some.positions[4999]]


def test_every_slot_is_written() -> None:
    """Memory that was never written is shared pages of zeros, which are read faster: empty capacity would show."""
    records = prepared(logistic_regression(1), np.ones((3, 1)), np.zeros(3), capacity=3 * BLOCK_ROWS)
    empty = records.positions[3:]
    for name in ("features", "labels", "squares", "valid"):
        assert np.isfinite(getattr(records.all, name)[empty]).all()


@pytest.mark.parametrize("xp", [np, array_api_strict])
@pytest.mark.parametrize("slots", [np.array([0, 2, 9]), np.empty(0, dtype=np.intp), slice(3, 9), slice(0, 0)])
def test_blocks_are_what_the_slots_hold(slots: slice | np.ndarray, xp: object) -> None:
    features = array_api_strict.asarray(np.arange(9.0)[:, None]) if xp is array_api_strict else np.arange(9.0)[:, None]
    labels = features[:, 0] * 0
    records = prepare(logistic_regression(1), features, labels, "float64", 9, random_streams(0).slots)
    expected = np.append(np.argsort(records.positions).astype(np.float64), 0.0)[slots]
    block = records.block(slots)
    np.testing.assert_array_equal(np.asarray(block.features)[:, 0], expected)
    assert {block.labels.shape, block.squares.shape, block.valid.shape} == {expected.shape}


def test_the_default_capacity_is_an_eighth_more_and_eight_for_few_records() -> None:
    assert [default_capacity(size) for size in (1, 8, 64, 65, 60_000)] == [9, 16, 72, 74, 67_500]


def test_more_rows_than_slots_are_refused_without_naming_their_number() -> None:
    with pytest.raises(InvalidValue, match="more rows than the 3 slots") as refusal:
        prepare(logistic_regression(1), np.ones((11, 1)), np.zeros(11), "float64", 3, random_streams(0).slots)
    assert "11" not in refusal.value.detail


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
