"""DP-GD is Algorithm 4: worked steps, its transcription, what is released, what one record moves, a whole run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest

from accounting.events import Event, FullBatch, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.geometry import L1Penalty, L2Ball, L2Penalty
from calibrators.plan import Clip, Phase, Plan
from calibrators.registry import calibrate
from calibrators.release import LAST_ITERATE, RandomIterate, Release
from calibrators.spec import Spec
from tests.trainer import given
from tests.trainer.given import GivenStreams
from tests.transcriptions import dp_gd as reference
from trainer.algorithms import EXECUTIONS
from trainer.clipping import margin
from trainer.loop import GradientSteps
from trainer.losses import Squared
from trainer.models import LinearModel, PerRecordModel
from trainer.run import run
from trainer.streams import RandomStreams

NAME = "dp_gd"
REPLACE_ONE = NeighboringRelation.REPLACE_ONE
STEPS, ROWS, FEATURES = 9, 31, 4


def plan_of(
    size: int,
    clip: float,
    *,
    noise_multiplier: float = 0.7,
    steps: int = STEPS,
    step_size: float = 0.4,
    release: Release = LAST_ITERATE,
    **changes: Any,
) -> Plan:
    phase = Phase(Event(Gaussian(noise_multiplier), FullBatch(), steps), Clip(clip), size, step_size)
    return Plan(NAME, size, REPLACE_ONE, (phase,), release=release, **changes)


def trainer_of(plan: Plan, model: Any, features: Any, labels: Any, streams: RandomStreams) -> GradientSteps:
    made = given.trainer_of(plan, model, features, labels, streams)
    assert isinstance(made, GradientSteps)
    return made


def heavy_tailed(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(ROWS, FEATURES))
    features[::5] *= 30.0
    return features, rng.uniform(-1.0, 1.0, ROWS)


def test_the_worked_step() -> None:
    """At threshold 2 the gradients are (1.2, 1.6), (0.6, -0.8), (0, 0), (-1.2, 1.6)."""
    gradients = np.array([[3.0, 4.0], [0.6, -0.8], [0.0, 0.0], [-6.0, 8.0]])
    model = PerRecordModel(2, np.array([1.0, 2.0]), gradient=lambda point, features, labels: features)
    plan = plan_of(4, 2.0 / (1.0 - margin("float64")), steps=1, step_size=0.1, noise_multiplier=1.5)
    noise = np.array([0.5, -1.0]) * (1.0 - margin("float64"))
    trainer = trainer_of(plan, model, gradients, np.zeros(4), GivenStreams([noise]))
    trainer.step()
    # Mean (0.15, 0.6), noise 1.5 x 2 / 4 x (0.5, -1) = (0.375, -0.75).
    np.testing.assert_allclose(trainer.point, [1.0 - 0.1 * 0.525, 2.0 - 0.1 * -0.15], atol=1e-5)  # on the grid


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "array_api_strict"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_it_steps_like_its_transcription(xp: Any, dtype: str, fit_intercept: bool) -> None:
    features, labels = heavy_tailed(5)
    dimension = FEATURES + fit_intercept
    augmented = np.hstack([features, np.ones((ROWS, 1))]) if fit_intercept else features
    noises = [np.random.default_rng(step).normal(size=dimension) for step in range(STEPS)]
    clip = 1.3
    lengths: list[float] = []

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        found: np.ndarray = (float(augmented[i] @ w) - labels[i]) * augmented[i]
        lengths.append(float(np.linalg.norm(found)))
        return found

    theirs = reference.trajectory(
        np.zeros(dimension),
        gradient,
        noises,
        n=ROWS,
        eta=0.4,
        G=clip * (1.0 - margin(dtype)),
        sigma=0.7 * clip / ROWS,
    )
    assert min(lengths) < clip < max(lengths), "some records are clipped and some are not"
    model = LinearModel(Squared(), FEATURES, fit_intercept)
    plan = plan_of(ROWS, clip, dtype=dtype)
    trainer = trainer_of(plan, model, xp.asarray(features), xp.asarray(labels), GivenStreams(noises))
    # Sums and noise are rounded to the grid.
    tolerance = 1e-5 if dtype == "float64" else 2e-3
    for expected in theirs[1:]:
        trainer.step()
        np.testing.assert_allclose(np.asarray(trainer.point), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(np.asarray(trainer.released()), reference.released(theirs, None), atol=tolerance)


SAME_STEPS = (NAME, "dp_sgd", "clipped_prox_sgd")


@pytest.mark.parametrize("other", [name for name in EXECUTIONS if name not in SAME_STEPS])
def test_no_other_algorithm_takes_its_steps(other: str) -> None:
    """But those that differ in their sampling and their release alone: both are the plan's."""
    features, labels = heavy_tailed(5)
    model = LinearModel(Squared(), FEATURES, fit_intercept=False)

    def walk(name: str) -> np.ndarray:
        noises = [np.random.default_rng(step).normal(size=FEATURES) for step in range(STEPS)]
        plan = replace(plan_of(ROWS, 1.3, penalty=L1Penalty(0.03)), algorithm=name)
        trainer = trainer_of(plan, model, features, labels, GivenStreams(noises))
        for _ in range(STEPS):
            trainer.step()
        return np.asarray(trainer.point)

    ours = walk(NAME)
    try:
        theirs = walk(other)
    except (AssertionError, AttributeError, ValueError):
        return  # it has no such plans
    assert not np.allclose(ours, theirs, rtol=1e-4)


