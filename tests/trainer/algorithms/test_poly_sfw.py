"""Recursive Frank-Wolfe: each step equal to a transcription of the pseudocode, no estimate more sensitive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import array_api_strict
import numpy as np
import numpy.typing as npt
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, PureDp, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.bassily_guzman.recursion import Recursion
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import L1Ball, L2Ball
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.plan import Plan
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.conformance.trainers.streams import RecordingStreams
from tests.trainer import given
from tests.transcriptions.recursive_sfw import trajectory
from trainer.arrays import Array, Namespace, to_host
from trainer.clipping import MARGINS
from trainer.loop import Trainer
from trainer.losses import Squared
from trainer.losses.loss import Loss, column
from trainer.models import LinearModel, build
from trainer.recursive_gradients import rounding_is_paid_for
from trainer.run import run
from trainer.streams import random_streams

Floats = npt.NDArray[np.float64]
MARGIN = MARGINS["float64"]
REPLACE = NeighboringRelation.REPLACE_ONE
MODEL = LinearModel(Squared(), 2, fit_intercept=False)


@dataclass(frozen=True)
class Steep(Loss):
    """A loss that is steered by the label; every gradient and every change of one is clipped."""

    kind = "steep"
    num_classes = 0
    value_at_zero = 1.0

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        raise NotImplementedError

    def largest_change(self, norm_order: float) -> float:
        raise NotImplementedError

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        return column(xp, labels, logits) * (1.0 + 1e6 * logits)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        raise NotImplementedError


def plan_of(
    recursion: Recursion,
    problem: Problem,
    *,
    scale: float = 0.2,
    relation: NeighboringRelation = REPLACE,
    extra: int = 0,
    name: str = "poly_sfw",
) -> Plan:
    phase = RecursiveSelections(
        Event(ZcDp(0.1)),
        recursion.selections,
        recursion.first_batch,
        recursion.batch,
        recursion.step_size,
        scale,
        problem.lipschitz,
        problem.smoothness,
    )
    return Plan(name, recursion.records + extra, relation, (phase,), domain=L1Ball(0.5 * problem.diameter))


def trainer_of(
    plan: Plan, model: LinearModel, features: Array, labels: Array, gumbel: Floats, seed: int = 5
) -> Trainer:
    return given.trainer_of(plan, model, features, labels, RecordingStreams(seed, gumbel=list(gumbel)))


def order_of(plan: Plan, seed: int = 5) -> npt.NDArray[np.intp]:
    """The slots in the order in which steps take them."""
    return random_streams(seed).sampling.generator().permutation(plan.dataset_size)


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "strict"])
@pytest.mark.parametrize("problem", [Problem(9.0, 9.0, 2.0), Problem(0.3, 9.0, 3.0), Problem(5.0, 0.2, 2.0)])
@pytest.mark.parametrize("recursion", [Recursion(9, 6, 1, 0.2), Recursion(5, 4, 3, 1.0)])
def test_every_step_is_that_of_the_transcription(recursion: Recursion, problem: Problem, xp: Namespace) -> None:
    plan = plan_of(recursion, problem, extra=3)
    generator = np.random.default_rng(1)
    features, labels = generator.normal(size=(plan.dataset_size, 2)), generator.uniform(-1, 1, plan.dataset_size)
    gumbel = generator.gumbel(size=(recursion.selections, 4))
    draws = iter(gumbel)
    expected = trajectory(
        np.zeros(2),
        lambda x, i: features[i] * (features[i] @ x - labels[i]),
        order_of(plan).tolist(),
        lambda scores: int(np.argmin(scores - 0.2 * next(draws))),
        T=recursion.selections,
        n0=recursion.first_batch,
        m=recursion.batch,
        eta=recursion.step_size,
        D=0.5 * problem.diameter,
        L0=problem.lipschitz * (1.0 - MARGIN),
        L1=problem.smoothness * (1.0 - MARGIN),
    )
    trainer = trainer_of(plan, MODEL, xp.asarray(features), xp.asarray(labels), gumbel)
    for estimate, point in expected:
        trainer.step()
        # Means are on a grid.
        np.testing.assert_allclose(to_host(trainer.state()["estimate"]), estimate, rtol=1e-9, atol=1e-5)
        np.testing.assert_allclose(to_host(trainer.released()), point, rtol=1e-12, atol=1e-15)
        assert np.sum(np.abs(to_host(trainer.released()))) <= 0.5 * problem.diameter * (1.0 + 1e-12)


def test_without_noise_and_clipping_the_worked_points_are_reached() -> None:
    """W14: a_i = (cos i, sin 2i), y_i = cos(3i) / 2, n_0 = 4, four single records, eta = 1/4, D = 1."""
    plan = plan_of(Recursion(5, 4, 1, 0.25), Problem(2.0, 1.1, 2.0))
    i = np.arange(8.0)
    features, labels = np.empty((8, 2)), np.empty(8)
    order = order_of(plan)
    features[order], labels[order] = np.stack([np.cos(i), np.sin(2.0 * i)], axis=1), 0.5 * np.cos(3.0 * i)
    trainer = trainer_of(plan, MODEL, features, labels, np.zeros((5, 4)))
    chosen, before = [], np.zeros(2)
    for _ in range(5):
        trainer.step()
        u = (np.asarray(trainer.released()) - 0.75 * before) / 0.25
        chosen.append(int(np.argmax(np.concatenate([u, -u]))))
        before = np.asarray(trainer.released())
    assert chosen == [3, 1, 1, 0, 3]
    np.testing.assert_allclose(trainer.released(), (0.1875, -0.0830078125), rtol=1e-12)
    np.testing.assert_allclose(trainer.state()["estimate"], (0.09014600884647, 0.26129996508852), atol=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("relation", [REPLACE, NeighboringRelation.REPLACE_SPECIAL])
@pytest.mark.parametrize("smoothness", [0.05, 1e6])
def test_no_estimate_moves_by_more_than_was_charged_and_every_step_by_that(
    relation: NeighboringRelation, smoothness: float
) -> None:
    """Forced trajectories, a record of every step replaced by one that pulls the other way, or by the null record."""
    problem, recursion = Problem(0.8, smoothness, 2.0), Recursion(7, 4, 2, 0.3)
    plan, model = plan_of(recursion, problem, relation=relation), LinearModel(Steep(), 2, fit_intercept=False)
    widths = [recursion.ranges(problem)[0], *[recursion.ranges(problem)[1]] * 6]
    order, generator = order_of(plan), np.random.default_rng(2)
    reached = dict.fromkeys(range(7), 0.0)
    for _ in range(3):
        features = np.sign(generator.normal(size=(plan.dataset_size, 2)))
        labels = generator.uniform(0.5, 1.0, plan.dataset_size)
        gumbel = 1e12 * np.eye(4)[generator.integers(4, size=7)]
        for place in range(plan.dataset_size):
            others, targets = features.copy(), labels.copy()
            if relation is REPLACE:
                targets[order[place]] *= -1.0
            else:
                others[order[place]] = np.nan
            own = 0 if place < 4 else 1 + (place - 4) // 2
            pair = [trainer_of(plan, model, *rows, gumbel) for rows in ((features, labels), (others, targets))]
            for step in range(7):
                for trainer in pair:
                    trainer.step()
                one, other = (np.asarray(trainer.state()["estimate"]) for trainer in pair)
                np.testing.assert_array_equal(*(trainer.state()["point"] for trainer in pair))
                moved = problem.diameter * float(np.max(np.abs(one - other)))
                charged = relation.sensitivity * widths[own] * 0.7 ** max(0, step - own)
                assert moved <= (charged if step >= own else 0.0)
                if step == own:
                    reached[own] = max(reached[own], moved / charged)
    if smoothness < 1.0 or relation is REPLACE:
        assert reached[0] > 0.9999
    if smoothness < 1.0:
        assert max(reached[step] for step in range(1, 7)) > 0.95, "changes and gradients pull together"


def test_what_rounding_does_to_a_long_run_is_measured_within_what_is_paid() -> None:
    """Neighbours far behind a record's step differ by its shrunk part and by rounding alone."""
    recursion, problem = Recursion(400, 50, 1, 0.02), Problem(1.0, 1.0, 2.0)
    plan, model = plan_of(recursion, problem), MODEL
    generator = np.random.default_rng(4)
    features, labels = generator.normal(size=(plan.dataset_size, 2)), generator.uniform(-1, 1, plan.dataset_size)
    gumbel = 1e12 * np.eye(4)[generator.integers(4, size=400)]
    turned = labels.copy()
    turned[order_of(plan)[0]] *= -1.0
    pair = [trainer_of(plan, model, features, targets, gumbel) for targets in (labels, turned)]
    differences = []
    for _ in range(400):
        for trainer in pair:
            trainer.step()
        one, other = (np.asarray(trainer.state()["estimate"]) for trainer in pair)
        differences.append(one - other)
    expected = differences[0] * 0.98 ** np.arange(400)[:, None]
    off = (3.0 + 16.0 * 0.02) * 2.0**-53 * (1.0 + 0.02 * 2.0 / 0.02) / 0.02
    assert 0.0 < np.max(np.abs(differences - expected)) <= off
    [phase] = plan.phases
    assert isinstance(phase, RecursiveSelections)
    assert rounding_is_paid_for(phase, 1.0)
    assert rounding_is_paid_for(replace(phase, event=Event(PureDp(1.0))), 1.0)


