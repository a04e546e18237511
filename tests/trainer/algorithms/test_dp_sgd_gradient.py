"""dp_sgd_gradient is itself: equal to its transcription step by step, averaged, projected, as private as charged."""

from __future__ import annotations

import math
from dataclasses import replace
from types import ModuleType
from typing import Any

import array_api_strict
import numpy as np
import pytest
from scipy.stats import kstest

from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.plan import Clip, Phase, Plan
from calibrators.registry import calibrate
from calibrators.release import AverageIterate, LastIterate
from calibrators.spec import Spec
from tests.trainer.given import GivenStreams, trainer_of
from tests.transcriptions import dp_sgd_gradient as reference
from trainer.algorithms.dp_sgd_gradient import update
from trainer.clipping import margin
from trainer.loop import GradientSteps, Step
from trainer.losses import QNormHinge, QNormRegression
from trainer.models import LinearModel, PerRecordModel
from trainer.run import run
from trainer.streams import random_streams

ROWS, FEATURES, STEPS = 30, 4, 12
G, RADIUS, SIGMA, ETA = 2.0, 0.9, 0.7, 0.4
#: What a transcription without the margin has to clip at to be equal to the last digits.
CLIP = G * (1.0 - margin("float64"))

MODELS = {
    "hinge": LinearModel(QNormHinge(1.5), FEATURES, fit_intercept=False),
    "regression": LinearModel(QNormRegression(1.25), FEATURES, fit_intercept=True),
}


def hinge_gradient(w: np.ndarray, x: np.ndarray, label: float) -> np.ndarray:
    y = 2.0 * label - 1.0
    shortfall = 1.0 - y * float(w @ x)
    return -1.5 * shortfall**0.5 * y * x if shortfall > 0.0 else 0.0 * x


def regression_gradient(w: np.ndarray, x: np.ndarray, label: float) -> np.ndarray:
    ones = np.append(x, 1.0)
    r = label - float(w @ ones)
    return -1.25 * math.copysign(abs(r) ** 0.25, r) * ones


GRADIENTS = {"hinge": hinge_gradient, "regression": regression_gradient}


