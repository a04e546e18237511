"""Clipped SGD for strongly convex losses is Algorithm 6: worked numbers, transcription, what runs, what is released."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_strict
import numpy as np
import pytest

from accounting.events import DisjointBatches, Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ZcdpTarget
from calibrators.geometry import L2Ball, L2Penalty
from calibrators.lowy_razaviyayn.stich_schedule import stich_schedule
from calibrators.plan import Clip, Phase, Plan
from calibrators.registry import calibrate
from calibrators.release import WeightedAverage
from calibrators.spec import Spec, default_capacity
from tests.trainer import given
from tests.trainer.given import GivenStreams
from tests.transcriptions import clipped_sgd_strongly_convex as reference
from trainer.clipping import margin
from trainer.loop import GradientSteps
from trainer.losses import Squared
from trainer.models import LinearModel, PerRecordModel
from trainer.run import run
from trainer.streams import RandomStreams, random_streams

NAME = "clipped_sgd_strongly_convex"
REPLACE_ONE = NeighboringRelation.REPLACE_ONE


def plan_of(
    rounds: int,
    size: int,
    clip: float,
    *,
    noise_multiplier: float = 0.7,
    contraction: float = 0.5,
    inverse_step: float = 1.5,
    assignment: str = "by_position",
    **changes: Any,
) -> Plan:
    schedule = stich_schedule(rounds - 1, contraction, inverse_step)
    event = Event(Gaussian(noise_multiplier), DisjointBatches(assignment), rounds)
    phase = Phase(event, Clip(clip), size, schedule.step_sizes)
    return Plan(NAME, rounds * size, REPLACE_ONE, (phase,), release=WeightedAverage(schedule.weights), **changes)


def trainer_of(plan: Plan, model: Any, features: Any, labels: Any, streams: RandomStreams) -> GradientSteps:
    made = given.trainer_of(plan, model, features, labels, streams)
    assert isinstance(made, GradientSteps)
    return made


def test_the_worked_trajectory() -> None:
    """f = (w - x)^2 / 2 on [-1, 1] from -1, batches of two in order; the threshold makes up for the margin."""
    plan = plan_of(3, 2, 0.5 / (1.0 - margin("float64")), domain=L2Ball(1.0))
    assert plan.phases[0].step_size == pytest.approx([0.6666666667] * 3)
    assert plan.release.weights == pytest.approx([0.2105263158, 0.3157894737, 0.4736842105])
    model = PerRecordModel(1, np.array([-1.0]), gradient=lambda point, features, labels: point - features)
    noises = [np.array([noise / plan.phases[0].noise_stddev_on_mean]) for noise in (0.1, -0.2, 0.05)]
    streams = GivenStreams(noises, [[0, 1], [2, 3], [4, 5]])
    features = np.array([[0.2], [0.4], [0.6], [0.8], [1.0], [1.2]])
    trainer = trainer_of(plan, model, features, np.zeros(6), streams)
    path = []
    for _ in range(3):
        trainer.step()
        path.append(float(trainer.point[0]))
    # Sums and noise are rounded to the grid.
    assert path == pytest.approx([-0.7333333333, -0.2666666667, 0.03333333333], abs=1e-5)
    assert float(trainer.released()[0]) == pytest.approx(-0.2228070175, abs=1e-5)


ROUNDS, SIZE, FEATURES = 11, 9, 4


def heavy_tailed(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(ROUNDS * SIZE, FEATURES))
    features[::5] *= 30.0
    return features, rng.uniform(-1.0, 1.0, ROUNDS * SIZE)


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "array_api_strict"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("penalty", [None, 0.4])
def test_it_steps_like_its_transcription(xp: Any, dtype: str, fit_intercept: bool, penalty: float | None) -> None:
    features, labels = heavy_tailed(5)
    dimension = FEATURES + fit_intercept
    augmented = np.hstack([features, np.ones((features.shape[0], 1))]) if fit_intercept else features
    rng = np.random.default_rng(6)
    order = rng.permutation(ROUNDS * SIZE).reshape(ROUNDS, SIZE).tolist()
    noises = [rng.normal(size=dimension) for _ in range(ROUNDS)]
    radius, clip = 0.35, 1.3
    plan = plan_of(
        ROUNDS,
        SIZE,
        clip,
        domain=L2Ball(radius),
        penalty=None if penalty is None else L2Penalty(penalty),
        dtype=dtype,
    )
    phase = plan.phases[0]
    theirs, average = reference.trajectory(
        np.zeros(dimension),
        lambda w, i: (float(augmented[i] @ w) - labels[i]) * augmented[i],
        order,
        noises,
        etas=phase.step_size,
        zetas=plan.release.weights,
        C=clip * (1.0 - margin(dtype)),
        s=SIZE,
        sigma=0.7 * clip / SIZE,
        radius=radius,
        penalty=penalty or 0.0,
    )
    model = LinearModel(Squared(), FEATURES, fit_intercept)
    trainer = trainer_of(plan, model, xp.asarray(features), xp.asarray(labels), GivenStreams(noises, order))
    # Sums and noise are rounded to the grid.
    tolerance = 1e-5 if dtype == "float64" else 3e-3
    inside = 0
    for expected in theirs:
        trainer.step()
        point = np.asarray(trainer.point)
        np.testing.assert_allclose(point, expected, rtol=tolerance, atol=tolerance)
        inside += bool(np.linalg.norm(point) < radius * 0.999)
    assert 0 < inside < ROUNDS, "some steps are projected and some are not"
    np.testing.assert_allclose(np.asarray(trainer.released()), average, rtol=tolerance, atol=tolerance)


def test_the_model_is_the_weighted_mean_of_the_points() -> None:
    features, labels = heavy_tailed(8)
    plan = plan_of(ROUNDS, SIZE, 1.0, domain=L2Ball(2.0))
    model = LinearModel(Squared(), FEATURES, fit_intercept=False)
    trainer = trainer_of(plan, model, features, labels, random_streams(4))
    mean = np.zeros(FEATURES)
    for weight in plan.release.weights:
        trainer.step()
        mean += weight * trainer.point
    trainer.close()
    released = run(plan, model, features, labels, seed=4).parameters["weights"]
    np.testing.assert_allclose(released, mean, rtol=1e-12)
    assert not np.allclose(released, trainer.point)


class Watched(RandomStreams):
    """The run's own streams; which rows took part in which step is written down."""

    def __init__(self, seed: int) -> None:
        super().__init__(**vars(random_streams(seed)))
        object.__setattr__(self, "drawn", [])

    def sampler(self, sampling: Any, steps: int, divisor: int, dataset_size: int, records: Any) -> Any:
        sampler = super().sampler(sampling, steps, divisor, dataset_size, records)
        draw, drawn = sampler.draw, self.__dict__["drawn"]
        given = np.argsort(records.positions)  # later places are those of empty slots

        def watched() -> Any:
            rows = draw()
            drawn.append(given[rows[rows != records.spare]])
            return rows

        sampler.draw = watched
        return sampler


