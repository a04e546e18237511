"""Constants of a run's objective: true of every row within the declared bounds, and not far above the largest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from app.algorithms.constants import MOMENT_ORDER, constants
from calibrators.geometry import Box, L1Ball, L2Ball, L2Penalty, Simplex
from trainer import scaling
from trainer.models import LinearModel, MeanModel, build

COLUMNS: list[scaling.Column] = [scaling.NumberColumn(0, 10), scaling.CategoryColumn(3), scaling.NumberColumn(-1, 1)]
RADIUS = 1.5
#: Every kind, and options at which the theory changes.
MODELS: dict[str, dict[str, Any]] = {
    "logistic": {"kind": "logistic_regression"},
    "softmax": {"kind": "softmax_regression", "num_classes": 4},
    "least squares": {"kind": "linear_regression"},
    "huber": {"kind": "huber_regression", "threshold": 0.5},
    "quantile": {"kind": "quantile_regression", "quantile": 0.9},
    "absolute": {"kind": "q_norm_regression", "q": 1.0},
    "regression 1.5": {"kind": "q_norm_regression", "q": 1.5},
    "regression 2": {"kind": "q_norm_regression", "q": 2.0},
    "hinge": {"kind": "q_norm_hinge", "q": 1.0},
    "hinge 1.5": {"kind": "q_norm_hinge", "q": 1.5},
    "hinge 2": {"kind": "q_norm_hinge", "q": 2.0},
}
UNBOUNDED = {"least squares", "regression 1.5", "regression 2", "hinge 1.5", "hinge 2"}
NORMS = {1.0: np.inf, 1.5: 3, 2.0: 2}


def model_of(name: str, *, fit_intercept: bool = True) -> LinearModel:
    model = build(scaling.num_features(COLUMNS), fit_intercept=fit_intercept, **MODELS[name])
    assert isinstance(model, LinearModel)
    return model


def rows(model: LinearModel, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Inputs with their constant, of values within and far beyond the bounds, and labels of every kind."""
    random = np.random.default_rng(7)
    values = [random.choice([-50.0, 0.0, 3.0, 10.0, 60.0], count), random.integers(-1, 3, count)]
    values.append(random.choice([-1.0, 0.1, 1.0], count))
    # Two of the longest, with labels on either side.
    for column in values:
        column[:2] = 1
    values[0][:2] = 60.0
    inputs = scaling.scale_features(COLUMNS, values)
    if model.fit_intercept:
        inputs = np.hstack([inputs, np.ones((count, 1))])
    classes = model.num_classes
    labels = random.integers(classes, size=count) if classes else random.choice([-1.0, 0.25, 1.0], count)
    labels[:2] = (0, 1) if classes else (-1.0, 1.0)
    return inputs, labels


def points(model: LinearModel, inputs: np.ndarray, norm: float, radius: float) -> list[np.ndarray]:
    """Zero, random ones, and those that lie along a row and against it: at the radius, where gradients are longest."""
    random, outputs = np.random.default_rng(8), model.num_outputs
    found = [np.zeros((inputs.shape[1], outputs))]
    for scale in (0.1, 1.0):
        for row in inputs[:12]:
            aligned = np.zeros((inputs.shape[1], outputs))
            if norm == 1.0:
                aligned[np.argmax(np.abs(row)), 0] = np.sign(row[np.argmax(np.abs(row))])
            else:
                aligned[:, 0] = np.sign(row) * np.abs(row) ** (1.0 / (norm - 1.0))
                aligned /= np.linalg.norm(aligned.ravel(), norm)
            if outputs > 1:  # two classes of opposite logits differ most
                aligned[:, 1] = -aligned[:, 0]
                aligned /= np.linalg.norm(aligned.ravel(), norm)
            other = random.standard_normal(aligned.shape)
            other /= np.linalg.norm(other.ravel(), norm)
            found += [scale * radius * direction for direction in (aligned, -aligned, other)]
    return found


