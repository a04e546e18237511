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
from trainer.gradients import OuterProducts
from trainer.grid import Grid
from trainer.loop import Trainer
from trainer.losses import Logistic, Squared
from trainer.models import LinearModel
from trainer.records import Block
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


class RoundsByPlace(LinearModel):
    """A model whose rounding decides: gradients at uneven places of a block turn round."""

    def gradients(self, point: np.ndarray, block: Block) -> OuterProducts:
        found = super().gradients(point, block)
        [layer] = found.layers
        signs = np.where(np.arange(layer.deltas.shape[0]) % 2 == 0, 1.0, -1.0)[:, None]
        return OuterProducts(found.xp, (replace(layer, deltas=layer.deltas * signs.astype(layer.deltas.dtype)),))


def direction_of(
    some: Data, batch: list[int], point: np.ndarray, snapshot: np.ndarray, plan: Plan, model: LinearModel
) -> tuple[np.ndarray, list[Grid]]:
    """What a step on these rows adds its noise to, in whole steps, and the grids of sums and of directions."""
    noised: list[np.ndarray] = []
    true_noised = Grid.noised

    def watched(grid: Grid, integers: np.ndarray, noise: np.ndarray, unit: float) -> np.ndarray:
        noised.append(np.array(integers))
        return np.asarray(true_noised(grid, integers, noise, unit))

    trainer = given.trainer_of(plan, model, *some, GivenStreams([np.zeros(FEATURES)], [batch]))
    vars(trainer).update(_point=point, _snapshot=snapshot, _within=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Grid, "noised", watched)
        trainer.step()
    trainer.close()
    [direction] = noised
    return direction, [vars(trainer)["_sum_grid"], vars(trainer)["_grid"]]


def exceeds(vector: list[Fraction], bound: Fraction, grid: Grid) -> bool:
    """Whether a vector in steps is longer than a bound in units of G / n, without rounding."""
    return sum(entry**2 for entry in vector) > (bound / Fraction(grid.step)) ** 2


@pytest.mark.parametrize("relation", [REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", [LinearModel, RoundsByPlace])
def test_one_record_moves_the_four_means_by_at_most_what_is_charged(
    dtype: str, relation: NeighboringRelation, kind: type[LinearModel]
) -> None:
    """With and without record 23 in the batch, for adversarial neighbours of every size: bounds are all but reached."""
    n, b, j = 24, 5, 23
    q, reach = Fraction(b, n), Fraction(int(relation.sensitivity))
    plan = replace(plan_of("dp_svrg"), neighboring_relation=relation, dtype=dtype)
    model = kind(Squared(), FEATURES, fit_intercept=False)
    # Gradients that turn round between the points, and of another record in the opposite direction; others turn, too.
    along, pairs = np.array([0.0, 1.0, 0.0, 0.0]), list(neighbours(relation, n))
    _, labels = pairs[0][0]
    steep = [1e4 * np.array([sign, 0.01, 0.0, 0.0]) for sign in (1.0, -1.0)]
    others, last = np.tile(steep[0], (n - 1, 1)), steep[1] if relation is REPLACE_ONE else np.full(4, np.nan)
    turning = tuple((np.vstack([others, record]), labels) for record in (steep[0], last))
    opposed = tuple((np.vstack([others, record]), labels) for record in (steep[1], last))
    largest = {"mean": reach, "inside": reach * (2 - q) / q, "one": 4 / q, "other": 4 / q}
    reached = dict.fromkeys(largest, 0.0)
    for point, snapshot in ((along, -along), (np.full(4, 0.3), np.zeros(4)), (np.zeros(4), np.full(4, -1e5))):
        for some in [*pairs[::4], turning, opposed]:
            made = [
                direction_of(data, batch, point, snapshot, plan, model)
                for data in some
                for batch in ([2, 3, 0, 5, 11], [2, 3, j, 5, 11])
            ]
            x0, x1, y0, y1 = ([Fraction(float(entry)) for entry in direction] for direction, _ in made)
            assert all(grids == made[0][1] for _, grids in made), "grids are public"
            moved = {
                "mean": [(1 - q) * (a - c) + q * (e - f) for a, c, e, f in zip(x0, y0, x1, y1, strict=True)],
                "inside": [a - c for a, c in zip(x1, y1, strict=True)],
                "one": [a - c for a, c in zip(x1, x0, strict=True)],
                "other": [a - c for a, c in zip(y1, y0, strict=True)],
            }
            grid = made[0][1][1]
            for name, vector in moved.items():
                bound = largest[name] / (2 if name == "other" and relation is not REPLACE_ONE else 1)
                assert not exceeds(vector, bound, grid), name
                length = math.sqrt(sum(float(entry) ** 2 for entry in vector)) * grid.step
                reached[name] = max(reached[name], length / float(bound))
    # Gradients that turn round by place do so where others cancel.
    assert min(reached.values() if kind is LinearModel else [reached["mean"]]) >= 0.96, reached


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
    """Not in the model, the progress or the result, nor in a checkpoint."""
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
        full = vars(trainer)["_full_gradient"]
        assert np.any(full != 0.0)
        for name, kept in (trainer.state() | {"released": trainer.released()}).items():
            assert not np.array_equal(kept, full), name
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