def test_a_penalty_and_a_domain_act_on_the_new_point_prox_first() -> None:
    model = PerRecordModel(2, np.zeros(2), gradient=lambda point, features, labels: features)
    features = np.array([[-6.0, -8.0]])
    for penalty, expected in (
        (L2Penalty(1.0), [2.0, 8.0 / 3.0]),
        (L1Penalty(4.0), [1.0, 2.0]),
        (None, [3.0, 4.0]),
    ):
        plan = plan_of(1, 100.0, steps=1, step_size=0.5, penalty=penalty)
        free = trainer_of(plan, model, features, np.zeros(1), GivenStreams([np.zeros(2)]))
        free.step()
        np.testing.assert_allclose(free.point, expected, atol=1e-3)  # on the grid, in units of 100
        inside = plan_of(1, 100.0, steps=1, step_size=0.5, penalty=penalty, domain=L2Ball(1.0))
        kept = trainer_of(inside, model, features, np.zeros(1), GivenStreams([np.zeros(2)]))
        kept.step()
        np.testing.assert_allclose(kept.point, np.array(expected) / np.linalg.norm(expected), atol=1e-3)


def walked(release: Release, seed: int, steps: int = 5) -> tuple[list[float], float]:
    """The points x_0, x_1, .. of a run on one record, and what it released."""
    seen: list[float] = []

    def gradient(point: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        # And not empty slots alone, or a random row by which the model asks how it may call.
        is_the_record = bool(np.any(features == 1.0))
        if is_the_record and (not seen or seen[-1] != point[0]):
            seen.append(float(point[0]))
        found: np.ndarray = point - features
        return found

    model = PerRecordModel(1, np.zeros(1), gradient)
    plan = plan_of(1, 10.0, steps=steps, release=release)
    released = run(plan, model, np.ones((1, 1)), np.zeros(1), seed=seed).parameters["point"]
    return seen, float(released[0])


def test_without_convexity_a_point_that_a_step_starts_from_is_released_each_as_often() -> None:
    counts = np.zeros(5)
    for seed in range(200):
        seen, released = walked(RandomIterate(), seed)
        assert len(seen) == 5, "x_0 to x_4; where the last step leads to is not among them"
        counts[seen.index(released)] += 1
    # Each count is binomial(200, 1/5): 40 with a standard deviation of 5.7.
    assert counts.min() > 40 - 4.5 * 5.7
    assert counts.max() < 40 + 4.5 * 5.7


def test_with_a_pl_constant_the_point_after_the_last_step_is_released() -> None:
    seen, released = walked(LAST_ITERATE, 3)
    assert released not in seen


def test_what_is_charged_is_what_runs() -> None:
    spec = Spec(
        dataset_size=ROWS,
        target=ApproximateDpTarget(1.0, 1e-6),
        gradient_bound=Clip(0.5),
        iterations=7,
        dimension=FEATURES,
        assumptions={"smoothness": 2.0, "initial_gap": 1.0},
    )
    plan = calibrate(NAME, spec).plan
    [event] = plan.events
    features, labels = heavy_tailed(2)
    asked: list[int] = []
    model = PerRecordModel(FEATURES, np.zeros(FEATURES), gradient=lambda point, x, y: asked.append(0) or x)
    noises = [np.full(FEATURES, float(step)) for step in range(1, 8)]
    trainer = trainer_of(plan, model, features, labels, GivenStreams(noises))
    start, total = trainer.point, np.zeros(FEATURES)
    for _ in range(event.count):
        trainer.step()
    clipped = features * np.minimum(1.0, 0.5 * (1.0 - margin("float64")) / np.linalg.norm(features, axis=1))[:, None]
    for noise in noises:
        total += clipped.sum(axis=0) / ROWS + event.mechanism.noise_multiplier * 0.5 / ROWS * noise
    np.testing.assert_allclose(trainer.point, start - 0.5 * total, atol=1e-5)  # on the grid
    assert event.sampling == FullBatch()
    result = run(plan, model, features, labels, seed=1)
    assert result.steps == event.count == 7


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_record_moves_the_mean_by_at_most_what_was_accounted(dtype: str) -> None:
    """Replaced: 2 C / n. Left out: C / n. The worst neighbours come close to it."""
    clip, step_size = 0.8, 0.25
    model = PerRecordModel(2, np.zeros(2), gradient=lambda point, features, labels: features)
    plan = plan_of(300, clip, steps=1, step_size=step_size, dtype=dtype)
    rng = np.random.default_rng(1)
    base = rng.normal(size=(300, 2)) * 10.0 ** rng.uniform(-3, 6, size=(300, 1))

    def moved(features: np.ndarray) -> np.ndarray:
        trainer = trainer_of(plan, model, features, np.zeros(len(features)), GivenStreams([np.zeros(2)]))
        trainer.step()
        return np.asarray(trainer.point)

    largest = 0.0
    for row in ([1e9, 0.0], [np.inf, 1.0], [np.nan, 0.0], [0.0, -3.0], [1e-30, 0.0], [-1e9, 0.0]):
        here, there, without = base.copy(), base.copy(), base[1:]
        here[0], there[0] = row, [-1e9, 0.0]
        distance = float(np.linalg.norm(moved(here) - moved(there)))
        largest = max(largest, distance)
        assert distance <= step_size * 2.0 * clip / 300
        assert float(np.linalg.norm(moved(here) - moved(without))) <= step_size * clip / 300
    assert largest >= 0.98 * step_size * 2.0 * clip / 300


def test_a_run_with_the_theorems_own_plan_keeps_its_bound() -> None:
    """Least squares with a Hessian diag(1, 1/2) and records in the unit ball, no gradient of which is clipped."""
    size = 2000
    signs = np.random.default_rng(0).choice([-1.0, 1.0], size=size)
    features = np.zeros((size, 2))
    features[: size // 2, 0], features[size // 2 :, 1] = 1.0, np.sqrt(0.5)
    features *= signs[:, None]
    best = np.array([0.4, -0.6])
    labels = features @ best
    hessian = np.diag(features.T @ features / size)
    constants = {
        "smoothness": float(hessian.max()),
        "pl_constant": float(hessian.min()),
        "initial_gap": float(0.5 * hessian @ best**2),
    }
    spec = Spec(
        dataset_size=size,
        target=ApproximateDpTarget(2.0, 1e-6),
        gradient_bound=Clip(1.0),
        dimension=2,
        assumptions=constants,
    )
    found = calibrate(NAME, spec)
    model = LinearModel(Squared(), 2, fit_intercept=False)
    risks = []
    for seed in range(20):
        weights = run(found.plan, model, features, labels, seed=seed).parameters["weights"]
        risks.append(float(0.5 * hessian @ (weights - best) ** 2))
    [bound] = [item.value for item in found.utility if item.name == "excess_risk_bound"]
    assert isinstance(bound, float)
    assert np.mean(risks) <= bound
    assert bound < constants["initial_gap"] / 20.0, "the bound says something"
    assert np.mean(risks) > bound / 50.0, "and the noise is there"