def gradients(model: LinearModel, point: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Every row's gradient at the point, shape (n, d)."""
    residuals = model.loss.residuals(np, inputs @ point, labels)
    return np.einsum("ni,nk->nik", inputs, residuals).reshape(len(inputs), -1)


def lengths(vectors: np.ndarray, norm: float) -> np.ndarray:
    """In the dual of the parameters' norm."""
    return np.linalg.norm(vectors, ord=NORMS[norm], axis=1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_the_constants_hold_for_rows_within_the_bounds(name: str, fit_intercept: bool, norm: float) -> None:
    model = model_of(name, fit_intercept=fit_intercept)
    found = constants(model, COLUMNS, {"radius": RADIUS} if name in UNBOUNDED else {}, norm)
    inputs, labels = rows(model)
    # Where gradients have a bound everywhere, points far out must obey it too.
    some = points(model, inputs, norm, RADIUS if name in UNBOUNDED else 100.0)
    at = [gradients(model, point, inputs, labels) for point in some]
    longest = max(lengths(each, norm).max() for each in at)
    assert longest <= found["lipschitz"] * (1 + 1e-12)
    nearly = 0.99 if norm != 1.5 or name != "softmax" else 0.9
    assert longest > nearly * found["lipschitz"], "no less would do"
    assert lengths(at[0], norm).max() <= found["gradient_at_zero"] * (1 + 1e-12)
    assert lengths(at[0], norm).max() > 0.99 * found["gradient_at_zero"]
    values = model.loss.values(np, inputs @ some[0], labels)
    assert 0.0 <= values.max() <= found["loss_at_zero"] * (1 + 1e-12)
    assert found["initial_gap"] == found["loss_at_zero"]
    for each in at:
        assert lengths(each - each.mean(axis=0), norm).max() <= found["deviation_tau0"]
        moment = np.mean(lengths(each, norm) ** MOMENT_ORDER) ** (1.0 / MOMENT_ORDER)
        assert moment <= found["moment_bound"]
    assert found["moment_order"] == MOMENT_ORDER


@pytest.mark.one_in(4)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_change_no_faster_than_their_constants(name: str, norm: float) -> None:
    model = model_of(name)
    found = constants(model, COLUMNS, {}, norm)
    inputs, labels = rows(model)
    some = points(model, inputs, norm, 3.0)
    exponent, constant = found["holder_exponent"], found["holder_constant"]
    shares = []
    for one in some[::3]:
        for other in some[1::4]:
            distance = np.linalg.norm((one - other).ravel(), ord=norm)
            if distance == 0.0:
                continue
            change = gradients(model, one, inputs, labels) - gradients(model, other, inputs, labels)
            shares.append(lengths(change, norm).max() / (constant * distance**exponent))
            if "smoothness" in found:
                assert lengths(change, norm).max() <= found["smoothness"] * distance * (1 + 1e-12)
    assert max(shares) <= 1 + 1e-12
    assert max(shares) > 0.3, "the constant is not a trivial one"


@pytest.mark.parametrize("name", ["logistic", "softmax", "least squares", "huber", "hinge 2"])
def test_an_l2_penalty_makes_the_objective_strongly_convex_and_no_smoother(name: str) -> None:
    model, strength = model_of(name), 0.75
    found = constants(model, COLUMNS, {"radius": RADIUS}, 2.0, penalty=L2Penalty(strength))
    plain = constants(model, COLUMNS, {"radius": RADIUS}, 2.0)
    assert (found["strong_convexity"], found["smoothness"]) == (strength, plain["smoothness"] + strength)
    assert "strong_convexity" not in plain
    for name_of_clipped in ("lipschitz", "moment_bound", "holder_constant"):
        assert found[name_of_clipped] == plain[name_of_clipped], "the penalty is not clipped"
    inputs, labels = rows(model)
    some = points(model, inputs, 2.0, RADIUS)
    for one, other in pairwise(some):
        apart = (one - other).ravel()
        changes = gradients(model, one, inputs, labels) - gradients(model, other, inputs, labels) + strength * apart
        slopes = changes @ apart / (apart @ apart)
        assert slopes.min() >= found["strong_convexity"] * (1 - 1e-9)
        assert slopes.max() <= found["smoothness"] * (1 + 1e-9)


@pytest.mark.parametrize("norm", NORMS)
def test_a_penalty_is_strongly_convex_in_the_norm_of_parameters(norm: float) -> None:
    model = model_of("logistic")
    found = constants(model, COLUMNS, {}, norm, penalty=L2Penalty(0.75))["strong_convexity"]
    points = [np.eye(model.num_parameters)[0], np.ones(model.num_parameters)]
    ratios = [0.75 * float(point @ point) / float(np.linalg.norm(point, norm)) ** 2 for point in points]
    assert min(ratios) == pytest.approx(found, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "domain", "norm", "radius"),
    [
        ({"radius": 2.0}, None, 2.0, 2.0),
        ({"diameter": 4.0}, None, 2.0, 2.0),
        ({}, L2Ball(2.0), 2.0, 2.0),
        ({"diameter": 6.0}, L2Ball(2.0), 2.0, 2.0),
        ({}, L1Ball(2.0), 2.0, 2.0),
        ({}, Box(-0.5, 1.0), 2.0, math.sqrt(6)),
        ({}, L1Ball(2.0), 1.0, 2.0),
        ({"radius": 2.0}, None, 1.0, 2.0),
    ],
)
def test_a_radius_from_anywhere_bounds_an_unbounded_loss(given, domain, norm, radius) -> None:
    model = model_of("least squares")
    found = constants(model, COLUMNS, given, norm, domain=domain)
    bound = 1.0 if norm == 1.0 else 2.0
    assert found["lipschitz"] == pytest.approx(bound * (1.0 + bound * radius))


@pytest.mark.parametrize("given", [{}, {"radius": 0.0}, {"radius": -1.0}, {"diameter": -3.0}, {"radius": 1e308}])
def test_without_a_usable_radius_an_unbounded_loss_has_no_bound(given: dict[str, float]) -> None:
    found = constants(model_of("regression 1.5"), COLUMNS, given, 2.0)
    assert not {"lipschitz", "moment_bound", "moment_order", "deviation_tau0"} & set(found)
    assert all(map(math.isfinite, found.values()))


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ({"moment_bound": 1.0}, {"moment_bound", "moment_bound_2k", "moment_order"}),
        ({"moment_bound_2k": 1.0}, {"moment_bound", "moment_bound_2k", "moment_order"}),
        ({"holder_exponent": 0.5}, {"holder_exponent", "holder_constant"}),
        ({"holder_constant": 0.5}, {"holder_exponent", "holder_constant"}),
        ({"moment_order": 3.0}, set()),
        ({"lipschitz": 1.0}, {"link_lipschitz"}),
        ({"link_lipschitz": 1.0}, {"lipschitz", "link_lipschitz"}),
    ],
)
def test_a_constant_that_means_nothing_without_another_is_not_put_beside_the_requests_own(given, left_out) -> None:
    pairs = {"moment_bound", "moment_bound_2k", "moment_order", "holder_exponent", "holder_constant"}
    pairs |= {"link_lipschitz"} | ({"lipschitz"} if "link_lipschitz" in given else set())
    assert pairs - set(constants(model_of("logistic"), COLUMNS, given, 2.0)) == left_out