@pytest.mark.parametrize("name", ["poly_sfw", "private_sfw_nonconvex_l1"])
def test_a_whole_run_stays_under_its_bound_and_below_where_it_began(name: str) -> None:
    """f = (<a, x> - y)^2 / 2 with features of random signs: L_0 = 2, L_1 = 1, D = 1."""
    found = calibrate(
        name,
        Spec(
            40_000,
            ApproximateDpTarget(4.0, 1e-6),
            dimension=10,
            iterations=100,
            assumptions={"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
        ),
    )
    [bound] = [item.value for item in found.utility if item.name in ("excess_risk_bound", "gradient_norm_bound")]
    assert isinstance(bound, float)
    target = np.zeros(10)
    target[:2] = (0.6, -0.4)
    features = np.random.default_rng(4).choice([-1.0, 1.0], size=(40_000, 10))
    model = build(10, kind="linear_regression", fit_intercept=False)
    points = [run(found.plan, model, features, features @ target, seed=s).parameters["weights"] for s in (1, 3, 5)]
    risks = [0.5 * float(np.sum((x - target) ** 2)) for x in points]
    assert np.mean(risks) < 0.6 * 0.26
    gaps = [float((x - target) @ x + np.max(np.abs(x - target))) for x in points]
    assert np.mean(gaps if name != "poly_sfw" else risks) <= bound


@pytest.mark.parametrize(
    ("changes", "phase", "pointer"),
    [
        ({"domain": None}, {}, ("phases",)),
        ({"domain": L2Ball(1.0)}, {}, ("phases",)),
        ({"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE}, {}, ("neighboring_relation",)),
        ({"dataset_size": 10}, {}, ("phases", 0, "batch")),
        ({}, {"lipschitz": 1e-200}, ("phases", 0, "lipschitz")),
        ({}, {"step_size": 1e-12}, ("phases", 0, "selections")),
    ],
)
def test_a_plan_that_cannot_be_kept_is_refused(
    changes: dict[str, Any], phase: dict[str, Any], pointer: tuple[object, ...]
) -> None:
    plan = plan_of(Recursion(7, 4, 2, 0.3), Problem(1.0, 1.0, 2.0))
    [own] = plan.phases
    plan = replace(plan, phases=(replace(own, **phase),), **changes)
    with pytest.raises(InvalidValue) as refused:
        run(plan, MODEL, np.zeros((3, 2)), np.zeros(3), seed=1)
    assert refused.value.pointer == pointer


def test_a_network_is_refused() -> None:
    plan = plan_of(Recursion(7, 4, 2, 0.3), Problem(1.0, 1.0, 2.0))
    network = build(2, kind="mlp", hidden=[2], num_classes=2)
    with pytest.raises(Unsupported) as refused:
        run(plan, network, np.zeros((3, 2)), np.zeros(3), seed=1)
    assert refused.value.pointer == ("model", "kind")
