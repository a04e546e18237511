"""Weights of classes from public priors: contributions keep their bound, and clipping takes no weight back."""

from __future__ import annotations

import numpy as np
import pytest

from accounting.errors import InvalidValue
from calibrators.plan import Clip, GradientBound, Normalize
from tests.trainer.plans import phase_of, plan_of
from trainer.grid import grid_for
from trainer.losses import Logistic, Softmax, Weighted
from trainer.losses.weighted import weights_of_priors
from trainer.models import Model, build
from trainer.records import prepare
from trainer.run import run
from trainer.streams import random_streams
from trainer.sums import BoundedSum

PRIORS = (0.9, 0.1)


def contribution(model: Model, label: int, bound: GradientBound) -> np.ndarray:
    """Return what one long record of a class adds to the sum, divided by the bound."""
    features = np.array([[3.0, -4.0]])
    records = prepare(model, features, np.array([label]), "float64", 1, random_streams(0).slots)
    grid = grid_for(1.0, model.num_parameters, "float64", 1)
    total = BoundedSum(model, records, "float64").at(np.zeros(model.num_parameters), slice(0, 1), bound, grid)
    found: np.ndarray = total * grid.step
    return found


@pytest.mark.parametrize("bound", [Clip(0.1), Clip(100.0), Normalize(0.01)])
@pytest.mark.parametrize("kind", ["logistic_regression", "softmax_regression", "mlp"])
def test_a_bounded_gradient_is_multiplied_by_its_weight_whatever_the_bound_is(kind: str, bound: GradientBound) -> None:
    plain = build(2, kind=kind, num_classes=2, hidden=(3,))
    weighted = build(2, kind=kind, num_classes=2, hidden=(3,), class_priors=PRIORS)
    for label, weight in enumerate(weights_of_priors(PRIORS)):
        alone, found = contribution(plain, label, bound), contribution(weighted, label, bound)
        np.testing.assert_allclose(found, weight * alone, rtol=1e-3, atol=1e-6)
        assert np.linalg.norm(found) <= weight


def test_bounds_of_the_loss_hold() -> None:
    """Every constant of the loss is one of the weighted loss, for both kinds of labels and far logits."""
    random = np.random.default_rng(0)
    for loss, weights in ((Logistic(), (0.2, 1.0)), (Softmax(3), (1.0, 0.3, 0.01))):
        weighted = Weighted(loss, weights)
        logits = random.normal(size=(500, loss.num_outputs)) * 5.0
        other = logits + random.normal(size=logits.shape) * 0.1
        for label in range(loss.num_classes):
            labels = np.full(500, label)
            slopes = weighted.residuals(np, logits, labels)
            assert weighted.lipschitz is not None
            assert np.linalg.norm(slopes, axis=1).max() <= weighted.lipschitz
            changes = np.linalg.norm(weighted.residuals(np, other, labels) - slopes, axis=1)
            assert np.all(changes <= weighted.holder_constant * np.linalg.norm(other - logits, axis=1) + 1e-12)
            assert weighted.values(np, np.zeros((1, loss.num_outputs)), np.array([label]))[0] <= weighted.value_at_zero


def test_a_rare_class_is_found_where_it_would_be_passed_over() -> None:
    """A private run on a tenth of positives: weights raise the share of them that is found."""
    random = np.random.default_rng(3)
    labels = (random.random(4000) < 0.1).astype(np.int64)
    features = np.clip(0.35 * random.normal(size=(4000, 3)) + 0.35 * labels[:, None] * [1.0, 0.5, 0.0], -1.0, 1.0)
    phase = phase_of(Clip(0.5), noise_multiplier=20.0, steps=150, divisor=4000, step_size=4.0)
    found = {}
    for priors in (None, PRIORS):
        model = build(3, kind="logistic_regression", class_priors=priors)
        released = run(plan_of("dp_sgd", phase, size=4000), model, features, labels, seed=1).parameters
        predicted = model.predict(released, features)
        found[priors] = [float(np.mean(predicted[labels == each] == each)) for each in (0, 1)]
    assert np.mean(found[PRIORS]) > np.mean(found[None]) + 0.1
    assert found[None][1] < 0.5 < found[PRIORS][1]


@pytest.mark.parametrize(
    ("priors", "words"),
    [
        ((0.5, 0.4), "sum to 1"),
        ((1.0,), "at least two entries"),
        ((0.0, 1.0), "class_priors"),
        ((0.5, 0.3, 0.2), "2 weights"),
    ],
)
def test_priors_that_are_none_are_refused(priors: tuple[float, ...], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        build(2, kind="logistic_regression", class_priors=priors)


def test_a_number_has_no_classes() -> None:
    with pytest.raises(InvalidValue, match="predicts no class"):
        build(2, kind="linear_regression", class_priors=PRIORS)


@pytest.mark.parametrize("priors", [PRIORS, (0.2, 0.3, 0.5), (0.25,) * 4])
def test_all_classes_together_weigh_the_same_and_no_record_more_than_one(priors: tuple[float, ...]) -> None:
    weights = weights_of_priors(priors)
    assert max(weights) == 1.0
    np.testing.assert_allclose(np.multiply(weights, priors), min(priors), rtol=1e-12)
    with pytest.raises(InvalidValue, match="class_weights"):
        Weighted(Logistic(), (1.5, 1.0))
