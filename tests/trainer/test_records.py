"""Preparing private rows: silent, row by row, and nothing non-finite survives."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from accounting.errors import InvalidValue
from trainer.gradients import gradients
from trainer.models import LogisticRegression, SoftmaxRegression
from trainer.records import prepare

BAD_VALUES = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bad", BAD_VALUES)
def test_non_finite_rows_become_zero(bad: float, dtype: str) -> None:
    features = np.array([[1.0, 2.0], [3.0, bad], [5.0, 6.0]])
    records = prepare(LogisticRegression(2), features, np.array([0, 1, 1]), dtype)
    assert records.inputs[1].tolist() == [0.0, 0.0, 0.0]
    assert records.input_norms[1] == 0.0
    total = gradients(LogisticRegression(2), np.ones((3, 1)), records).bounded_sum(lambda norms, scales: scales)
    alone = prepare(LogisticRegression(2), features[[0, 2]], np.array([0, 1]), dtype)
    others = gradients(LogisticRegression(2), np.ones((3, 1)), alone).bounded_sum(lambda norms, scales: scales)
    np.testing.assert_array_equal(total, others)


@pytest.mark.parametrize("bad", BAD_VALUES)
def test_a_label_that_is_not_finite_zeroes_its_row(bad: float) -> None:
    records = prepare(SoftmaxRegression(2, 3), np.ones((2, 2)), np.array([1.0, bad]), "float64")
    assert records.inputs.tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_labels_outside_their_range_are_clipped_to_it() -> None:
    records = prepare(SoftmaxRegression(1, 3), np.ones((5, 1)), np.array([-4.0, 0.2, 1.9, 2.0, 1e300]), "float64")
    assert records.labels.tolist() == [0, 0, 2, 2, 2]


@pytest.mark.parametrize(("dtype", "rounding"), [("float64", 0.0), ("float32", 6e-8)])
def test_huge_rows_keep_their_direction(dtype: str, rounding: float) -> None:
    rows = np.array([[3e299, -4e299], [1.7e308, 1e290], [0.5, 0.25], [1e39, 1e39]])
    records = prepare(LogisticRegression(2), rows, np.zeros(4), dtype)
    assert np.abs(records.inputs).max() < 2.0
    assert records.scales[2] == 1.0
    back = records.inputs.astype(np.float64) * records.scales[:, None]
    np.testing.assert_allclose(back[:, :2], rows, rtol=rounding, atol=1e-20 if rounding else 0.0)
    np.testing.assert_allclose(back[2:3, 2], 1.0, rtol=rounding)


@pytest.mark.parametrize("replacement", [np.nan, np.inf, 1e300, -1e300, 0.0])
def test_rows_are_independent(replacement: float) -> None:
    rng = np.random.default_rng(3)
    features, labels = rng.normal(size=(9, 3)), rng.integers(0, 2, 9)
    changed = features.copy()
    changed[4] = replacement
    before = prepare(LogisticRegression(3), features, labels, "float32")
    after = prepare(LogisticRegression(3), changed, labels, "float32")
    others = np.arange(9) != 4
    for name in ("inputs", "input_norms", "scales", "labels"):
        np.testing.assert_array_equal(getattr(before, name)[others], getattr(after, name)[others])


def test_silent() -> None:
    extremes = np.array([[np.nan], [np.inf], [1.7e308], [5e-324], [-0.0]])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        records = prepare(LogisticRegression(1), extremes, np.array([np.inf, np.nan, 1e308, -1e308, 0.5]), "float32")
    assert np.all(np.isfinite(records.inputs))


def test_the_callers_arrays_are_left_alone() -> None:
    features = np.array([[np.nan, 1.0], [2.0, 3.0]])
    prepare(LogisticRegression(2), features, np.array([0, 1]), "float64")
    np.testing.assert_array_equal(features, [[np.nan, 1.0], [2.0, 3.0]])


def test_shapes_are_refused_without_naming_the_number_of_rows() -> None:
    for features, labels in [
        (np.ones((11, 3)), np.zeros(11)),
        (np.ones((11, 2)), np.zeros(12)),
        (np.ones(11), np.zeros(11)),
        (np.ones((11, 2)), np.zeros((11, 1))),
    ]:
        with pytest.raises(InvalidValue) as refusal:
            prepare(LogisticRegression(2), features, labels, "float64")
        assert "11" not in refusal.value.detail
        assert "12" not in refusal.value.detail
    with pytest.raises(InvalidValue, match="float64 or float32"):
        prepare(LogisticRegression(2), np.ones((2, 2)), np.zeros(2), "float16")
