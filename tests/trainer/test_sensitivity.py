"""What one record can do to the sum that is noised: never more than the plan was charged for, as integers.

Neighbours are built against the trainer: records of every size up to the largest float, aligned so that all roundings
add up, with non-finite values, with parameters that overflow the logits, in both dtypes, among few records and many.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibrators.plan import Clip, Normalize
from trainer.arrays import dtype_name, silent
from trainer.clipping import margin
from trainer.grid import Grid, grid_for
from trainer.models import Model, MultilayerPerceptron, PerRecordModel, build, logistic_regression, softmax_regression
from trainer.records import Records, Selection, prepare
from trainer.streams import random_streams
from trainer.sums import BoundedSum

BOUNDS: list[Clip | Normalize] = [
    Clip(1.0),
    Clip(1e-6),
    Clip(3e5),
    Normalize(0.0),
    Normalize(1e-8),
    Normalize(10.0),
]
DTYPES = ["float64", "float32"]


def dense_rows(point: Any, features: Any, labels: Any) -> Any:
    """Least squares, record by record."""
    return (features @ point - labels)[:, None] * features


MODELS: dict[str, Model] = {
    "logistic": logistic_regression(4),
    "softmax": softmax_regression(4, 3),
    "without intercept": logistic_regression(4, fit_intercept=False),
    "least squares": build(4, kind="linear_regression"),
    "huber": build(4, kind="huber_regression", threshold=100.0),
    "quantile": build(4, kind="quantile_regression"),
    "q-norm regression": build(4, kind="q_norm_regression", q=1.5),
    "q-norm hinge": build(4, kind="q_norm_hinge", q=1.5),
    "perceptron": MultilayerPerceptron(4, 3, hidden=(6,)),
    "deep": MultilayerPerceptron(4, 2, hidden=(5, 3), activation="tanh"),
    "weighted": build(4, kind="softmax_regression", num_classes=3, class_priors=(0.7, 0.29, 0.01)),
    "weighted perceptron": build(4, kind="mlp", num_classes=2, hidden=(5,), class_priors=(0.001, 0.999)),
    "dense": PerRecordModel(4, np.zeros(4), dense_rows),
}


def summed(model: Model, records: Records, slots: Selection, point: np.ndarray, bound: Clip | Normalize) -> list[int]:
    """The sum of bounded contributions of these slots, in whole steps of the grid."""
    dtype = dtype_name(records.all.features)
    with silent():
        total: np.ndarray = BoundedSum(model, records, dtype).at(point, slots, bound, grid_of(model, dtype))
    assert np.all(total == np.rint(total))
    return [int(value) for value in total]


def grid_of(model: Model, dtype: str) -> Grid:
    return grid_for(1.0, model.num_parameters, dtype, 10_000)


def allowed(model: Model, dtype: str, sensitivity: int = 1) -> int:
    """The squared distance of neighbours' sums, in steps, that was charged for."""
    return math.floor((sensitivity / Fraction(grid_of(model, dtype).step)) ** 2)