def small_plan(relation: NeighboringRelation, records: int = 600) -> Plan:
    assumptions = {
        "smoothness": 2.0,
        "strong_convexity": 1.0,
        "diameter": 2.0,
        "moment_order": 3.0,
        "moment_bound": 5.0,
    }
    spec = Spec(
        records,
        ZcdpTarget(0.5),
        dimension=FEATURES,
        neighboring_relation=relation,
        iterations=20,
        assumptions=assumptions,
    )
    return calibrate(NAME, spec).plan


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_what_is_charged_is_what_runs(relation: NeighboringRelation) -> None:
    plan = small_plan(relation)
    [event] = plan.events
    rng = np.random.default_rng(1)
    streams = Watched(9)
    result = run(
        plan,
        LinearModel(Squared(), FEATURES, False),
        rng.normal(size=(600, FEATURES)),
        rng.random(600),
        streams=streams,
    )
    batches = streams.__dict__["drawn"]
    assert result.steps == len(batches) == event.count == 21
    every = np.concatenate(batches)
    assert len(set(every.tolist())) == every.size, "a record takes part once at most"
    if event.sampling == DisjointBatches("by_position"):
        assert {batch.size for batch in batches} == {600 // 21}
        assert every.size <= 600
    else:
        assert sorted(every.tolist()) == list(range(default_capacity(600)))
        assert len({batch.size for batch in batches}) > 1
    assert np.linalg.norm(result.parameters["weights"]) <= 1.0 + 1e-9, "the mean of points of the ball"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", [3, 57, 120])
def test_a_replaced_record_moves_one_step_by_two_bounds_at_most(dtype: str, row: int) -> None:
    """Adversarial neighbours under the same batches and the same noise; no domain hides the difference."""
    rounds, size, clip = 13, 10, 0.8
    plan = plan_of(rounds, size, clip, dtype=dtype)
    model = PerRecordModel(FEATURES, np.zeros(FEATURES), gradient=lambda point, features, labels: point + features)
    rng = np.random.default_rng(row)
    features, labels = rng.normal(size=(rounds * size, FEATURES)), np.zeros(rounds * size)
    features[row] = 1e6
    neighbour = features.copy()
    neighbour[row] = -1e6
    one, other = (trainer_of(plan, model, rows, labels, random_streams(2)) for rows in (features, neighbour))
    moved = 0.0
    while moved == 0.0:
        one.step()
        other.step()
        moved = float(np.linalg.norm(one.point - other.point))
    one.close()
    other.close()
    bound = plan.phases[0].step_size_at(one.steps_done - 1) * 2.0 * clip / size
    assert 0.9 * bound < moved <= bound


def test_more_rows_than_declared_or_fewer_change_no_divisor() -> None:
    plan = small_plan(REPLACE_ONE)
    model = LinearModel(Squared(), FEATURES, False)
    rng = np.random.default_rng(2)
    for rows in (0, 1, 599, 700):
        result = run(plan, model, rng.normal(size=(rows, FEATURES)), rng.random(rows), seed=1, capacity=700)
        assert result.steps == 21
        assert np.all(np.isfinite(result.parameters["weights"]))


def test_the_excess_risk_is_below_its_bound_in_the_theorems_own_setting() -> None:
    """Least squares with heavy-tailed noise: H = diag(1, .., 2), E|grad|^3 known, minimiser inside the ball."""
    records, dimension, runs = 40_000, 3, 8
    spectrum = np.array([1.0, 1.5, 2.0])
    optimum = np.array([0.3, -0.4, 0.2])
    noise_scale, freedom = 0.1, 4.0
    length = float(np.sqrt(spectrum.sum()))
    # |grad| = |a| |<w - w*, a> - xi|; E<v, a>^4 <= 3 (2 |v|^2)^2 for signs, and E|t|^3 = 8 for four degrees of freedom.
    moment = length * (3.0**0.25 * 2.0**0.5 * 2.0 + noise_scale * 2.0)
    assumptions = {
        "smoothness": 2.0,
        "strong_convexity": 1.0,
        "diameter": 2.0,
        "moment_order": 3.0,
        "moment_bound": moment,
    }
    spec = Spec(records, ZcdpTarget(0.5), dimension=dimension, assumptions=assumptions)
    found = calibrate(NAME, spec)
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
        rows = np.column_stack([inputs, noise_scale * rng.standard_t(freedom, size=records)])
        point = run(found.plan, model, rows, np.zeros(records), seed=seed).parameters["point"]
        risks.append(0.5 * float(spectrum @ (point - optimum) ** 2))
    start = 0.5 * float(spectrum @ optimum**2)
    mean, error = float(np.mean(risks)), float(np.std(risks, ddof=1) / runs**0.5)
    assert mean + 4.0 * error <= bound.value
    assert mean <= 0.1 * start, "and the runs learn"


def test_a_run_repeats_with_its_seed_and_differs_without() -> None:
    features, labels = heavy_tailed(3)
    plan, model = plan_of(ROUNDS, SIZE, 1.0, domain=L2Ball(2.0)), LinearModel(Squared(), FEATURES, False)
    runs = [run(plan, model, features, labels, seed=seed).parameters["weights"] for seed in (1, 1, None, None)]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[2], runs[3])


def test_a_plan_with_more_batches_than_records_is_refused() -> None:
    plan = replace(plan_of(4, 5, 1.0), dataset_size=19)
    with pytest.raises(ValueError, match="need 20 records"):
        run(plan, LinearModel(Squared(), FEATURES, False), np.zeros((19, FEATURES)), np.zeros(19))
