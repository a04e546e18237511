"""Losses: residuals are derivatives, and the constants are those that hold and are nearly reached."""

from __future__ import annotations

import math

import array_api_strict
import numpy as np
import pytest

from accounting.errors import InvalidValue
from trainer.losses import Huber, Logistic, Loss, QNormHinge, QNormRegression, Quantile, Softmax, Squared, Weighted

LOSSES: list[Loss] = [
    Logistic(),
    Softmax(2),
    Softmax(5),
    Squared(),
    Huber(0.3),
    Huber(4.0),
    Quantile(0.1),
    Quantile(0.5),
    QNormRegression(1.0),
    QNormRegression(1.3),
    QNormRegression(2.0),
    QNormHinge(1.0),
    QNormHinge(1.7),
    QNormHinge(2.0),
    Weighted(Logistic(), (0.25, 1.0)),
    Weighted(Softmax(3), (1.0, 0.5, 0.01)),
    Weighted(QNormHinge(1.7), (1.0, 0.2)),
]


def labels_of(loss: Loss, count: int, rng: np.random.Generator) -> np.ndarray:
    if loss.num_classes:
        classes: np.ndarray = rng.integers(0, loss.num_classes, count)
        return classes
    reals: np.ndarray = np.where(rng.random(count) < 0.5, rng.uniform(-1.0, 1.0, count), rng.choice([-1.0, 1.0], count))
    return reals