def data(kind: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(11)
    features = random.standard_normal((ROWS, FEATURES))
    labels = random.integers(0, 2, ROWS) if kind == "hinge" else random.uniform(-1.0, 1.0, ROWS)
    return features, labels


def plan_of(*, divisor: int = 1, steps: int = STEPS, sigma: float = SIGMA, rows: int = ROWS, **changes: Any) -> Plan:
    """Noise of standard deviation sigma on the mean gradient."""
    event = Event(Gaussian(sigma * divisor / G), WithoutReplacement(divisor, rows), steps)
    plan = Plan(
        "dp_sgd_gradient",
        rows,
        NeighboringRelation.REPLACE_ONE,
        (Phase(event, Clip(G), divisor, ETA),),
        domain=L2Ball(RADIUS),
        release=AverageIterate(),
    )
    return replace(plan, **changes)


def given(kind: str, divisor: int) -> tuple[list[list[int]], list[np.ndarray]]:
    """Batches and noise: the third batch is empty, which a record less than declared can make it."""
    random = np.random.default_rng(7)
    batches: list[list[int]] = [random.choice(ROWS, divisor, replace=False).tolist() for _ in range(STEPS)]
    batches[2] = []
    return batches, list(random.standard_normal((STEPS, MODELS[kind].num_parameters)))


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "array_api_strict"])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("divisor", [1, 3])
def test_every_step_equals_the_transcription(kind: str, divisor: int, xp: ModuleType) -> None:
    features, labels = data(kind)
    batches, noises = given(kind, divisor)
    model, streams = MODELS[kind], GivenStreams(noises, batches)
    trainer = trainer_of(plan_of(divisor=divisor), model, xp.asarray(features), xp.asarray(labels), streams)
    path, average = reference.trajectory(
        np.zeros(model.num_parameters),
        lambda w, i: GRADIENTS[kind](w, features[i], float(labels[i])),
        batches,
        noises,
        eta=ETA,
        G=CLIP,
        sigma=SIGMA,
        b=divisor,
        R=RADIUS,
    )
    on_the_boundary = 0
    for expected in path:
        trainer.step()
        point = np.asarray(trainer.point)  # type: ignore[attr-defined]
        np.testing.assert_allclose(point, expected, atol=1e-5)  # sums and noise are rounded to the grid
        on_the_boundary += abs(float(np.linalg.norm(point)) - RADIUS) < 1e-9
    assert 0 < on_the_boundary < STEPS, "the projection was tried, and points inside were"
    np.testing.assert_allclose(np.asarray(trainer.released()), average, atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_some_gradients_of_the_comparison_are_clipped_and_some_are_not(kind: str) -> None:
    features, labels = data(kind)
    zero = np.zeros(MODELS[kind].num_parameters)
    norms = [float(np.linalg.norm(GRADIENTS[kind](zero, features[i], float(labels[i])))) for i in range(ROWS)]
    assert min(norms) < CLIP < max(norms)


def released(plan: Plan, noises: list[np.ndarray], batches: list[list[int]]) -> np.ndarray:
    features, labels = data("hinge")
    result = run(plan, MODELS["hinge"], features, labels, streams=GivenStreams(noises, batches))
    assert result.steps == STEPS
    return result.parameters["weights"]


def test_what_is_released_is_the_mean_of_the_points_before_steps_so_the_last_noise_is_not_used() -> None:
    batches, noises = given("hinge", 1)
    base = released(plan_of(), noises, batches)
    np.testing.assert_array_equal(released(plan_of(), [*noises[:-1], 100.0 + noises[-1]], batches), base)
    before_last = [*noises[:-2], 1.0 + noises[-2], noises[-1]]
    assert np.linalg.norm(released(plan_of(), before_last, batches) - base) > 1e-3
    last = released(plan_of(release=LastIterate()), noises, batches)
    assert np.linalg.norm(last - base) > 1e-3


def test_single_precision_runs_beside_double() -> None:
    batches, noises = given("hinge", 3)
    wide = released(plan_of(divisor=3), noises, batches)
    narrow = released(plan_of(divisor=3, dtype="float32"), noises, batches)
    np.testing.assert_allclose(narrow, wide, atol=2.0 * margin("float32") * ETA * G * STEPS)


GIVEN = PerRecordModel(FEATURES, np.zeros(FEATURES), gradient=lambda point, features, labels: features)


def stepped(rows: np.ndarray, noise: np.ndarray, divisor: int) -> np.ndarray:
    """Where a step leads from 0, with rows that are their own gradients."""
    plan = plan_of(divisor=divisor, steps=1, rows=divisor, domain=L2Ball(1e6))
    trainer = trainer_of(plan, GIVEN, rows, np.zeros(len(rows)), GivenStreams([noise]))
    trainer.step()
    assert isinstance(trainer, GradientSteps)
    return np.asarray(trainer.point)


@pytest.mark.parametrize("divisor", [1, 5])
def test_one_record_moves_a_step_by_no_more_than_the_plan_says_and_an_adversary_by_as_much(divisor: int) -> None:
    """Replace one of b: 2 eta G / b; take one away: eta G / b."""
    random = np.random.default_rng(3)
    largest_replaced = largest_removed = 0.0
    for trial in range(200):
        rows = random.standard_normal((divisor, FEATURES)) * 10.0 ** random.uniform(-3, 6, (divisor, 1))
        other = rows.copy()
        other[0] = -rows[0] if trial % 2 else random.standard_normal(FEATURES) * 10.0 ** random.uniform(-3, 12)
        null = rows.copy()
        null[0] = np.nan  # which is like a place that is empty
        noise = random.standard_normal(FEATURES)
        here, there, without = (stepped(some, noise, divisor) for some in (rows, other, null))
        largest_replaced = max(largest_replaced, float(np.linalg.norm(here - there)))
        largest_removed = max(largest_removed, float(np.linalg.norm(here - without)))
    bound = ETA * G / divisor
    assert 0.99 * 2.0 * bound < largest_replaced <= 2.0 * bound
    assert 0.99 * bound < largest_removed <= bound


@pytest.mark.parametrize("divisor", [1, 8])
def test_a_step_without_gradients_is_noise_of_the_planned_scale(divisor: int) -> None:
    model = PerRecordModel(8000, np.zeros(8000), gradient=lambda point, features, labels: features)
    plan = plan_of(divisor=divisor, steps=1, rows=divisor, domain=L2Ball(1e6))
    trainer = trainer_of(plan, model, np.zeros((divisor, 8000)), np.zeros(divisor), random_streams(5))
    trainer.step()
    trainer.close()
    moved = trainer.state()["point"]
    assert kstest(moved / (ETA * SIGMA), "norm").pvalue > 1e-3
    assert kstest(moved / (0.9 * ETA * SIGMA), "norm").pvalue < 1e-3, "the test would see 10 % less noise"


def test_a_plan_is_carried_out_with_the_batches_that_were_charged() -> None:
    """The record in the batch shows in the step: each feature vector is a direction of its own."""
    model = LinearModel(QNormHinge(1.0), 200, fit_intercept=False)
    plan = plan_of(rows=200, steps=3000, sigma=2e-3, domain=L2Ball(1e6))
    streams = random_streams(9)
    trainer = trainer_of(plan, model, np.eye(200), np.ones(200, dtype=np.int64), streams)
    counts = np.zeros(200)
    before = np.zeros(200)
    for _ in range(plan.iterations):
        trainer.step()
        after = trainer.point  # type: ignore[attr-defined]
        # w_i jumps by eta when record i is drawn while its margin is below 1; then and only then.
        jumped = np.flatnonzero(np.abs(after - before) > 0.5 * ETA)
        assert len(jumped) <= 1, "one record a step"
        counts[jumped] += 1
        before = after
    trainer.close()
    assert np.all(counts == 3), "three steps of 0.4 take a margin beyond 1; every record was drawn that often"


def test_an_algorithm_with_a_penalty_is_another_one() -> None:
    with pytest.raises(AssertionError, match="no penalty"):
        update(np.ones(2), Step(np.ones(2), 1, ETA, L2Ball(1e6), L2Penalty(0.1)))


def test_a_whole_run_stays_in_the_ball_and_under_its_expected_bound() -> None:
    """alpha = 1/2; 8 runs of one plan, as calibrated."""
    rows = 1000
    random = np.random.default_rng(21)
    model = LinearModel(QNormHinge(1.5), 3, fit_intercept=False)
    features = random.standard_normal((rows, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = (features[:, 0] > 0.0).astype(np.int64)
    constants = model.holder(1.0)
    found = calibrate(
        "dp_sgd_gradient",
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
    assert constants.gradient_at_zero + constants.constant == 3.0
    values = {item.name: item.value for item in found.utility}

    def risk(w: np.ndarray) -> float:
        return float(np.mean(np.maximum(0.0, 1.0 - (2 * labels - 1) * (features @ w)) ** 1.5))

    # Labels are those of the first coordinate: the risk is least near (1, 0, 0), and nowhere lower by more than 0.005.
    least = risk(np.array([1.0, 0.0, 0.0])) - 0.005
    errors = []
    for seed in range(8):
        result = run(found.plan, model, features, labels, seed=seed)
        assert result.steps == found.plan.iterations == rows
        assert np.linalg.norm(result.parameters["weights"]) <= 1.0 + 1e-12
        errors.append(risk(result.parameters["weights"]) - least)
    mean, spread = float(np.mean(errors)), float(np.std(errors)) / math.sqrt(8)
    expected, likely = values["expected_excess_risk_bound"], values["excess_risk_bound"]
    assert isinstance(expected, float)
    assert isinstance(likely, float)
    assert mean + 3.0 * spread < expected < likely
    assert max(errors) < likely
    assert expected < constants.loss_at_zero, "the bound says something"
    assert mean < 0.5 * (risk(np.zeros(3)) - least), "something was learnt"
