"""Clipped accelerated SGD is Algorithm 2: the worked trajectory, where gradients are taken, and its risk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from accounting.events import DisjointBatches, Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ZcdpTarget
from calibrators.geometry import L2Ball
from calibrators.plan import Clip, Phase, Plan
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.trainer.given import GivenStreams, in_slots
from tests.transcriptions import clipped_acsa as reference
from trainer.algorithms.clipped_acsa import AcceleratedSequences
from trainer.clipping import margin
from trainer.loop import GradientSteps, Task
from trainer.models import PerRecordModel
from trainer.run import run

NAME = "clipped_acsa"


def plan_of(rounds: int, size: int, *, clip: float, eta: float, domain: L2Ball | None = None) -> Plan:
    event = Event(Gaussian(1.0), DisjointBatches("by_position"), rounds)
    phase = Phase(event, Clip(clip), size, 0.5 / eta)
    return Plan(NAME, rounds * size, NeighboringRelation.REPLACE_ONE, (phase,), domain=domain)


def trainer_of(
    plan: Plan, model: Any, features: np.ndarray, streams: GivenStreams
) -> tuple[GradientSteps, AcceleratedSequences]:
    """A trainer that is carried out step by step, and what it carries."""
    carried: list[AcceleratedSequences] = []

    def start(point: np.ndarray) -> AcceleratedSequences:
        carried.append(AcceleratedSequences(point))
        return carried[0]

    records = in_slots(plan, model, features, np.zeros(len(features)), streams)
    return GradientSteps(Task(plan, model, records, streams), start, Clip), carried[0]


def mean_model(dimension: int, start: np.ndarray) -> PerRecordModel:
    """f = |w - x|^2 / 2."""
    return PerRecordModel(dimension, start, gradient=lambda point, features, labels: point - features)


def test_the_worked_trajectory() -> None:
    """Both here and in the transcription: W = [-1, 1], w_0 = -1, batches of two in order, noise added to the mean."""
    records = np.array([0.2, 0.4, 0.6, 0.8, 1.0, 1.2])
    batches, noises = [[0, 1], [2, 3], [4, 5]], [0.1, -0.2, 0.05]
    start, clip = np.array([-1.0]), 0.5
    expected = [
        (-1.0, -0.4, -0.9, -0.9),
        (-0.9, -0.7, -0.55, -0.6666666667),
        (-0.6083333333, -0.45, -0.2125, -0.4395833333),
    ]
    path = reference.trajectory(
        start, lambda w, i: w - records[i], batches, [np.array([z]) for z in noises],
        eta=2.0, C=clip, s=2, sigma=1.0, radius=1.0,
    )  # fmt: skip
    assert [tuple(float(each[0]) for each in step) for step in path] == [pytest.approx(row) for row in expected]
    # The noise multiplier of the plan is 1: on the sum, Z is the worked noise times s / C.
    exact = clip / (1.0 - margin("float64"))
    given = GivenStreams([np.array([z * 2 / exact]) for z in noises], batches)
    plan = plan_of(3, 2, clip=exact, eta=2.0, domain=L2Ball(1.0))
    trainer, sequences = trainer_of(plan, mean_model(1, start), records[:, None], given)
    # Sums and noise are rounded to the grid.
    for between, _, moved, aggregated in expected:
        assert float(sequences.query[0]) == pytest.approx(between, abs=1e-5)
        trainer.step()
        assert float(sequences.state()["moved"][0]) == pytest.approx(moved, abs=1e-5)
        assert float(trainer.point[0]) == pytest.approx(aggregated, abs=1e-5)
    assert float(trainer.released()[0]) == pytest.approx(-0.4395833333, abs=1e-5)


def test_the_excess_risk_is_below_its_bound_in_the_theorems_own_setting() -> None:
    """Least squares with heavy-tailed noise and a flat direction: F is convex, |grad|^3 has a known moment."""
    records, dimension, runs = 30_000, 3, 6
    spectrum, optimum = np.array([0.0, 0.5, 1.0]), np.array([0.0, -0.5, 0.6])
    length = float(np.sqrt(spectrum.sum()))
    # |grad| = |a| |<w - w*, a> - xi|; E<v, a>^4 <= 3 (|v|^2)^2 for signs, |v| <= 2, and E|t|^3 = 8 at four degrees.
    moment = length * (3.0**0.25 * 2.0 + 0.1 * 2.0)
    constants = {"smoothness": 1.0, "diameter": 2.0, "moment_order": 3.0, "moment_bound": moment}
    found = calibrate(NAME, Spec(records, ZcdpTarget(0.5), dimension=dimension, assumptions=constants))
    [bound] = [item for item in found.utility if item.name == "excess_risk_bound"]
    assert bound.vacuous is False
    model = PerRecordModel(
        dimension + 1,
        np.zeros(dimension),
        gradient=lambda w, rows, _: (rows[:, :-1] @ (w - optimum) - rows[:, -1])[:, None] * rows[:, :-1],
    )
    risks = []
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        inputs = rng.choice([-1.0, 1.0], size=(records, dimension)) * np.sqrt(spectrum)
        rows = np.column_stack([inputs, 0.1 * rng.standard_t(4.0, size=records)])
        point = run(found.plan, model, rows, np.zeros(records), seed=seed).parameters["point"]
        assert np.linalg.norm(point) <= 1.0 + 1e-12
        risks.append(0.5 * float(spectrum @ (point - optimum) ** 2))
    mean, error = float(np.mean(risks)), float(np.std(risks, ddof=1) / runs**0.5)
    assert mean + 4.0 * error <= bound.value
    assert mean <= 0.5 * 0.5 * float(spectrum @ optimum**2), "and the runs learn"
