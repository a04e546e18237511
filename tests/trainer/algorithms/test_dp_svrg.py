"""DP-SVRG and DP-SVRG++: worked steps, what one record moves, what is seen of the full gradient, whole runs."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidValue
from accounting.events import Event, RenyiDp, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.geometry import L1Penalty, L2Ball, L2Penalty, Penalty
from calibrators.phases.variance_reduced_epochs import VarianceReducedEpochs
from calibrators.plan import Clip, Plan
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.conformance.trainers.streams import RecordingStreams
from tests.conformance.trainers.sums import SumAt, given_sums
from tests.conformance.trainers.test_sensitivity import Data, neighbours
from tests.trainer import given
from tests.trainer.given import GivenStreams
from trainer.checkpoint import Checkpoints
from trainer.clipping import margin
from trainer.grid import Grid
from trainer.loop import Trainer
from trainer.losses import Logistic, Squared
from trainer.models import LinearModel
from trainer.run import run
from trainer.streams import RandomStreams

NAMES = ["dp_svrg", "dp_svrg_pp"]
REPLACE_ONE = NeighboringRelation.REPLACE_ONE
FEATURES = 4
every_name = pytest.mark.parametrize("name", NAMES)


def phase_of(inner: tuple[int, ...], **changes: Any) -> VarianceReducedEpochs:
    usual: dict[str, Any] = {
        "event": Event(RenyiDp((2.0,), (0.1,)), count=sum(inner)),
        "inner_iterations": inner,
        "records_per_step": 5,
        "max_grad_norm": 0.8,
        "noise_stddev_on_mean": 0.3,
        "step_size": 0.2,
    }
    return VarianceReducedEpochs(**usual | changes)


def plan_of(name: str, inner: tuple[int, ...] = (3, 2), size: int = 24, **changes: Any) -> Plan:
    return Plan(name, size, REPLACE_ONE, (phase_of(inner),), **changes)


def trainer_of(plan: Plan, features: np.ndarray, labels: np.ndarray, streams: RandomStreams) -> Trainer:
    model = LinearModel(Squared(), features.shape[1], fit_intercept=False)
    return given.trainer_of(plan, model, features, labels, streams)


@pytest.mark.parametrize(
    ("penalty", "expected"),
    [(L2Penalty(0.5), [0.8952380952, -0.9571428571]), (L1Penalty(0.3), [0.91, -0.975])],
)
def test_the_worked_inner_step(penalty: Penalty, expected: list[float]) -> None:
    """x = [1, -1], eta = .1: the direction without noise is [.5, .25], the noise [.1, -.2]."""
    phase = phase_of((1, 1), step_size=0.1, noise_stddev_on_mean=1.0, records_per_step=1)
    plan = Plan("dp_svrg_pp", 1, REPLACE_ONE, (phase,), penalty=penalty)
    trainer = trainer_of(plan, np.zeros((1, 2)), np.zeros(1), GivenStreams([np.array([0.1, -0.2])], [[0]]))
    vars(trainer).update(_point=np.array([1.0, -1.0]), _snapshot=np.array([1.0, -1.0]))
    gradients = iter([np.array([0.5, 0.25]), np.array([0.3, 0.1]), np.array([0.3, 0.1])])
    with given_sums(lambda sum_at, grid: np.rint(next(gradients) / phase.max_grad_norm / grid.step)):
        trainer.step()
    np.testing.assert_allclose(vars(trainer)["_point"], expected, rtol=0.0, atol=1e-5)  # on the grid


def sums_of(
    some: Data, seed: int, point: np.ndarray, snapshot: np.ndarray, dtype: str
) -> tuple[list[np.ndarray], np.ndarray, list[Grid]]:
    """What the first step sums and what it noises, in whole steps, and the grids of both.

    The sums: the full gradient at the snapshot, the batch's at the point and at the snapshot.
    """
    sums: list[np.ndarray] = []
    noised: list[np.ndarray] = []
    grids: list[Grid] = []

    def give(sum_at: SumAt, grid: Grid) -> np.ndarray:
        sums.append(sum_at([snapshot, point, snapshot][len(sums)]))
        grids.append(grid)
        return sums[-1].copy()

    true_noised = Grid.noised

    def watched(grid: Grid, integers: np.ndarray, noise: np.ndarray, unit: float) -> np.ndarray:
        noised.append(np.array(integers))
        grids.append(grid)
        return np.asarray(true_noised(grid, integers, noise, unit))

    plan = replace(plan_of("dp_svrg"), dtype=dtype)
    trainer = trainer_of(plan, *some, RecordingStreams(seed, noise_factor=0.0))
    with given_sums(give), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grid, "noised", watched)
        trainer.step()
    trainer.close()
    [direction] = noised
    return sums, direction, [grids[0], grids[-1]]


def squared_distance(one: np.ndarray, other: np.ndarray) -> int:
    """Of vectors of whole numbers, without rounding."""
    return sum((int(a) - int(b)) ** 2 for a, b in zip(one, other, strict=True))


def allowed(bounds: int | Fraction, grid: Grid) -> int:
    """The square of so many bounds, in steps."""
    return math.floor((bounds / Fraction(grid.step)) ** 2)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_one_record_moves_a_batchs_changes_and_the_full_gradient_by_at_most_what_is_charged(dtype: str) -> None:
    """Adversarial neighbours of every size, at points that are near and far; the bounds are all but reached."""
    phase = phase_of((3, 2))
    reached = [0.0, 0.0]
    inside = next(seed for seed in range(50) if 23 in drawn(seed))
    outside = next(seed for seed in range(50) if 23 not in drawn(seed))
    # Gradients that turn round between the points, and of another record in the opposite direction.
    along, pairs = np.array([0.0, 1.0, 0.0, 0.0]), list(neighbours(REPLACE_ONE, 24))
    features, labels = pairs[0][0]
    turning = tuple(
        (np.vstack([features[:-1], 1e4 * np.array([sign, 0.01, 0.0, 0.0])]), labels) for sign in (1.0, -1.0)
    )
    for point, snapshot in ((along, -along), (np.full(4, 0.3), np.zeros(4)), (np.zeros(4), np.full(4, -1e5))):
        for one, other in [*pairs[::4], turning]:
            for seed in (inside, outside):
                sums, direction, [grid, finer] = sums_of(one, seed, point, snapshot, dtype)
                others, other_direction, grids = sums_of(other, seed, point, snapshot, dtype)
                assert grids == [grid, finer], "grids are public"
                full = squared_distance(sums[0], others[0])
                moved = squared_distance(sums[1] - sums[2], others[1] - others[2])
                assert full <= allowed(2, grid)
                assert moved <= (allowed(4, grid) if seed == inside else 0)
                assert squared_distance(sums[1], sums[2]) <= allowed(2 * phase.records_per_step, grid)
                # What is noised is in units of G / n.
                charged = 2 + (Fraction(4 * 24, phase.records_per_step) if seed == inside else 0)
                assert squared_distance(direction, other_direction) <= allowed(charged, finer)
                reached[0] = max(reached[0], math.sqrt(full) * grid.step / 2.0)
                reached[1] = max(reached[1], math.sqrt(moved) * grid.step / 4.0)
    assert min(reached) >= 0.97


def drawn(seed: int) -> list[int]:
    """Who is in the first batch."""
    streams = RecordingStreams(seed)
    trainer = trainer_of(plan_of("dp_svrg"), np.ones((24, FEATURES)), np.zeros(24), streams)
    trainer.step()
    trainer.close()
    return streams.drawn.batches[0].tolist()


@every_name
def test_directions_depend_on_the_records_by_three_clipped_sums_alone(name: str) -> None:
    """Given the sums, two data sets with nothing in common lead to the same everything."""
    rng = np.random.default_rng(3)
    states = []
    for scale in (1.0, 50.0):
        features, labels = scale * rng.normal(size=(24, FEATURES)), rng.uniform(-1.0, 1.0, 24)
        asked = [0]

        def give(sum_at: SumAt, grid: Grid, asked: list[int] = asked) -> np.ndarray:
            asked[0] += 1
            return np.rint(np.random.default_rng(asked[0]).normal(size=FEATURES) / grid.step)

        trainer = trainer_of(plan_of(name), features, labels, RecordingStreams(1))
        with given_sums(give):
            for _ in range(5):
                trainer.step()
        trainer.close()
        assert asked[0] == 2 + 2 * 5  # one full gradient for each epoch, two sums for each step
        states.append({key: value for key, value in trainer.state().items() if key not in ("sampler", "sampling")})
        states[-1]["released"] = trainer.released()
    np.testing.assert_equal(states[0], states[1])


@every_name
def test_the_full_gradient_is_in_nothing_that_is_seen(name: str) -> None:
    """Not in the model, the progress or the result; in a checkpoint, which is as secret as the data."""
    rng = np.random.default_rng(4)
    features, labels = rng.normal(size=(24, FEATURES)), rng.uniform(-1.0, 1.0, 24)
    model, saved = LinearModel(Squared(), FEATURES, fit_intercept=False), []
    keep = Checkpoints(saved.append, lambda done: True, "tag", "1")
    result = run(plan_of(name), model, features, labels, seed=1, checkpoint=keep)
    assert set(vars(result)) == {"parameters", "steps"}
    assert set(result.parameters) == {"weights"}
    assert saved
    trainer = trainer_of(plan_of(name), features, labels, RecordingStreams(1))
    for _ in range(5):
        trainer.step()
        full = trainer.state()["full_gradient"]
        assert np.any(full != 0.0)
        assert not np.array_equal(trainer.released(), full)
    trainer.close()


def test_where_no_noise_is_drawn_a_step_over_everybody_is_a_step_of_gradient_descent() -> None:
    """With b = n the two gradients at the snapshot cancel."""
    rng = np.random.default_rng(5)
    features, labels = 0.3 * rng.normal(size=(24, FEATURES)), rng.uniform(-0.5, 0.5, 24)
    phase = phase_of((4,), records_per_step=24)
    plan = Plan("dp_svrg", 24, REPLACE_ONE, (phase,))
    trainer = trainer_of(plan, features, labels, RecordingStreams(1, noise_factor=0.0))
    x = np.zeros(FEATURES)
    for _ in range(4):
        trainer.step()
        g = (features @ x - labels)[:, None] * features
        lengths = np.maximum(np.linalg.norm(g, axis=1), 1e-300)
        x = x - 0.2 * (g * np.minimum(1.0, 0.8 * (1.0 - margin("float64")) / lengths)[:, None]).mean(axis=0)
        np.testing.assert_allclose(trainer.state()["point"], x, atol=1e-5)  # on the grid
    trainer.close()


def test_points_stay_in_the_domain() -> None:
    rng = np.random.default_rng(6)
    features, labels = rng.normal(size=(24, FEATURES)), rng.uniform(-1.0, 1.0, 24)
    trainer = trainer_of(plan_of("dp_svrg_pp", domain=L2Ball(0.05)), features, labels, RecordingStreams(1))
    for _ in range(5):
        trainer.step()
        for name in ("point", "snapshot"):
            assert np.linalg.norm(trainer.state()[name]) <= 0.05 * (1.0 + 1e-12)
    trainer.close()


def test_rows_beyond_the_declared_size_are_never_read() -> None:
    rng = np.random.default_rng(7)
    features, labels = rng.normal(size=(40, FEATURES)), rng.uniform(-1.0, 1.0, 40)
    model = LinearModel(Squared(), FEATURES, fit_intercept=False)
    few = run(plan_of("dp_svrg"), model, features[:24], labels[:24], seed=1, capacity=40).parameters["weights"]
    features[24:] = 1e3
    many = run(plan_of("dp_svrg"), model, features, labels, seed=1, capacity=40).parameters["weights"]
    np.testing.assert_allclose(few, many, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"phases": (phase_of((3,)), phase_of((3,)))}, ("phases",)),
        ({"phases": (phase_of((3,), step_size=None),)}, ("phases", 0, "step_size")),
        ({"phases": (phase_of((3,), records_per_step=25),)}, ("phases", 0, "records_per_step")),
        ({"phases": (phase_of((3,), max_grad_norm=1e-120),)}, ("phases", 0, "max_grad_norm")),
        ({"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE}, ("neighboring_relation",)),
    ],
)
def test_a_plan_of_something_else_is_refused(change: dict[str, Any], pointer: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidValue) as refused:
        trainer_of(replace(plan_of("dp_svrg"), **change), np.zeros((24, 4)), np.zeros(24), RecordingStreams(1))
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"event": Event(ZcDp(0.1), count=3)}, ("event",)),
        ({"event": Event(RenyiDp((2.0,), (0.1,)), count=2)}, ("event",)),
        ({"inner_iterations": ()}, ("inner_iterations",)),
        ({"records_per_step": 0}, ("records_per_step",)),
        ({"max_grad_norm": 0.0}, ("max_grad_norm",)),
        ({"noise_stddev_on_mean": 0.0}, ("noise_stddev_on_mean",)),
        ({"step_size": 0.0}, ("step_size",)),
    ],
)
def test_a_phase_that_charges_something_else_than_its_steps_is_none(
    change: dict[str, Any], pointer: tuple[Any, ...]
) -> None:
    with pytest.raises(InvalidValue) as refused:
        phase_of((3,), **change)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize("name", NAMES)
def test_private_runs_end_below_their_bound(name: str) -> None:
    """Logistic regression on rows of the unit ball, with a ridge: G = 1, L = 1/4, mu from the ridge."""
    n, ridge = 2000, 0.1
    rng = np.random.default_rng(8)
    features = rng.normal(size=(n, FEATURES))
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, None]
    labels = (features @ np.array([3.0, -2.0, 1.0, 0.0]) > 0.2 * rng.normal(size=n)).astype(int)

    def risk(w: np.ndarray) -> float:
        z = features @ w
        return float(np.mean(np.logaddexp(0.0, z) - labels * z) + 0.5 * ridge * w @ w)

    best, w = math.inf, np.zeros(FEATURES)
    for _ in range(400):
        w = w - 2.0 * (features.T @ (1.0 / (1.0 + np.exp(-features @ w)) - labels) / n + ridge * w)
        best = min(best, risk(w))
    own = {"strong_convexity": ridge}
    if name == "dp_svrg_pp":
        own = {"initial_distance": float(np.linalg.norm(w)) + 0.01, "inner_iterations": 12.0}
    found = calibrate(
        name,
        Spec(
            n,
            ApproximateDpTarget(8.0, 1e-5),
            iterations=1 if name == "dp_svrg" else 3,
            batch_size=100,
            gradient_bound=Clip(1.0),
            dimension=FEATURES,
            penalty=L2Penalty(ridge),
            assumptions={"smoothness": 0.25, "initial_gap": risk(np.zeros(FEATURES)) - best + 1e-6} | own,
        ),
    )
    [bound] = [item.value for item in found.utility if item.name == "excess_risk_bound"]
    assert isinstance(bound, float)
    model = LinearModel(Logistic(), FEATURES, fit_intercept=False)
    excess = risk(run(found.plan, model, features, labels, seed=1).parameters["weights"]) - best
    assert -1e-9 < excess < bound