@pytest.mark.parametrize("loss", LOSSES)
def test_residuals_are_the_derivative(loss: Loss) -> None:
    rng = np.random.default_rng(6)
    logits, labels, step = rng.normal(size=(300, loss.num_outputs)) * 3.0, labels_of(loss, 300, rng), 1e-6
    residuals = loss.residuals(np, logits, labels)
    assert residuals.shape == logits.shape
    for k in range(loss.num_outputs):
        moved = np.eye(loss.num_outputs)[k] * step
        ahead, behind = (loss.values(np, logits + sign * moved, labels) for sign in (1.0, -1.0))
        smooth = np.abs(loss.residuals(np, logits + moved, labels) - residuals)[:, k] < 1e-2  # away from kinks
        assert np.count_nonzero(smooth) >= 295
        np.testing.assert_allclose(residuals[smooth, k], ((ahead - behind) / (2.0 * step))[smooth], atol=2e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_values_are_nonnegative_and_those_at_zero_are_the_stated_ones(loss: Loss) -> None:
    rng = np.random.default_rng(8)
    labels = labels_of(loss, 500, rng)
    assert np.all(loss.values(np, rng.normal(size=(500, loss.num_outputs)) * 10.0, labels) >= 0.0)
    zero = np.zeros((500, loss.num_outputs))
    assert loss.values(np, zero, labels).max() == pytest.approx(loss.value_at_zero, rel=1e-12)
    slopes = np.linalg.norm(loss.residuals(np, zero, labels), axis=1)
    assert slopes.max() == pytest.approx(loss.slope_at_zero, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_lipschitz_constants_hold_and_are_nearly_reached(loss: Loss) -> None:
    rng = np.random.default_rng(9)
    labels = labels_of(loss, 4000, rng)
    logits = rng.normal(size=(4000, loss.num_outputs)) * rng.choice([1.0, 10.0, 1000.0], size=(4000, 1))
    with np.errstate(over="ignore"):
        longest = np.linalg.norm(loss.residuals(np, logits, labels), axis=1).max()
    if loss.lipschitz is None:
        assert longest > 10.0
    else:
        assert 0.99 * loss.lipschitz <= longest <= loss.lipschitz * (1.0 + 1e-12)


def climbed(loss: Loss, norm_order: float, largest: float, rng: np.random.Generator) -> float:
    """The longest derivative at logits of this norm that a climb from many starts finds, in the dual norm."""
    dual = math.inf if norm_order == 1.0 else norm_order / (norm_order - 1.0)
    labels = np.arange(2) if loss.num_classes else np.array([-1.0, 1.0])

    def scaled(logits: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(logits, norm_order, axis=1, keepdims=True)
        found: np.ndarray = logits * (largest / np.maximum(norms, 1e-300))
        return found

    def lengths(logits: np.ndarray, label: float) -> np.ndarray:
        found: np.ndarray = np.linalg.norm(loss.residuals(np, logits, np.full(len(logits), label)), dual, axis=1)
        return found

    best = 0.0
    for label in labels:
        width = loss.num_outputs
        starts = [rng.normal(size=(200, width)), np.array([np.ones(width), -np.ones(width)])]
        if width > 1:
            # Away from the label, toward one to all of the others, by several shares; of many others some numbers do.
            several = {*range(1, min(width, 10)), *range(10, width, 10), width - 1}
            ladder = [np.where(np.arange(width) <= many, 1.0, 0.0) for many in sorted(several)]
            starts += [np.array([np.where(np.arange(width) == label, -w, (1.0 - w) * step) for step in ladder])
                       for w in (0.3, 0.5, 0.7, 0.9, 1.0)]  # fmt: skip
        points = scaled(np.vstack(starts))
        found, pace = lengths(points, label), 0.3 * largest
        for _ in range(150 if width > 1 else 1):
            tried = scaled(points + pace * rng.normal(size=points.shape) / math.sqrt(width))
            longer = lengths(tried, label)
            better = longer > found
            points[better], found[better] = tried[better], longer[better]
            pace *= 0.97
        best = max(best, float(found.max()))
    return best


@pytest.mark.parametrize("norm_order", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("loss", [*LOSSES, Softmax(10), Softmax(100), QNormHinge(1.1), QNormRegression(1.1)])
def test_derivatives_are_within_their_bound_in_a_ball_and_nearly_as_long(loss: Loss, norm_order: float) -> None:
    rng = np.random.default_rng(12)
    for largest in (0.1, 1.0, 2.5, 12.0):
        bound, longest = loss.steepest(largest, norm_order), climbed(loss, norm_order, largest, rng)
        assert longest <= bound * (1.0 + 1e-12)
        own = loss.loss if isinstance(loss, Weighted) else loss
        exact = not isinstance(own, Softmax) or own.classes == 2 or norm_order == 1.0
        assert longest >= (0.99 if exact else 0.9) * bound, (largest, longest, bound)
        assert bound <= loss.steepest(math.inf, norm_order)
        assert loss.slope_at_zero <= loss.steepest(largest)


@pytest.mark.parametrize("norm_order", [1.0, 1.25, 1.5, 2.0])
@pytest.mark.parametrize("classes", [2, 7])
def test_softmax_changes_within_its_constant_of_every_norm_and_nearly_as_much(classes: int, norm_order: float) -> None:
    rng, loss = np.random.default_rng(13), Softmax(classes)
    dual = math.inf if norm_order == 1.0 else norm_order / (norm_order - 1.0)
    middle = rng.normal(size=(4000, classes)) * rng.choice([0.01, 1.0, 5.0], size=(4000, 1))
    middle[:2000, 2:] -= 30.0
    apart = rng.normal(size=(4000, classes))
    apart[:1000, 2:] = 0.0
    apart[:1000, 1] = -apart[:1000, 0]
    apart[1000:2000, 1:] = 0.0
    apart *= 10.0 ** rng.uniform(-4.0, 0.5, size=(4000, 1))
    labels = np.zeros(4000, dtype=int)
    change = loss.residuals(np, middle + apart / 2.0, labels) - loss.residuals(np, middle - apart / 2.0, labels)
    shares = np.linalg.norm(change, dual, axis=1) / np.linalg.norm(apart, norm_order, axis=1)
    assert 0.99 * loss.largest_change(norm_order) <= shares.max() <= loss.largest_change(norm_order) * (1.0 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_derivatives_change_within_holder_and_nearly_as_much(loss: Loss) -> None:
    """Pairs near and far, on both sides of kinks; for a softmax where two classes share the weight."""
    rng = np.random.default_rng(10)
    count, width = 20_000, loss.num_outputs
    labels = labels_of(loss, count, rng)
    middle = rng.normal(size=(count, width)) * rng.choice([0.0, 0.1, 1.0], size=(count, 1))
    kinks = np.zeros((count, 1)) if loss.num_classes else labels[:, None]
    if isinstance(loss, QNormHinge):
        kinks = np.where(labels == 1, 1.0, -1.0)[:, None]
    if width > 2:
        middle[:, 2:] -= 30.0
        middle[:, :2] *= 0.1
    apart = rng.normal(size=(count, width)) * 10.0 ** rng.uniform(-3, 0.5, size=(count, 1))
    if width > 1:
        apart = np.zeros((count, width))
        apart[:, 0] = 10.0 ** rng.uniform(-3, 0.5, size=count)
        apart[:, 1] = -apart[:, 0]
    one = middle + kinks + apart / 2.0
    other = middle + kinks - apart / 2.0
    one[: count // 2], other[: count // 2] = (kinks + apart / 2.0)[: count // 2], (kinks - apart / 2.0)[: count // 2]
    if isinstance(loss, QNormHinge):
        other[: count // 4] = kinks[: count // 4]
    if width > 2:
        one[: count // 2, 2:] = other[: count // 2, 2:] = -30.0
    change = np.linalg.norm(loss.residuals(np, one, labels) - loss.residuals(np, other, labels), axis=1)
    distance = np.linalg.norm(one - other, axis=1)
    allowed = loss.holder_constant * distance**loss.holder_exponent
    assert np.all(change <= allowed * (1.0 + 1e-9) + 1e-12)
    assert np.max(change / allowed) >= 0.95
    if loss.curvature is not None:
        assert loss.holder_exponent == 1.0
        assert loss.curvature == loss.holder_constant


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loss", LOSSES)
def test_any_array_library_and_dtype_give_the_same_residuals(loss: Loss, dtype: str) -> None:
    rng = np.random.default_rng(11)
    logits, labels = rng.normal(size=(60, loss.num_outputs)) * 3.0, labels_of(loss, 60, rng)
    xp = array_api_strict
    strict = (xp.asarray(logits, dtype=getattr(xp, dtype)), xp.asarray(labels))
    residuals = loss.residuals(xp, *strict)
    assert residuals.dtype == getattr(xp, dtype)
    assert loss.values(xp, *strict).dtype == getattr(xp, dtype)
    tolerance = 1e-12 if dtype == "float64" else 3e-6
    np.testing.assert_allclose(
        np.asarray(residuals), loss.residuals(np, logits, labels), atol=tolerance, rtol=tolerance
    )
    np.testing.assert_allclose(
        np.asarray(loss.values(xp, *strict)), loss.values(np, logits, labels), atol=tolerance, rtol=10 * tolerance
    )


@pytest.mark.parametrize("loss", LOSSES)
def test_huge_logits_do_not_overflow_what_has_a_bound(loss: Loss) -> None:
    logits = np.full((2, loss.num_outputs), 1e300) * np.array([[1.0], [-1.0]])
    with np.errstate(over="ignore"):
        residuals = loss.residuals(np, logits, np.array([0, 1]))
    if loss.lipschitz is not None:
        assert np.all(np.isfinite(residuals))


def test_constants_are_the_papers() -> None:
    """Wang, Lei, Ying & Zhang 2022, for |x| <= 1 and labels in [-1, 1]."""
    hinge, regression = QNormHinge(1.5), QNormRegression(1.5)
    assert (hinge.holder_exponent, hinge.holder_constant, hinge.slope_at_zero, hinge.value_at_zero) == (
        0.5,
        1.5,
        1.5,
        1.0,
    )
    assert regression.holder_constant == pytest.approx(math.sqrt(2.0) * 1.5)
    assert (regression.slope_at_zero, regression.value_at_zero) == (1.5, 1.0)


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: Softmax(1), "num_classes"),
        (lambda: Huber(0.0), "threshold"),
        (lambda: Quantile(1.0), "quantile"),
        (lambda: Quantile(0.0), "quantile"),
        (lambda: QNormHinge(2.5), "q must"),
        (lambda: QNormRegression(0.5), "q must"),
    ],
)
def test_numbers_outside_their_range_are_refused(attempt: object, complaint: str) -> None:
    assert callable(attempt)
    with pytest.raises(InvalidValue, match=complaint):
        attempt()
