"""Metrics on held-out rows: without noise they are those of public rows, and with it their intervals hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from trainer import held_out
from trainer.confidence import Estimate, bilinear_noise, ratio, sum_of_absolute_values
from trainer.held_out import GRAIN, Layout, layout_of
from trainer.held_out_metrics import HeldOutMetrics, metrics_of
from trainer.models import Model, Parameters, build
from trainer.scores import class_scores, number_scores
from trainer.streams import random_streams

ROWS, FEATURES = 3000, 3
TRIALS = 150
#: Of so many intervals that hold with probability 0.95 each, fewer hold with a probability below 1e-5.
FEWEST = 129


def exact_sums(model: Model, parameters: Parameters, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    layout, streams = layout_of(model, parameters), random_streams(1)
    return held_out.sums_in_grains(layout, model, parameters, features, labels, ROWS + 9, streams) * GRAIN


def classes_of(count: int) -> tuple[Model, Parameters, np.ndarray, np.ndarray]:
    random = np.random.default_rng(count)
    kind = "logistic_regression" if count == 2 else "softmax_regression"
    model = build(FEATURES, num_classes=count, kind=kind)
    parameters = model.parameters(1.5 * random.normal(size=model.num_parameters))
    features = random.uniform(-1, 1, (ROWS, FEATURES))
    shown = model.probabilities(parameters, features)
    assert shown is not None
    # Labels that are a little less sure than the model is, so that it is not calibrated.
    chances = 0.8 * shown + 0.2 / count
    labels = (random.random((ROWS, 1)) > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
    return model, parameters, features, labels


def numbers() -> tuple[Model, Parameters, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    model = build(FEATURES, num_classes=0, kind="linear_regression")
    parameters = {"weights": np.array([0.4, -0.2, 0.3]), "bias": np.array(0.05)}
    features = random.uniform(-1, 1, (ROWS, FEATURES))
    labels = np.clip(features @ np.array([0.5, -0.3, 0.2]) + 0.1 * random.normal(size=ROWS), -1, 1)
    return model, parameters, features, labels


def contains(found: Estimate, value: float) -> bool:
    return (found.lower is None or found.lower <= value) and (found.upper is None or value <= found.upper)


@pytest.mark.parametrize("count", [2, 4])
def test_without_noise_the_metrics_are_those_of_public_rows(count: int) -> None:
    model, parameters, features, labels = classes_of(count)
    sums = exact_sums(model, parameters, features, labels)
    found = metrics_of(layout_of(model, parameters), sums, 1e-9)
    public = class_scores(model, parameters, features, labels)
    for name in ("accuracy", "balanced_accuracy", "calibration_error"):
        estimate = getattr(found, name)
        assert estimate.estimate == pytest.approx(getattr(public, name), abs=1e-5)
        assert contains(estimate, getattr(public, name))
        assert estimate.upper - estimate.lower < 1e-4
    assert found.records.estimate == pytest.approx(ROWS)
    assert found.confusion_matrix == public.confusion_matrix
    # Losses are capped, and areas are binned.
    shown = model.probabilities(parameters, features)
    losses = np.minimum(-np.log(shown[np.arange(ROWS), labels]), found.log_loss_cap)
    assert found.log_loss.estimate == pytest.approx(losses.mean(), abs=1e-4) != public.log_loss
    assert contains(found.log_loss, losses.mean())
    assert contains(found.auc, public.auc)
    assert found.auc.estimate == pytest.approx(public.auc, abs=0.02)


def test_without_noise_errors_are_those_of_public_rows() -> None:
    model, parameters, features, labels = numbers()
    found = metrics_of(layout_of(model, parameters), exact_sums(model, parameters, features, labels), 1e-9)
    public = number_scores(model, parameters, features, labels)
    for name in ("mean_absolute_error", "root_mean_squared_error", "r_squared"):
        assert getattr(found, name).estimate == pytest.approx(getattr(public, name), abs=1e-3)
        assert contains(getattr(found, name), getattr(public, name))
    halved = found.with_errors_in(0.5)
    assert halved.mean_absolute_error.estimate == found.mean_absolute_error.estimate / 2
    assert halved.r_squared == found.r_squared


@pytest.mark.parametrize("noise", [3.0, 30.0])
@pytest.mark.parametrize("drawn", [2, 4, None])
def test_intervals_hold(drawn: int | None, noise: float) -> None:
    """Each as often as it says, whatever the noise is."""
    model, parameters, features, labels = numbers() if drawn is None else classes_of(drawn)
    layout, sums = layout_of(model, parameters), exact_sums(model, parameters, features, labels)
    public = (class_scores if drawn else number_scores)(model, parameters, features, labels)
    truth = {"records": float(ROWS), **vars(public)}
    if drawn is not None:
        capped = metrics_of(layout, sums, 1e-9).log_loss
        truth["log_loss"] = capped.estimate
    random = np.random.default_rng(4)
    held: dict[str, int] = {}
    for _ in range(TRIALS):
        found = metrics_of(layout, sums + noise * random.normal(size=sums.size), noise)
        for name, estimate in estimates(found).items():
            held[name] = held.get(name, 0) + contains(estimate, truth[name])
    assert min(held.values()) >= FEWEST, held
    assert len(held) == (6 if drawn else 4)
    # Those that are exact hold no more often than they say.
    exact = ["records", "accuracy" if drawn else "mean_absolute_error"]
    assert all(held[name] < TRIALS for name in exact)


def estimates(found: HeldOutMetrics) -> dict[str, Estimate]:
    return {name: each for name, each in vars(found).items() if isinstance(each, Estimate)}


def test_noise_alone_says_nothing() -> None:
    """No rows were held out, or so few that the noise hides them: intervals are all that there can be."""
    for layout in (Layout(2, True), Layout(3, True), Layout(0, False), Layout(30, True), Layout(2, False)):
        random = np.random.default_rng(2)
        for _ in range(50):
            found = metrics_of(layout, 20.0 * random.normal(size=layout.size), 20.0)
            for each in estimates(found).values():
                assert all(value is None or math.isfinite(value) for value in vars(each).values())
                assert each.lower is None or each.upper is None or each.lower <= each.upper
            assert found.records.lower < 100.0


def test_a_ratio_is_known_to_be_what_it_is_between() -> None:
    above, below = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert ratio(above, below, np.array([3.0, -1.0]), 1.0, 0.05, (0.0, 1.0)) == Estimate(None, 0.0, 1.0)
    assert ratio(above, below, np.array([30.0, 10.0]), 0.1, 0.05, (0.0, 1.0)) == Estimate(1.0, 1.0, 1.0)


def test_bounds_of_noise_are_passed_as_rarely_as_they_say() -> None:
    random = np.random.default_rng(3)
    totals = np.abs(random.normal(size=(20_000, 15))).sum(axis=1)
    assert np.mean(totals > sum_of_absolute_values(15, 0.05)) < 0.05
    left, right = random.uniform(0, 30, 6), random.uniform(0, 30, 6)
    matrix = np.tri(6) - 0.4
    passed = 0
    for _ in range(4000):
        p, n = left + 5.0 * random.normal(size=6), right + 5.0 * random.normal(size=6)
        passed += float(p @ matrix @ n - left @ matrix @ right) > bilinear_noise(matrix, p, n, 5.0, 0.1)
    assert passed / 4000 < 0.1
