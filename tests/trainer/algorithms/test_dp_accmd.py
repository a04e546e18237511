"""DP-AccMD as it runs: its transcription step by step in both balls, where it starts, and a run under its bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest
from scipy.optimize import minimize

from accounting.errors import InvalidValue
from accounting.events import Event, FullBatch, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.geometry import Box, Domain, L1Ball, L2Ball, L2Penalty
from calibrators.plan import Clip, Phase, Plan
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.trainer import given
from tests.trainer.given import GivenStreams
from tests.transcriptions import dp_accmd as reference
from trainer.algorithms.dp_accmd import EntropicPoint
from trainer.clipping import margin
from trainer.loop import GradientSteps
from trainer.losses import Squared
from trainer.models import LinearModel, logistic_regression
from trainer.run import run
from trainer.streams import RandomStreams

STEPS, ROWS, FEATURES, CLIP, SIGMA = 9, 31, 4, 1.3, 0.7
BALLS: dict[str, Domain] = {"l2": L2Ball(0.7), "l1": L1Ball(0.9)}


def plan_of(domain: Domain | None, **changes: Any) -> Plan:
    phase = Phase(Event(Gaussian(SIGMA), FullBatch(), STEPS), Clip(CLIP), ROWS, 0.5)
    return replace(Plan("dp_accmd", ROWS, NeighboringRelation.REPLACE_ONE, (phase,), domain=domain), **changes)


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    features = rng.normal(size=(ROWS, FEATURES))
    features[::5] *= 30.0
    return features, rng.uniform(-1.0, 1.0, ROWS)


def trainer_of(plan: Plan, features: Any, labels: Any, streams: RandomStreams) -> GradientSteps:
    model = LinearModel(Squared(), FEATURES, fit_intercept=False)
    made = given.trainer_of(plan, model, features, labels, streams)
    assert isinstance(made, GradientSteps)
    return made


def given_noises() -> list[np.ndarray]:
    """Small ones, then some that lead to the boundary."""
    return [(30.0 if step > 4 else 1.0) * np.random.default_rng(step).normal(size=FEATURES) for step in range(STEPS)]


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "array_api_strict"])
@pytest.mark.parametrize("ball", BALLS)
def test_every_step_equals_the_transcription(ball: str, xp: Any) -> None:
    features, labels = data()
    domain = BALLS[ball]
    lengths: list[float] = []

    def gradient(w: np.ndarray, i: int) -> np.ndarray:
        found: np.ndarray = (float(features[i] @ w) - labels[i]) * features[i]
        lengths.append(float(np.linalg.norm(found)))
        return found

    path = reference.trajectory(
        gradient,
        given_noises(),
        p=FEATURES,
        norm_order=1 if ball == "l1" else 2,
        n=ROWS,
        R=getattr(domain, "radius", 0.0),
        L=2.0,
        G=CLIP * (1.0 - margin("float64")),
        sigma=SIGMA * CLIP / ROWS,
    )
    assert min(lengths) < CLIP < max(lengths), "some records are clipped and some are not"
    trainer = trainer_of(plan_of(domain), xp.asarray(features), xp.asarray(labels), GivenStreams(given_noises()))
    for expected in path[1:]:  # sums and noise are rounded to the grid
        trainer.step()
        np.testing.assert_allclose(np.asarray(trainer.point), expected, rtol=1e-9, atol=1e-5)
    np.testing.assert_allclose(np.asarray(trainer.released()), path[-1], rtol=1e-9, atol=1e-5)
    assert not np.allclose(path[-1], path[-2], atol=1e-3)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_l1_ball_lifts_a_start_and_draws_what_is_far_out_inwards(share: float) -> None:
    """Every weight is positive, so that every coordinate can move."""
    point = share * 2.0 * np.array([0.5, -0.25, 0.0, 0.25])
    lifted = EntropicPoint(L1Ball(2.0), point)
    np.testing.assert_allclose(lifted.point, point if share <= 0.5 else 0.5 * point, atol=1e-12)
    assert np.all(np.isfinite(lifted.state()))
    lifted.move(np.array([0.0, 0.0, -1e6, 0.0]), 1.0)
    np.testing.assert_allclose(lifted.point, [0.0, 0.0, 2.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("domain", [None, Box(-1.0, 1.0)])
def test_it_runs_in_its_two_balls_alone(domain: Domain | None) -> None:
    with pytest.raises(InvalidValue) as refused:
        trainer_of(plan_of(domain), *data(), GivenStreams(given_noises()))
    assert refused.value.pointer == ("domain",)


def test_an_algorithm_with_a_penalty_is_another_one() -> None:
    trainer = trainer_of(plan_of(L2Ball(1.0), penalty=L2Penalty(0.1)), *data(), GivenStreams(given_noises()))
    with pytest.raises(AssertionError, match="no penalty"):
        trainer.step()


@pytest.mark.parametrize(("norm_order", "radius"), [(2.0, 3.0), (1.0, 3.0)])
def test_runs_end_in_the_ball_under_their_bound(norm_order: float, radius: float) -> None:
    """Logistic losses of rows in the unit ball are 1-Lipschitz and 1/4-smooth; 6 runs of one plan, as calibrated."""
    rows, width = 2000, 6
    rng = np.random.default_rng(3)
    features = rng.normal(size=(rows, width))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = (features[:, 0] > 0.1 * rng.normal(size=rows)).astype(np.int64)
    found = calibrate(
        "dp_accmd",
        Spec(
            rows,
            ApproximateDpTarget(4.0, 1e-6),
            gradient_bound=Clip(1.0 / (1.0 - margin("float64"))),
            dimension=width,
            assumptions={"smoothness": 0.25, "radius": radius, "norm_order": norm_order},
        ),
    )
    signs = 2 * labels - 1

    def risk(w: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0.0, -signs * (features @ w))))

    # Nearly separable by the first coordinate: the least risk over the ball is on its boundary.
    parts = minimize(
        lambda u: risk(u[:width] - u[width:]),
        np.full(2 * width, 0.1),
        bounds=[(0.0, None)] * (2 * width),
        constraints={
            "type": "ineq",
            "fun": lambda u: (
                radius - (np.sum(u) if norm_order == 1.0 else np.sqrt(np.sum((u[:width] - u[width:]) ** 2) + 1e-12))
            ),
        },
    )
    least = float(parts.fun)
    bound = next(item for item in found.utility if item.name == "excess_risk_bound")
    assert isinstance(bound.value, float)
    assert not bound.vacuous
    excess = []
    for seed in range(6):
        weights = run(
            found.plan, logistic_regression(width, fit_intercept=False), features, labels, seed=seed
        ).parameters["weights"]
        assert np.linalg.norm(weights, norm_order) <= radius * (1.0 + 1e-12)
        excess.append(risk(weights) - least)
    assert -1e-6 < np.mean(excess) < bound.value
    assert np.mean(excess) < 0.5 * (risk(np.zeros(width)) - least), "something was learnt"