def squared_distance(one: list[int], other: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def prepared(model: Model, rows: np.ndarray, labels: np.ndarray, dtype: str, capacity: int) -> Records:
    return prepare(model, rows, labels, dtype, capacity, random_streams(5).slots)


def sum_of(
    model: Model, point: np.ndarray, rows: np.ndarray, labels: np.ndarray, bound: Clip | Normalize, dtype: str
) -> list[int]:
    """Of all slots: the first rows are in the same ones, whatever follows."""
    return summed(model, prepared(model, rows, labels, dtype, 9), slice(0, 9), point, bound)


def adversarial_rows(rng: np.random.Generator, features: int) -> np.ndarray:
    direction = rng.normal(size=features)
    axis = np.zeros(features)
    axis[0] = 1.0
    sizes = (1e-310, 1e-44, 1e-30, 1.0, 7.0, 1e9, 3e17, 1e20, 1e38, 9e99, 1e155, 1.7e308 / 4)
    rows = [size * u for size in sizes for u in (direction, axis)]
    rows += [np.full(features, value) for value in (np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 0.0)]
    mixed = direction.copy()
    mixed[1] = np.inf
    return np.array([*rows, mixed, np.where(axis > 0, 1.7e308, 1e-308)])


@pytest.mark.parametrize("every_pair", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.one_in(4)
def test_one_record_moves_the_sum_by_at_most_the_bound(name: str, dtype: str, every_pair: bool) -> None:
    """Each bound and each point; each bound at each point in `make soak`."""
    model, rng = MODELS[name], np.random.default_rng(17)
    base = rng.normal(size=(6, 4))
    size = model.num_parameters
    start = model.initial(random_streams(3).initialisation)
    points = [start, rng.normal(size=size), np.full(size, 1e300), np.full(size, 1e18), np.full(size, np.nan)]
    points.append(1e-25 * rng.normal(size=size))
    targets = range(model.num_classes) if model.num_classes else (-1.0, 0.3, 1e300)
    labels = rng.integers(0, model.num_classes, 6) if model.num_classes else rng.uniform(-1, 1, 6)
    for which, bound in enumerate(BOUNDS):
        for place, point in enumerate(points):
            if not every_pair and which != place and which > 0 and place > 0:
                continue
            without = sum_of(model, point, base, labels, bound, dtype)
            sums = []
            for row in adversarial_rows(rng, 4):
                for label in targets:
                    rows, more = np.vstack([base, row]), np.append(labels, label)
                    sums.append(sum_of(model, point, rows, more, bound, dtype))
            assert max(squared_distance(some, without) for some in sums) <= allowed(model, dtype)
            pairs = itertools.combinations(sums, 2)
            assert max(squared_distance(*pair) for pair in pairs) <= allowed(model, dtype, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [Clip(1.0), Clip(1e-6), Normalize(0.0)])
@pytest.mark.parametrize("name", MODELS)
def test_the_bound_is_nearly_reached(name: str, bound: Clip | Normalize, dtype: str) -> None:
    """The test above is not passed by contributions that are smaller than they may be."""
    model, row = MODELS[name], np.full((1, 4), 1e3)
    point = 0.1 + model.initial(random_streams(3).initialisation)
    sums = [sum_of(model, point, row, np.array([label]), bound, dtype) for label in (0.0, 1.0, 2.0)]
    longest = max(squared_distance(total, [0] * len(total)) for total in sums)
    most = allowed(model, dtype)
    assert most * (1.0 - 1.02 * margin(dtype)) ** 2 <= longest <= most


def many(rng: np.random.Generator, count: int, features: int, aligned: bool) -> tuple[np.ndarray, np.ndarray]:
    if aligned:
        return 100.0 * (1.0 + 0.01 * rng.random((count, features))), np.ones(count, dtype=np.int64)
    return rng.normal(size=(count, features)) * 30.0, rng.integers(0, 2, count)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [Clip(1.0), Normalize(0.1)])
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("model", [logistic_regression(8), MultilayerPerceptron(8, 2, hidden=(12,))])
def test_one_record_among_many_moves_the_sum_by_at_most_the_bound(
    model: Model, aligned: bool, bound: Clip | Normalize, dtype: str
) -> None:
    """Thousands of records, whose float32 sum in one piece would move by more than the margin.

    A record is left out by a slot that is empty in its place.
    """
    rng = np.random.default_rng(23)
    rows, labels = many(rng, 6000, 8, aligned)
    records = prepared(model, rows, labels, dtype, 6000)
    point = model.initial(random_streams(3).initialisation) + (
        0.0 if aligned else rng.normal(size=model.num_parameters)
    )
    everything = np.arange(6000)
    full = summed(model, records, everything, point, bound)
    assert full == summed(model, records, slice(0, 6000), point, bound)
    ratio = 1.0 - margin(dtype) - 1e-3 if isinstance(bound, Clip) else 0.9
    for missing in (0, 17, 319, 320, 2047, 2048, 4095, 5999):
        without = everything.copy()
        without[missing] = records.spare
        moved = squared_distance(full, summed(model, records, without, point, bound))
        assert moved <= allowed(model, dtype)
        assert not aligned or isinstance(model, MultilayerPerceptron) or moved >= ratio**2 * allowed(model, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["aligned", "cancelling", "huge and tiny"])
@pytest.mark.parametrize(("features", "rows"), [(1, 1), (1, 641), (3, 320), (3, 2049), (20_000, 3)])
def test_one_record_beside_the_border_of_a_piece_moves_the_sum_by_at_most_the_bound(
    features: int, rows: int, kind: str, dtype: str
) -> None:
    """It is replaced by its opposite, or its slot is empty, among records that add up, cancel, or are of all sizes."""
    model = logistic_regression(features, fit_intercept=False)
    rng = np.random.default_rng(31)
    data = 100.0 * (1.0 + 0.01 * rng.random((rows, features)))
    if kind == "cancelling":
        data *= np.where(np.arange(rows) % 2, -1.0, 1.0)[:, None]
    elif kind == "huge and tiny":
        data *= 10.0 ** rng.integers(-25, 16, (rows, 1))
    records = prepared(model, data, np.ones(rows), dtype, rows)
    for place in {0, rows - 1, rows // 2, min(rows - 1, 319), min(rows - 1, 320), min(rows - 1, 1024)}:
        # The slot at this place: pieces are made of slots, and which row it holds is drawn.
        row = int(np.flatnonzero(records.positions == place)[0])
        other, none = data.copy(), data.copy()
        other[row], none[row] = -data[row], np.nan
        sums = [
            summed(model, prepared(model, some, np.ones(rows), dtype, rows), slice(0, rows), np.zeros(features), bound)
            for bound in (Clip(1.0), Normalize(0.0))
            for some in (data, other, none)
        ]
        for with_it, opposite, without in (sums[:3], sums[3:]):
            assert squared_distance(with_it, opposite) <= allowed(model, dtype, 2)
            assert squared_distance(with_it, without) <= allowed(model, dtype)
            assert squared_distance(opposite, without) <= allowed(model, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_records_have_a_sum_of_zero(dtype: str) -> None:
    model = logistic_regression(3)
    nothing = prepared(model, np.empty((0, 3)), np.empty(0), dtype, 7)
    assert summed(model, nothing, slice(0, 7), np.ones(4), Clip(1.0)) == [0] * 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_sum_is_accurate(dtype: str) -> None:
    """Against sums that are exact and rounded once; the contributions are all alike long and aligned."""
    model, rng = logistic_regression(8), np.random.default_rng(23)
    rows, labels = many(rng, 6000, 8, aligned=True)
    records = prepared(model, rows, labels, dtype, 6000)
    inputs = np.hstack([records.all.features[:6000].astype(np.float64), np.ones((6000, 1))])
    lengths = np.sqrt(np.sum(inputs**2, axis=1))
    exact = -(1.0 - margin(dtype)) * np.array([math.fsum(column / lengths) for column in inputs.T])
    found = np.array(summed(model, records, slice(0, 6000), np.zeros(9), Clip(1.0))) * grid_of(model, dtype).step
    # A float32 factor is wrong by 2^-24 of itself, the same way for each of 6000 aligned records.
    assert np.linalg.norm(found - exact) <= (3e-3 if dtype == "float32" else 1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_slot_that_is_not_drawn_changes_no_integer(dtype: str) -> None:
    """Whatever is in it: amplification by sampling rests on it."""
    model, rng = MultilayerPerceptron(8, 2, hidden=(12,)), np.random.default_rng(29)
    rows, labels = many(rng, 900, 8, aligned=False)
    point = model.initial(random_streams(3).initialisation)
    sums = []
    for row in (rows[0], 1e17 * rows[0], np.full(8, np.nan), np.full(8, 1e-310)):
        records = prepared(model, np.vstack([row, rows[1:]]), labels, dtype, 1000)
        drawn = np.setdiff1d(np.arange(1000), records.positions[:1])
        sums.append(summed(model, records, drawn, point, Clip(1.0)))
    assert sums.count(sums[0]) == len(sums)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.7e308])
def test_non_finite_gradients_become_zero(bad: float, dtype: str) -> None:
    """Logits of inf - inf, whose softmax is no number: the record contributes nothing and harms no other."""
    model = softmax_regression(2, 2, fit_intercept=False)
    point = np.array([0.0, 0.0, bad, -bad])
    good, wild = np.array([3.0, 0.0]), np.array([3.0, 3e17])
    for order in ((0, 1), (1, 0)):
        rows = np.array([good, wild])[list(order)]
        expected = [0] * 4
        if dtype == "float64" and np.isfinite(bad):  # the other row's feature is 0, and 0 times infinity is no number
            expected = sum_of(model, point, good[None], np.zeros(1), Clip(1.0), dtype)
        assert sum_of(model, point, rows, np.zeros(2), Clip(1.0), dtype) == expected


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_invalid_rows_contribute_nothing(name: str, dtype: str) -> None:
    """Not even by an intercept."""
    model, rng = MODELS[name], np.random.default_rng(29)
    rows, point = rng.normal(size=(5, 4)), rng.normal(size=model.num_parameters)
    more = np.vstack([rows, np.full((3, 4), np.nan)])
    sums = [sum_of(model, point, some, np.zeros(len(some)), Normalize(0.1), dtype) for some in (rows, more)]
    assert sums[0] == sums[1]
