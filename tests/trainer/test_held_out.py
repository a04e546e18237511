"""The noisy sums over held-out rows: how far one row moves them, their noise, and what their work depends on."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from calibrators.held_out import HeldOutEvaluation
from trainer import held_out, models
from trainer.audit.bounds import mu_from_rates
from trainer.held_out import GRAIN, Layout, layout_of, noise_stddev, noisy_sums
from trainer.streams import random_streams

FEATURES = 3
KINDS: dict[str, dict[str, Any]] = {
    "two classes": {"kind": "logistic_regression", "num_classes": 2},
    "a logit for each of two": {"kind": "softmax_regression", "num_classes": 2},
    "five classes": {"kind": "softmax_regression", "num_classes": 5},
    "many classes": {"kind": "softmax_regression", "num_classes": 23},
    "no probabilities": {"kind": "q_norm_hinge", "num_classes": 2, "q": 1.5},
    "a perceptron": {"kind": "mlp", "num_classes": 3, "hidden": (4,)},
    "numbers": {"kind": "linear_regression", "num_classes": 0},
}


def drawn(name: str, scale: float = 2.0) -> tuple[models.Model, models.Parameters]:
    model = models.build(FEATURES, **KINDS[name])
    point = scale * np.random.default_rng(5).normal(size=model.num_parameters)
    return model, model.parameters(point)


def labels_of(model: models.Model, rows: int, random: np.random.Generator) -> np.ndarray:
    return random.integers(model.num_classes, size=rows) if model.num_classes else random.uniform(-1, 1, rows)


def sums_of(model, parameters, features, labels, capacity=64, seed=3) -> list[int]:
    """The exact sums, in whole grains."""
    layout = layout_of(model, parameters)
    streams = random_streams(seed)
    found = held_out.sums_in_grains(layout, model, parameters, features, labels, capacity, streams)
    assert np.array_equal(found, np.round(found))
    return [int(each) for each in found]


def squared_distance(one: list[int], other: list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


#: In grains squared: what is compared is whole numbers.
def squared_bound(layout: Layout) -> int:
    return math.floor(len(layout.sizes) * Fraction(GRAIN) ** -2)


#: Rows that are not what a data set's declaration allows.
EXTREME = [[0.0, 0.0, 0.0], [1e300, -1e300, 1.0], [math.nan, 0.0, 0.0], [math.inf, 1.0, 1.0], [5e-324, 0.0, -1e-310]]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("scale", [0.0, 2.0, 1e3, math.inf])
def test_a_row_moves_the_sums_within_the_bound(name: str, scale: float) -> None:
    """By C if it comes or goes, by 2 C if it is replaced, in exact whole numbers, whatever it and the model hold."""
    model, parameters = drawn(name, scale)
    layout, random = layout_of(model, parameters), np.random.default_rng(7)
    features, labels = random.uniform(-1, 1, (40, FEATURES)), labels_of(model, 40, random)
    whole = sums_of(model, parameters, features, labels)
    without = sums_of(model, parameters, features[:-1], labels[:-1])
    assert 0 < squared_distance(whole, without) <= squared_bound(layout)
    for row in EXTREME:
        for label in [0, 1, -7, 10**6] if model.num_classes else [0.0, 1.0, -1.0, 1e300, math.nan]:
            changed = features.copy(), labels.copy()
            changed[0][-1], changed[1][-1] = row, label
            moved = sums_of(model, parameters, *changed)
            assert squared_distance(moved, without) <= squared_bound(layout)
            assert squared_distance(moved, whole) <= 4 * squared_bound(layout)


def test_the_bound_is_attained_up_to_rounding() -> None:
    """So that it is no larger than it must be: a row that is right of surely, and one that is wrong of surely."""
    model = models.build(1, kind="logistic_regression", num_classes=2)
    parameters = {"weights": np.array([0.0]), "bias": np.array(60.0)}
    row = np.zeros((1, 1))
    none = sums_of(model, parameters, row[:0], np.zeros(0))
    wrong = sums_of(model, parameters, row, np.array([0]))
    bound = squared_bound(layout_of(model, parameters))
    assert squared_distance(wrong, none) == bound
    number = models.build(1, kind="linear_regression", num_classes=0)
    worst = {"weights": np.array([0.0]), "bias": np.array(1.0)}
    far = sums_of(number, worst, row, np.array([-1.0]))
    assert squared_distance(far, sums_of(number, worst, row[:0], np.zeros(0))) == bound


@pytest.mark.parametrize("name", KINDS)
def test_other_rows_add_what_they_added(name: str) -> None:
    """Whatever the others are, a row adds the same: the sums are those of each row among strangers."""
    model, parameters = drawn(name)
    random = np.random.default_rng(8)
    features, labels = random.uniform(-1, 1, (30, FEATURES)), labels_of(model, 30, random)
    total = np.zeros(layout_of(model, parameters).size, dtype=object)
    for place in range(30):
        shown, given = random.uniform(-1, 1, (30, FEATURES)), labels_of(model, 30, random)
        shown[-1], given[-1] = features[place], labels[place]
        with_it, without = (sums_of(model, parameters, shown[:end], given[:end]) for end in (30, 29))
        total += np.array(with_it, dtype=object) - np.array(without, dtype=object)
    assert total.tolist() == sums_of(model, parameters, features, labels)


def test_noise_is_that_of_the_event() -> None:
    """Its standard deviation over the bound is the multiplier that is charged, and it lies on the grid."""
    model, parameters = drawn("two classes")
    evaluation, layout = HeldOutEvaluation(3.0), layout_of(model, parameters)
    assert noise_stddev(evaluation, layout) >= 3.0 * math.sqrt(5.0)
    features, labels = np.zeros((0, FEATURES)), np.zeros(0)
    found = np.concatenate(
        [noisy_sums(evaluation, model, parameters, features, labels, 8, random_streams(seed)) for seed in range(120)]
    )
    assert np.array_equal(found / GRAIN, np.round(found / GRAIN))
    assert not np.any(np.signbit(found[found == 0.0]))
    stddev = float(np.std(found)) / layout.bound
    assert stddev == pytest.approx(3.0, rel=5.0 / math.sqrt(2.0 * found.size))


def test_an_attacker_stays_under_the_claim_and_comes_near_it() -> None:
    """The best test between a row and none: its error rates show most of the claimed mu, and no more."""
    model = models.build(1, kind="logistic_regression", num_classes=2)
    parameters = {"weights": np.array([0.0]), "bias": np.array(60.0)}
    evaluation, trials = HeldOutEvaluation(0.8), 500
    row, label = np.zeros((1, 1)), np.array([0])
    added = np.array(sums_of(model, parameters, row, label, 4)) * GRAIN
    direction = added / np.linalg.norm(added)

    def beyond(rows: np.ndarray, labels: np.ndarray, first: int) -> int:
        drawn_of = (
            noisy_sums(evaluation, model, parameters, rows, labels, 4, random_streams(first + trial))
            for trial in range(trials)
        )
        return sum(float(sums @ direction) > np.linalg.norm(added) / 2.0 for sums in drawn_of)

    true, false = beyond(row, label, 0), beyond(row[:0], label[:0], trials)
    claimed = 1.0 / evaluation.noise_multiplier
    assert 0.6 * claimed < mu_from_rates(true, trials, false, trials, 0.99) <= claimed


def test_the_work_is_that_of_the_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of rows, the same slots are predicted in the same blocks, and the same cells are added up."""
    model, parameters = drawn("five classes")
    random = np.random.default_rng(9)
    seen: list[tuple[Any, ...]] = []
    predict, bincount = type(model).predict, np.bincount

    def predicted(self: Any, parameters: Any, rows: Any) -> Any:
        seen.append(("predict", rows.shape, rows.dtype))
        return predict(self, parameters, rows)

    def counted(cells: Any, weights: Any, minlength: int) -> Any:
        seen.append(("bincount", cells.shape, weights.shape, minlength))
        return bincount(cells, weights=weights, minlength=minlength)

    monkeypatch.setattr(type(model), "predict", predicted)
    monkeypatch.setattr(np, "bincount", counted)
    monkeypatch.setattr("trainer.scores._BLOCK_NUMBERS", 16 * 1024)
    traces = []
    for rows in (0, 1, 39, 40):
        features, labels = random.uniform(-1, 1, (rows, FEATURES)), labels_of(model, rows, random)
        noisy_sums(HeldOutEvaluation(1.0), model, parameters, features, labels, 40, random_streams(rows))
        traces.append(seen.copy())
        seen.clear()
    assert len(traces[0]) > 6
    assert traces[0] == traces[1] == traces[2] == traces[3]
