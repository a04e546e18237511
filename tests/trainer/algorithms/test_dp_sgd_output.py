"""DP-SGD-Output as it runs: its transcription, losses held to the plan, what one record moves, noise, a run."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import array_api_strict
import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue, Unsupported
from accounting.events import ApproximateDp, Event
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.plan import Plan
from calibrators.registry import calibrate
from calibrators.release import LAST_ITERATE, AverageIterate
from calibrators.spec import Spec
from calibrators.wang_nonsmooth.stability import Stability
from tests.trainer.given import GivenStreams, trainer_of
from tests.transcriptions import dp_sgd_output as reference
from trainer.algorithms.dp_sgd_output import MARGIN, longest_row
from trainer.arrays import silent
from trainer.losses import Logistic, QNormHinge, QNormRegression, Quantile, Softmax, Squared
from trainer.models import LinearModel, Model, MultilayerPerceptron
from trainer.run import run
from trainer.streams import random_streams

ROWS, FEATURES, STEPS = 12, 3, 40
HINGE = LinearModel(QNormHinge(1.5), FEATURES, fit_intercept=True)


def plan_of(
    exponent: float = 0.5,
    constant: float = 6.0,
    gradient_norm: float = 9.0,
    radius: float = 0.6,
    *,
    steps: int = STEPS,
    step_size: float = 0.1,
    stddev: float = 0.3,
    rows: int = ROWS,
    **changes: Any,
) -> Plan:
    phase = OutputPerturbation(
        Event(ApproximateDp(1.0, 1e-6)), steps, step_size, exponent, constant, gradient_norm, radius, stddev
    )
    plan = Plan(
        "dp_sgd_output",
        rows,
        NeighboringRelation.REPLACE_ONE,
        (phase,),
        domain=L2Ball(radius),
        release=AverageIterate(),
    )
    return replace(plan, **changes)


def data(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(ROWS, FEATURES))
    features[::3] *= 50.0
    return features, rng.integers(0, 2, ROWS)


def released(
    plan: Plan, model: Model, some: tuple[Any, Any], noise: np.ndarray, indices: list[int | None]
) -> np.ndarray:
    empty = ROWS  # the first place without a row
    batches = [[empty if index is None else index] for index in indices]
    trainer = trainer_of(plan, model, *some, GivenStreams([noise], batches))
    for _ in range(plan.iterations):
        trainer.step()
    return np.asarray(trainer.released())


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "array_api_strict"])
def test_it_steps_like_its_transcription(xp: ModuleType) -> None:
    features, labels = data()
    rng = np.random.default_rng(1)
    indices: list[int | None] = [int(index) for index in rng.integers(0, ROWS, STEPS)]
    indices[3] = indices[17] = None
    noise = rng.standard_normal(FEATURES + 1)
    longest = longest_row(plan_of(), HINGE)
    scaled = 0

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        nonlocal scaled
        length = float(np.linalg.norm(features[i]))
        scaled += length > longest
        x = np.append(features[i] * min(1.0, longest / length), 1.0)
        y = 2.0 * labels[i] - 1.0
        shortfall = 1.0 - y * float(w @ x)
        found: np.ndarray = -1.5 * math.sqrt(max(shortfall, 0.0)) * y * x
        return found

    theirs = reference.released(gradient, indices, noise, eta=0.1, sigma=0.3, R=0.6)
    ours = released(plan_of(), HINGE, (xp.asarray(features), xp.asarray(labels)), noise, indices)
    # The average and the noise are rounded to the grid.
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert 0 < scaled < STEPS


MODELS = [
    (LinearModel(QNormHinge(1.5), 4, fit_intercept=True), 0.5),
    (LinearModel(QNormRegression(1.25), 4, fit_intercept=False), 0.25),
    (LinearModel(QNormHinge(1.0), 4, fit_intercept=True), 0.0),
    (LinearModel(Logistic(), 4, fit_intercept=True), 1.0),
    (LinearModel(Logistic(), 4, fit_intercept=True), 0.0),
    (LinearModel(Squared(), 4, fit_intercept=False), 1.0),
    (LinearModel(Quantile(0.2), 4, fit_intercept=True), 0.0),
    (LinearModel(Softmax(3), 4, fit_intercept=True), 1.0),
]


@pytest.mark.parametrize(("model", "exponent"), MODELS, ids=lambda value: getattr(value, "kind", value))
def test_every_record_has_the_planned_constants_once_its_row_is_short(model: LinearModel, exponent: float) -> None:
    """Gradients at the longest row by points far and near: within L and G, and near one of them."""
    rng = np.random.default_rng(8)
    for constant, norm, radius in ((6.0, 9.0, 0.6), (30.0, 6.0, 2.0)):
        longest = longest_row(plan_of(exponent, constant, norm, radius), model)
        reached = 0.0
        for _ in range(400):
            x = rng.normal(size=4)
            x *= longest / np.linalg.norm(x)
            x = np.append(x, 1.0) if model.fit_intercept else x
            count = model.num_outputs
            w = rng.normal(size=(x.size, count))
            w *= radius * rng.uniform() / np.linalg.norm(w)
            # Along the row, where logits move most; across kinks, too.
            v = w + np.outer(x, rng.normal(size=count)) * 10.0 ** rng.uniform(-6, 2)
            label = np.array([rng.integers(0, model.num_classes) if model.num_classes else rng.choice([-1.0, 1.0])])
            with silent():
                slopes = [model.loss.residuals(np, (x @ point)[None, :], label)[0] for point in (w, v)]
            here, there = (np.outer(x, slope) for slope in slopes)
            assert np.linalg.norm(here) <= norm
            apart = float(np.linalg.norm(w - v))
            assert np.linalg.norm(here - there) <= constant * apart**exponent * (1.0 + 1e-9)
            ratio = float(np.linalg.norm(here - there)) / (constant * apart**exponent)
            reached = max(reached, ratio, float(np.linalg.norm(here)) / norm)
        assert reached > 0.35, "rows are not scaled down for nothing"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_record_moves_the_average_by_no_more_than_its_draws_and_an_adversary_by_nearly_as_much(dtype: str) -> None:
    """Least absolute errors of far labels: every draw moves the points by 2 G eta, until the ball holds them."""
    model = LinearModel(Quantile(0.5), FEATURES, fit_intercept=False)
    plan = plan_of(0.0, 2.0, 1.0, radius=50.0, step_size=0.01, dtype=dtype)
    stability = Stability(0.0, 2.0, 1.0, 0.01, STEPS, 50.0)
    rng = np.random.default_rng(2)
    largest = 0.0
    for trial in range(60):
        features, labels = rng.normal(size=(ROWS, FEATURES)) * 10.0 ** rng.uniform(-2, 4), rng.uniform(-1, 1, ROWS)
        other, changed = features.copy(), labels.copy()
        if trial % 3:
            features[0] = other[0] = 1e6 * np.eye(FEATURES)[0]
            labels[0], changed[0] = 1.0, -1.0
            other[0] = -other[0] if trial % 3 == 2 else other[0]
        else:
            other[0] = np.nan
        draws = int(rng.integers(0, 5))
        indices: list[int | None] = [0] * draws + [int(index) for index in rng.integers(1, ROWS, STEPS - draws)]
        noise = rng.standard_normal(FEATURES)
        one = released(plan, model, (features, labels), noise, indices)
        two = released(plan, model, (other, changed), noise, indices)
        moved = float(np.linalg.norm(one - two))
        assert moved <= stability.displacement(draws)
        if draws == 0:
            assert moved == 0.0, "bit by bit"
        else:
            largest = max(largest, moved / (2.0 * stability.draw * draws))
    assert largest > 0.4


def test_what_is_released_is_noise_of_the_planned_scale_where_records_move_nothing() -> None:
    width = 4000
    model = LinearModel(Squared(), width, fit_intercept=False)
    plan = plan_of(1.0, 4.0, 9.0, steps=3)
    some = run(plan, model, np.zeros((ROWS, width)), np.zeros(ROWS), seed=3).parameters["weights"]
    assert stats.kstest(some / 0.3, "norm").pvalue > 1e-3
    assert stats.kstest(some / 0.25, "norm").pvalue < 1e-3, "the test would see 20 % more noise"


def test_every_slot_is_drawn_alike_and_steps_are_independent() -> None:
    """Each row is a direction of its own; at q = 1 a draw moves its coordinate by a step."""
    rows, steps = 20, 4000
    model = LinearModel(QNormHinge(1.0), rows, fit_intercept=False)
    plan = plan_of(0.0, 4.0, 2.0, radius=1e3, steps=steps, step_size=1e-5, rows=rows)
    streams = random_streams(4)
    trainer = trainer_of(plan, model, np.eye(rows), np.ones(rows, dtype=np.int64), streams)
    before, drawn = np.zeros(rows), []
    for _ in range(steps):
        trainer.step()
        after = np.asarray(trainer.state()["point"])
        [row] = np.flatnonzero(after != before)
        drawn.append(row)
        before = after
    trainer.close()
    assert stats.chisquare(np.bincount(drawn, minlength=rows)).pvalue > 1e-3
    again = np.mean(np.diff(drawn) == 0)
    assert abs(again - 1.0 / rows) < 5.0 * math.sqrt(1.0 / rows / steps)


@pytest.mark.parametrize(
    ("plan", "model", "pointer"),
    [
        (plan_of(), MultilayerPerceptron(3, 2, (4,)), ("model", "kind")),
        (plan_of(1.0), HINGE, ("assumptions", "holder_exponent")),
        (plan_of(constant=1.5), HINGE, ("assumptions", "holder_constant")),
        (plan_of(gradient_norm=1.0), HINGE, ("assumptions", "holder_constant")),
        (plan_of(steps=10**8, step_size=1e-8), HINGE, ("iterations",)),
        (plan_of(radius=0.1, domain=None), HINGE, ("assumptions", "loss_at_zero")),
        (plan_of(domain=L2Ball(0.7)), HINGE, ("domain",)),
        (plan_of(release=LAST_ITERATE), HINGE, ("release",)),
        (plan_of(penalty=L2Penalty(1.0)), HINGE, ("release",)),
    ],
    ids=["perceptron", "exponent", "smoothness", "gradient", "rounding", "loss", "domain", "release", "penalty"],
)
def test_what_could_not_be_kept_is_refused(plan: Plan, model: Model, pointer: tuple[str, ...]) -> None:
    with pytest.raises((InvalidValue, Unsupported)) as refused:
        run(plan, model, np.zeros((ROWS, 3)), np.zeros(ROWS, dtype=np.int64))
    assert refused.value.pointer == pointer


def test_the_sign_of_an_average_that_is_rounded_to_zero_is_not_seen() -> None:
    """Opposite rows move the average by less than a step of the grid, to zero or to minus zero."""
    released = []
    for sign in (1.0, -1.0):
        rows = np.full((ROWS, FEATURES), sign * 1e-12)
        streams = GivenStreams([np.full(FEATURES + 1, -1e-300)])
        found = run(plan_of(), HINGE, rows, np.arange(ROWS) % 2, streams=streams).parameters["weights"]
        assert not found.any()
        released.append(np.signbit(found).tolist())
    assert released[0] == released[1]


def test_a_whole_run_ends_under_its_expected_bound() -> None:
    rows = 20_000
    rng = np.random.default_rng(9)
    model = LinearModel(QNormHinge(1.5), 3, fit_intercept=False)
    features = rng.standard_normal((rows, 3))
    features *= (1.0 - MARGIN) / np.linalg.norm(features, axis=1, keepdims=True)
    labels = (features[:, 0] > 0.0).astype(np.int64)
    constants = model.holder(1.0)
    found = calibrate(
        "dp_sgd_output",
        Spec(
            rows,
            ApproximateDpTarget(4.0, 1e-6),
            dimension=3,
            assumptions={
                "radius": 1.0,
                "holder_exponent": constants.exponent,
                "holder_constant": constants.constant,
                "gradient_at_zero": constants.gradient_at_zero,
                "loss_at_zero": constants.loss_at_zero,
                "failure_probability": 0.05,
            },
        ),
    )

    def risk(w: np.ndarray) -> float:
        return float(np.mean(np.maximum(0.0, 1.0 - (2 * labels - 1) * (features @ w)) ** 1.5))

    result = run(found.plan, model, features, labels, seed=1)
    values = {item.name: item.value for item in found.utility}
    expected, likely = values["expected_excess_risk_bound"], values["excess_risk_bound"]
    assert isinstance(expected, float)
    assert isinstance(likely, float)
    # Labels are those of the first coordinate: the risk is least near (1, 0, 0), and nowhere lower by more than 0.005.
    excess = risk(result.parameters["weights"]) - (risk(np.array([1.0, 0.0, 0.0])) - 0.005)
    assert excess < expected < likely < constants.loss_at_zero
    assert excess < 0.5 * (1.0 - risk(np.array([1.0, 0.0, 0.0])))
