"""What one record can do to the sum that is noised: never more than the plan was charged for.

Neighbours are built against the trainer: records of every size up to the largest float, aligned so that all roundings
add up, with non-finite values, with parameters that overflow the logits, in both dtypes.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrators.plan import Clip, Normalize, Phase
from tests.trainer.plans import phase_of
from trainer.algorithms import ALGORITHMS
from trainer.arrays import silent
from trainer.clipping import MARGIN
from trainer.gradients import SelectedBatch, gradients
from trainer.models import LinearModel, LogisticRegression, SoftmaxRegression
from trainer.records import Records, prepare

#: A step of size 1 from the origin without noise moves by minus the sum.
CASES = [
    ("dp_sgd", Clip(1.0)),
    ("dp_sgd", Clip(1e-6)),
    ("dp_sgd", Clip(3e5)),
    ("dp_nsgd", Normalize(0.0)),
    ("dp_nsgd", Normalize(1e-8)),
    ("dp_nsgd", Normalize(10.0)),
]


def summed(
    algorithm: str,
    phase: Phase,
    model: LinearModel,
    point: np.ndarray,
    rows: np.ndarray,
    labels: np.ndarray,
    dtype: str,
) -> np.ndarray:
    """The sum of bounded contributions that the algorithm's update forms at the point."""
    records = prepare(model, rows, labels, dtype)
    with silent():
        batch = SelectedBatch(model, records, slice(0, len(rows)), point)
        update = ALGORITHMS[algorithm].update
        still: np.ndarray = update(np.zeros_like(point), batch, phase, np.zeros_like(point))
    return -still


def adversarial_rows(rng: np.random.Generator, features: int) -> np.ndarray:
    direction = rng.normal(size=features)
    axis = np.zeros(features)
    axis[0] = 1.0
    rows = [size * u for size in (1e-310, 1e-30, 1.0, 7.0, 1e20, 1e38, 1e155, 1.7e308 / 4) for u in (direction, axis)]
    rows += [np.full(features, value) for value in (np.nan, np.inf, -np.inf, 1.7e308, -1.7e308, 0.0)]
    mixed = direction.copy()
    mixed[1] = np.inf
    return np.array([*rows, mixed, np.where(axis > 0, 1.7e308, 1e-308)])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("algorithm", "bound"), CASES)
def test_one_record_moves_the_sum_by_at_most_the_bound(algorithm: str, bound: Clip | Normalize, dtype: str) -> None:
    rng = np.random.default_rng(17)
    phase = phase_of(bound, divisor=1, step_size=1.0)
    for model in (LogisticRegression(4), SoftmaxRegression(4, 3), LogisticRegression(4, fit_intercept=False)):
        base = rng.normal(size=(6, 4))
        labels = rng.integers(0, model.num_classes, 6)
        shape = (model.num_inputs, model.num_outputs)
        for point in (np.zeros(shape), rng.normal(size=shape), np.full(shape, 1e300), np.full(shape, np.nan)):
            without = summed(algorithm, phase, model, point, base, labels, dtype)
            sums = []
            for row in adversarial_rows(rng, 4):
                for label in range(model.num_classes):
                    rows, more = np.vstack([base, row]), np.append(labels, label)
                    sums.append(summed(algorithm, phase, model, point, rows, more, dtype))
            assert np.all(np.isfinite(sums))
            added = np.linalg.norm((np.array(sums) - without).reshape(len(sums), -1), axis=1)
            assert added.max() <= bound.contribution_bound
            replaced = np.array(sums)[:, None] - np.array(sums)[None, :]
            assert np.sqrt((replaced**2).sum(axis=(2, 3))).max() <= 2.0 * bound.contribution_bound


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bound", [Clip(1.0), Normalize(0.0)])
def test_the_bound_is_reached(bound: Clip | Normalize, dtype: str) -> None:
    """The test above is not passed by contributions that are smaller than they may be."""
    name = "dp_sgd" if isinstance(bound, Clip) else "dp_nsgd"
    phase, model = phase_of(bound, divisor=1, step_size=1.0), LogisticRegression(4)
    row = np.full((1, 4), 1e200)
    total = summed(name, phase, model, model.initial(), row, np.array([1]), dtype)
    assert 0.99998 <= np.linalg.norm(total) <= 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1.7e308])
def test_non_finite_gradients_become_zero(bad: float) -> None:
    """Logits of inf - inf, whose softmax is no number: the record contributes nothing and harms no other."""
    model, rows = SoftmaxRegression(2, 2, fit_intercept=False), np.array([[3.0, 3.0]])
    point = np.array([[0.0, 0.0], [bad, -bad]])
    with silent():
        formed = gradients(model, point, prepare(model, 1e300 * rows, np.zeros(1), "float64"))
    assert np.all(np.isfinite(formed.residuals))
    if not np.isfinite(bad):
        assert formed.residuals.tolist() == [[0.0, 0.0]]


def aligned_sum(records: Records, bound: Clip | Normalize) -> np.ndarray:
    """The sum of contributions of inputs whose residual is 1/2, each sum exact and rounded once."""
    inputs = records.inputs.astype(np.float64) * records.scales[:, None]
    lengths = np.sqrt(np.sum(inputs**2, axis=1))
    if isinstance(bound, Clip):
        shares = np.full(len(inputs), bound.max_grad_norm * (1.0 - MARGIN))
    else:
        shares = 0.5 * lengths / (bound.regularizer + 0.5 * lengths)
    return np.array([math.fsum(shares / lengths * column) for column in inputs.T])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bound", [Clip(1.0), Normalize(0.1)])
def test_the_sum_is_accurate(bound: Clip | Normalize, dtype: str) -> None:
    """Thousands of aligned records: a sum accumulated in float32 would move by a hundred margins."""
    name = "dp_sgd" if isinstance(bound, Clip) else "dp_nsgd"
    phase, model = phase_of(bound, divisor=1, step_size=1.0), LogisticRegression(8)
    rng = np.random.default_rng(23)
    rows = 100.0 * (1.0 + 0.01 * rng.random((6000, 8)))
    labels = np.ones(6000, dtype=np.int64)
    full = summed(name, phase, model, model.initial(), rows, labels, dtype)
    exact = -aligned_sum(prepare(model, rows, labels, dtype), bound)  # negative residuals: the label is 1
    assert np.linalg.norm(full[:, 0] - exact) <= MARGIN / 2.0
    for missing in (0, 17, 4095, 4096, 5999):
        keep = np.arange(6000) != missing
        without = summed(name, phase, model, model.initial(), rows[keep], labels[keep], dtype)
        assert np.linalg.norm(full - without) <= 1.0
        assert np.linalg.norm(full - without) >= 0.99
