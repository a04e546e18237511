"""Clipped proximal SGD is Algorithm 8: the worked trajectory, and its risk under its bound on a sparse problem."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from accounting.events import DisjointBatches, Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ZcdpTarget
from calibrators.geometry import L1Penalty
from calibrators.plan import Clip, Phase, Plan
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.trainer.given import GivenStreams, trainer_of
from tests.transcriptions import clipped_prox_sgd as reference
from trainer.clipping import margin
from trainer.loop import GradientSteps
from trainer.models import PerRecordModel
from trainer.run import run

NAME = "clipped_prox_sgd"


def test_the_worked_trajectory() -> None:
    """f1 = 0.3 |w|, eta = 0.5, w_0 = -1, batches of two in order, noise added to the mean."""
    records = np.array([0.2, 0.4, 0.6, 0.8, 1.0, 1.2])
    batches, noises = [[0, 1], [2, 3], [4, 5]], [0.1, -0.2, 0.05]
    start, clip, expected = np.array([-1.0]), 0.5, [-0.65, -0.15, 0.0]
    path = reference.trajectory(
        start, lambda w, i: w - records[i], batches, [np.array([z]) for z in noises],
        prox=partial(reference.soft_threshold, strength=0.3), eta=0.5, C=clip, s=2, sigma=1.0,
    )  # fmt: skip
    assert [float(each[0]) for each in path] == pytest.approx(expected, abs=1e-12)
    # The noise multiplier of the plan is 1: on the sum, Z is the worked noise times s / C.
    exact = clip / (1.0 - margin("float64"))
    phase = Phase(Event(Gaussian(1.0), DisjointBatches("by_position"), 3), Clip(exact), 2, 0.5)
    plan = Plan(NAME, 6, NeighboringRelation.REPLACE_ONE, (phase,), penalty=L1Penalty(0.3))
    model = PerRecordModel(1, start, gradient=lambda point, features, labels: point - features)
    streams = GivenStreams([np.array([z * 2 / exact]) for z in noises], batches)
    trainer = trainer_of(plan, model, records[:, None], np.zeros(6), streams)
    assert isinstance(trainer, GradientSteps)
    for value in expected:  # sums and noise are rounded to the grid
        trainer.step()
        assert float(trainer.point[0]) == pytest.approx(value, abs=1e-5)
    assert float(trainer.released()[0]) == pytest.approx(0.0, abs=1e-5)


def test_the_excess_risk_is_below_its_bound_in_the_theorems_own_setting() -> None:
    """A sparse mean of heavy-tailed records: F0 = |w|^2/2 - <w, m>, 1-smooth and 1-proximal-PL, gradients of moment 3.

    A record's gradient w - x is bounded in the mean over the ball that the runs stay in, which is watched.
    """
    records, runs, strength = 30_000, 6, 0.2
    mean = np.array([0.8, -0.5, 0.1, 0.0])
    optimum = np.sign(mean) * np.maximum(np.abs(mean) - strength, 0.0)
    # |w - x| <= |w| + |m| + 0.2 |t|, where E|t_j|^3 = 8 at four degrees and so E|t|^3 <= 2^3 8.
    moment = 1.5 + float(np.linalg.norm(mean)) + 0.2 * 2.0 * 2.0

    def risk(w: np.ndarray) -> float:
        return float(0.5 * np.sum((w - mean) ** 2) + strength * np.sum(np.abs(w)))

    gap = risk(np.zeros(4)) - risk(optimum)
    constants = {"smoothness": 1.0, "pl_constant": 1.0, "moment_order": 3.0, "moment_bound": moment}
    spec = Spec(
        records,
        ZcdpTarget(0.5),
        dimension=4,
        penalty=L1Penalty(strength),
        assumptions=constants | {"initial_gap": gap},
    )
    found = calibrate(NAME, spec)
    [bound] = [item for item in found.utility if item.name == "excess_risk_bound"]
    assert bound.vacuous is False
    model = PerRecordModel(4, np.zeros(4), gradient=lambda point, features, labels: point - features)
    risks = []
    for seed in range(runs):
        rows = mean + 0.2 * np.random.default_rng(seed).standard_t(4.0, size=(records, 4))
        point = run(found.plan, model, rows, np.zeros(records), seed=seed).parameters["point"]
        assert np.linalg.norm(point) <= 1.5
        risks.append(risk(point) - risk(optimum))
    average, error = float(np.mean(risks)), float(np.std(risks, ddof=1) / runs**0.5)
    assert average + 4.0 * error <= bound.value
    assert average <= 0.1 * gap, "and the runs learn"