def test_a_model_that_is_not_linear_has_no_constants() -> None:
    assert constants(build(3, kind="mlp", num_classes=2, hidden=[4]), COLUMNS, {}, 2.0) == {}


def test_declarations_alone_decide() -> None:
    wide: Sequence[scaling.Column] = [scaling.NumberColumn(-1e9, 1e9), scaling.CategoryColumn(3)]
    narrow: Sequence[scaling.Column] = [scaling.NumberColumn(0, 1e-9), scaling.CategoryColumn(3)]
    model = build(4, kind="logistic_regression")
    assert constants(model, wide, {}, 2.0) == constants(model, narrow, {}, 2.0)


def test_the_records_of_a_mean_are_no_longer_than_their_bound() -> None:
    model = MeanModel(scaling.num_features(COLUMNS))
    found = constants(model, COLUMNS, {}, 2.0)
    lengths = np.linalg.norm(rows(model_of("huber", fit_intercept=False))[0], axis=1)
    longest = 3.0**0.5
    expected = {"moment_order": 64.0, "moment_bound": longest, "coordinate_moment_bound": 2.0, "mean_bound": longest}
    assert found == expected
    assert 0.98 * found["moment_bound"] <= np.nanmax(lengths) <= found["moment_bound"] * (1.0 + 1e-12)
    for given in ("moment_bound", "coordinate_moment_bound"):
        assert constants(model, COLUMNS, {given: 1.0}, 2.0) == {"mean_bound": longest}


def test_the_gap_of_the_start_is_known_where_a_run_starts_from_zero() -> None:
    model = model_of("logistic")
    for domain in (None, L2Ball(1.0), Box(-1.0, 0.0)):
        assert constants(model, COLUMNS, {}, 2.0, domain=domain)["initial_gap"] == pytest.approx(np.log(2.0))
    for away in (Simplex(1.0), Box(0.5, 1.0)):
        assert "initial_gap" not in constants(model, COLUMNS, {}, 2.0, domain=away)
