"""Tree Frank-Wolfe: each leaf equal to a transcription of the pseudocode, no node more sensitive than was charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import array_api_strict
import numpy as np
import numpy.typing as npt
import pytest

from accounting.errors import InvalidValue, Unsupported
from accounting.events import Event, Gaussian, ZcDp
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from calibrators.bassily_guzman.tree import Problem, Trees
from calibrators.geometry import L1Ball, L2Ball
from calibrators.phases.vertex_trees import TreePhase
from calibrators.plan import Clip, Phase, Plan
from calibrators.registry import calibrate
from calibrators.spec import Spec
from tests.trainer.given import in_slots
from tests.transcriptions.tree_sfw_l1 import leaves, trajectory
from trainer.algorithms.tree_sfw_l1 import TreeFrankWolfe
from trainer.arrays import Array, Namespace, to_host
from trainer.checkpoint import Checkpoints
from trainer.clipping import MARGINS
from trainer.exact.selection import Selections
from trainer.loop import Task
from trainer.losses.loss import Loss, column
from trainer.models import LinearModel, MultilayerPerceptron, build
from trainer.run import run
from trainer.streams import RandomStreams, random_streams

Floats = npt.NDArray[np.float64]
MARGIN = MARGINS["float64"]


@dataclass(frozen=True)
class Steep(Loss):
    """A loss without a Lipschitz constant worth the name, steered by the label; every gradient change is clipped."""

    kind = "steep"
    num_classes = 0
    value_at_zero = 1.0
    wavy: bool = False

    def steepest(self, largest_logit: float, norm_order: float = 2.0) -> float:
        raise NotImplementedError

    def largest_change(self, norm_order: float) -> float:
        raise NotImplementedError

    def residuals(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        y = column(xp, labels, logits)
        return 9.0 * xp.sin(40.0 * logits + 7.0 * y) if self.wavy else y * (1.0 + 1e6 * logits)

    def values(self, xp: Namespace, logits: Array, labels: Array) -> Array:
        raise NotImplementedError


class GivenNoise(Selections):
    """Gumbel variates from a list, one draw after the other."""

    def __init__(self, draws: Floats) -> None:
        super().__init__(random_streams(0).noise)
        self.draws, self.used = draws, 0

    def least(self, scores: Floats, scale: float) -> int:
        drawn = self.draws[self.used]
        self.used += 1
        assert drawn.shape == scores.shape
        return int(np.argmin(scores - scale * drawn))


@dataclass(frozen=True)
class GivenStreams(RandomStreams):
    """Streams whose noise is given."""

    noise_given: GivenNoise

    def selections(self) -> Selections:
        return self.noise_given


def given_streams(draws: Floats, seed: int = 5) -> GivenStreams:
    streams = random_streams(seed)
    return GivenStreams(
        **{field.name: getattr(streams, field.name) for field in fields(RandomStreams)}, noise_given=GivenNoise(draws)
    )


def order_of(plan: Plan, seed: int = 5) -> npt.NDArray[np.intp]:
    """The slots in the order in which nodes take them."""
    return random_streams(seed).sampling.generator().permutation(plan.dataset_size)


def plan_of(
    trees: Trees,
    problem: Problem,
    *,
    noise: float = 1.0,
    extra: int = 0,
    relation: NeighboringRelation = NeighboringRelation.REPLACE_ONE,
) -> Plan:
    phase = TreePhase(
        event=Event(ZcDp(1.0)),
        num_trees=trees.num_trees,
        records_per_tree=trees.records_per_tree,
        noise_scales=tuple(noise * (1.0 + tree) for tree in range(trees.num_trees)),
        lipschitz=problem.lipschitz,
        smoothness=problem.smoothness,
    )
    return Plan("tree_sfw_l1", trees.records + extra, relation, (phase,), domain=L1Ball(problem.diameter / 2.0))


def trainer_of(
    plan: Plan,
    model: LinearModel,
    features: Array,
    labels: Array,
    draws: Floats,
    *,
    dtype: str = "float64",
) -> TreeFrankWolfe:
    streams = given_streams(draws)
    plan = replace(plan, dtype=dtype)
    return TreeFrankWolfe(Task(plan, model, in_slots(plan, model, features, labels, streams), streams))


def estimate_of(trainer: TreeFrankWolfe) -> Array:
    """The gradient that the last selection was made with."""
    estimates = trainer.state()["estimates"]
    return estimates[str(len(estimates) - 1)]


def data(count: int, width: int, seed: int = 1) -> tuple[Floats, Floats]:
    generator = np.random.default_rng(seed)
    return generator.uniform(-1.0, 1.0, size=(count, width)), generator.uniform(-1.0, 1.0, size=count)


CASES = [
    ("squared, unclipped", build(3, kind="linear_regression", fit_intercept=False), Problem(9.0, 9.0, 2.0)),
    ("squared, gradients clipped", build(3, kind="linear_regression"), Problem(0.3, 9.0, 3.0)),
    ("squared, changes clipped", build(3, kind="linear_regression"), Problem(5.0, 0.2, 2.0)),
    ("logistic, clipped everywhere", build(3, kind="logistic_regression"), Problem(0.2, 0.05, 4.0)),
    ("softmax", build(3, kind="softmax_regression", num_classes=3), Problem(0.3, 0.1, 2.0)),
    ("no property at all", LinearModel(Steep(wavy=True), 3), Problem(1.0, 0.7, 2.0)),
]


def gradient_of(model: LinearModel, features: Floats, labels: Floats) -> Callable[[Floats, int], Floats]:
    """One record's gradient, in the trainer's order of parameters, from the loss alone."""

    def gradient(x: Floats, i: int) -> Floats:
        outputs, row = model.num_outputs, features[i]
        split = row.size * outputs
        logits = row @ x[:split].reshape(row.size, outputs) + (x[split:] if model.fit_intercept else 0.0)
        delta = np.asarray(model.loss.residuals(np, logits[None, :], labels[i : i + 1]))[0]
        rows = np.append(row, 1.0) if model.fit_intercept else row
        return np.outer(rows, delta).ravel()

    return gradient


@pytest.mark.one_in(5)
@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "strict"])
@pytest.mark.parametrize("trees", [Trees(1, 2), Trees(2, 4), Trees(3, 16)], ids=str)
@pytest.mark.parametrize(("model", "problem"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_every_leaf_is_that_of_the_transcription(
    model: LinearModel, problem: Problem, trees: Trees, xp: Namespace
) -> None:
    plan = plan_of(trees, problem, noise=0.3, extra=5)
    features, labels = data(plan.dataset_size, 3)
    if model.num_classes:
        labels = np.random.default_rng(2).integers(model.num_classes, size=labels.size)
    draws = np.random.default_rng(3).gumbel(size=(trees.steps, 2 * model.num_parameters))
    tree_of = iter(range(trees.steps))

    def select(scores: Floats, tau: int) -> int:
        return int(np.argmin(scores - 0.3 * tau * draws[next(tree_of)]))

    expected = trajectory(
        np.zeros(model.num_parameters),
        gradient_of(model, features, labels),
        order_of(plan).tolist(),
        select,
        T=trees.num_trees,
        b=trees.records_per_tree,
        D=problem.diameter / 2.0,
        L0=problem.lipschitz * (1.0 - MARGIN),
        L1=problem.smoothness * (1.0 - MARGIN),
    )
    trainer = trainer_of(plan, model, xp.asarray(features), xp.asarray(labels), draws)
    assert len(expected) == trees.steps == plan.iterations
    for estimate, point in expected:
        trainer.step()
        np.testing.assert_allclose(
            to_host(trainer.state()["estimates"][str(len(trainer.state()["estimates"]) - 1)]),
            estimate,
            rtol=1e-9,
            atol=1e-5,  # means are on a grid
        )
        np.testing.assert_allclose(to_host(trainer.released()), point, rtol=1e-12, atol=1e-15)
        assert np.sum(np.abs(to_host(trainer.released()))) <= problem.diameter / 2.0 * (1.0 + 1e-12)
    assert trainer.steps_done == trees.steps


def test_without_noise_and_clipping_the_catalogues_point_is_reached() -> None:
    """W14: a_i = (cos i, sin 2i), y_i = cos(3i) / 2, T = 2, b = 4, D = 1."""
    trees = Trees(2, 4)
    plan = plan_of(trees, Problem(2.0, 1.1, 2.0))
    i = np.arange(14.0)
    features, labels = np.empty((14, 2)), np.empty(14)
    order = order_of(plan)
    features[order], labels[order] = np.stack([np.cos(i), np.sin(2.0 * i)], axis=1), 0.5 * np.cos(3.0 * i)
    model = build(2, kind="linear_regression", fit_intercept=False)
    trainer = trainer_of(plan, model, features, labels, np.zeros((6, 4)))
    for _ in range(6):
        trainer.step()
    np.testing.assert_allclose(trainer.released(), (-0.19047619047619, -0.61904761904762), rtol=1e-13)


def node_of(trees: Trees, place: int) -> tuple[int, int, range]:
    """Tree, depth and the leaves that read the node of the slot that comes at this place."""
    start = 0
    for tau, leaf in leaves(trees.num_trees):
        depth = 0 if leaf == 0 else tau - ((leaf & -leaf).bit_length() - 1)
        size = trees.records_per_tree >> depth
        if place < start + size:
            first = 2**tau - 2 + leaf
            return tau, depth, range(first, first + 2 ** (tau - depth))
        start += size
    raise AssertionError("the slot is in no tree")


def forced(trees: Trees, dimension: int, seed: int) -> Floats:
    """Noise that decides every selection by itself."""
    vertices = np.random.default_rng(seed).integers(2 * dimension, size=trees.steps)
    draws = np.zeros((trees.steps, 2 * dimension))
    draws[np.arange(trees.steps), vertices] = 1e12
    return draws


def estimates_along(plan: Plan, model: LinearModel, features: Floats, labels: Floats, draws: Floats) -> list[Floats]:
    trainer = trainer_of(plan, model, features, labels, draws)
    found = []
    for _ in range(plan.iterations):
        trainer.step()
        found.append(estimate_of(trainer))
    return found


@pytest.mark.parametrize("relation", [NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL])
@pytest.mark.parametrize("smoothness", [0.02, 0.6, 1e6])
@pytest.mark.parametrize("wavy", [False, True])
@pytest.mark.one_in(12)
def test_no_node_moves_by_more_than_was_charged_and_every_node_by_that(
    relation: NeighboringRelation, smoothness: float, wavy: bool
) -> None:
    """Forced trajectories, a record in every node replaced by one that pulls the other way, or by the null record."""
    trees, problem = Trees(3, 8), Problem(0.8, smoothness, 2.0)
    plan = plan_of(trees, problem, relation=relation)
    model = LinearModel(Steep(wavy), 2, fit_intercept=False)
    order, reached = order_of(plan), dict[tuple[int, int], float]()
    for seed in range(3):
        features, labels = data(plan.dataset_size, 2, seed)
        features[:, 0] = np.sign(features[:, 0])
        draws = forced(trees, 2, seed)
        before = estimates_along(plan, model, features, labels, draws)
        for place in range(trees.records):
            tau, depth, reading = node_of(trees, place)
            others, targets = features.copy(), labels.copy()
            if relation is NeighboringRelation.REPLACE_ONE:
                targets[order[place]] = -np.sign(targets[order[place]])
            else:
                others[order[place]] = np.nan
            after = estimates_along(plan, model, others, targets, draws)
            charged = relation.sensitivity * problem.contribution_bound(depth) * 2**depth / trees.records_per_tree
            for step, (v, w) in enumerate(zip(before, after, strict=True)):
                moved = float(np.max(np.abs(v - w)))
                if step in reading:
                    assert moved <= charged
                    reached[tau, depth] = max(reached.get((tau, depth), 0.0), moved / charged)
                else:
                    assert moved == 0.0
    assert len(reached) == 2 + 3 + 4
    if smoothness == 1e6 and not wavy:
        assert all(ratio > 0.9999 * (1.0 - MARGIN) for ratio in reached.values()), "attained in every node"


def test_vertices_are_selected_with_the_planned_scale() -> None:
    """The first selection of many runs, against softmin at the scale in the plan."""
    trees, problem, scale = Trees(1, 2), Problem(2.0, 1.0, 2.0), 0.4
    plan = plan_of(trees, problem, noise=scale)
    model = build(2, kind="linear_regression", fit_intercept=False)
    features = np.tile([0.5, -0.25], (plan.dataset_size, 1))
    labels = np.ones(plan.dataset_size)
    scores = np.array([-0.5, 0.25, 0.5, -0.25])
    law = np.exp(-scores / scale) / np.sum(np.exp(-scores / scale))
    counts = np.zeros(4)
    streams = random_streams(8)
    records = in_slots(plan, model, features, labels, streams)
    for _ in range(4000):
        trainer = TreeFrankWolfe(Task(plan, model, records, streams))
        trainer.step()
        x = trainer.released()
        index = int(np.argmax(np.abs(x)))
        counts[index if x[index] > 0.0 else index + 2] += 1
    assert np.sum((counts - 4000 * law) ** 2 / (4000 * law)) < 21.0, "3 degrees of freedom, p about 1e-4"


def calibrated(size: int, dimension: int, **changes: Any) -> tuple[Plan, float]:
    """The theorem's setting: f = (<a, x> - y)^2 / 2, a of random signs, D = 1; L_0 = 2, L_1 = 1."""
    found = calibrate(
        "tree_sfw_l1",
        replace(
            Spec(
                size,
                ApproximateDpTarget(1.0, 1e-6),
                dimension=dimension,
                assumptions={"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
            ),
            **changes,
        ),
    )
    [bound] = [item.value for item in found.utility if item.name == "excess_risk_bound"]
    assert isinstance(bound, float)
    return found.plan, bound


def test_a_whole_run_stays_under_its_bound_and_far_below_where_it_began() -> None:
    plan, bound = calibrated(20_000, 20)
    model = build(20, kind="linear_regression", fit_intercept=False)
    target = np.zeros(20)
    target[:3] = (0.5, -0.3, 0.2)
    generator = np.random.default_rng(4)
    features = generator.choice([-1.0, 1.0], size=(20_000, 20))
    excess = []
    for seed in range(5):
        result = run(plan, model, features, features @ target, seed=seed)
        assert result.steps == plan.iterations
        assert np.sum(np.abs(result.parameters["weights"])) <= 1.0 + 1e-9
        excess.append(0.5 * float(np.sum((result.parameters["weights"] - target) ** 2)))
    assert np.mean(excess) < min(bound, 0.5 * 0.19)


def test_progress_steps_and_noise_are_the_plans() -> None:
    plan = plan_of(Trees(3, 8), Problem(1.0, 1.0, 2.0))
    told: list[tuple[int, int]] = []
    features, labels = data(plan.dataset_size, 3)
    model = build(3, kind="linear_regression", fit_intercept=False)
    streams = given_streams(np.zeros((14, 6)))
    result = run(
        plan, model, features, labels, streams=streams, on_progress=lambda done, total: told.append((done, total))
    )
    assert result.steps == plan.iterations == 14
    assert streams.noise_given.used == 14, "one draw for every selection"
    assert told == [(done, 14) for done in range(15)]


def test_a_resumed_run_goes_on_bit_by_bit() -> None:
    plan = plan_of(Trees(3, 8), Problem(0.5, 0.5, 2.0), noise=0.05)
    features, labels = data(plan.dataset_size, 3)
    model = build(3, kind="linear_regression")
    saved: list[bytes] = []
    keep = Checkpoints(save=saved.append, is_due=lambda done: True, data_tag="t", code_version="1")
    whole = run(plan, model, features, labels, seed=3, checkpoint=keep)
    assert len(saved) == plan.iterations
    for data_so_far in (saved[0], saved[4], saved[8], saved[-1]):
        resumed = run(
            plan,
            model,
            features,
            labels,
            checkpoint=Checkpoints(
                save=lambda _: None, is_due=lambda _: False, data_tag="t", code_version="1", resume=data_so_far
            ),
        )
        for name, value in whole.parameters.items():
            np.testing.assert_array_equal(resumed.parameters[name], value)


def test_slots_without_rows_and_rows_without_slots_contribute_nothing_and_change_no_divisor() -> None:
    trees = Trees(2, 8)
    plan = plan_of(trees, Problem(1.0, 1.0, 2.0))
    model = build(3, kind="linear_regression", fit_intercept=False)
    features, labels = data(plan.dataset_size + 40, 3)
    size, draws = plan.dataset_size, forced(trees, 3, 2)
    declared = estimates_along(plan, model, features[:size], labels[:size], draws)
    surplus = estimates_along(plan, model, features, labels, draws)
    np.testing.assert_allclose(surplus, declared, rtol=1e-12, atol=1e-15)
    few = features[:size].copy()
    few[10:] = np.nan
    missing = estimates_along(plan, model, features[:10], labels[:10], draws)
    unusable = estimates_along(plan, model, few, labels[:size], draws)
    np.testing.assert_allclose(missing, unusable, rtol=1e-12, atol=1e-15)
    assert np.max(np.abs(missing)) > 0.0
    np.testing.assert_array_equal(estimates_along(plan, model, features[:0], labels[:0], draws), 0.0)


@pytest.mark.filterwarnings("error")
def test_no_value_of_a_row_raises_warns_or_leaves_the_ball() -> None:
    plan = plan_of(Trees(2, 8), Problem(1.0, 1.0, 2.0), noise=0.1)
    features, labels = data(plan.dataset_size, 3)
    features[0], features[1], features[2, 0], labels[3] = 1e90, np.inf, np.nan, -np.inf
    for kind in ("linear_regression", "logistic_regression"):
        for dtype in ("float64", "float32"):
            result = run(replace(plan, dtype=dtype), build(3, kind=kind), features, labels, seed=2)
            values = np.concatenate([np.ravel(value) for value in result.parameters.values()])
            assert np.all(np.isfinite(values))
            assert np.sum(np.abs(values)) <= 1.0 + 1e-9


def test_float32_rows_lead_to_about_the_same_estimates() -> None:
    plan = plan_of(Trees(2, 8), Problem(0.5, 0.3, 2.0))
    features, labels = data(plan.dataset_size, 3)
    model, draws = build(3, kind="linear_regression"), forced(Trees(2, 8), 4, 1)
    wide, narrow = (trainer_of(plan, model, features, labels, draws, dtype=dtype) for dtype in ("float64", "float32"))
    for _ in range(plan.iterations):
        wide.step()
        narrow.step()
        for depth, estimate in wide.state()["estimates"].items():
            np.testing.assert_allclose(narrow.state()["estimates"][depth], estimate, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"domain": None}, ("phases",)),
        ({"domain": L2Ball(1.0)}, ("phases",)),
        ({"phases": (Phase(Event(Gaussian(1.0)), Clip(1.0), 8, 0.1),)}, ("phases",)),
        ({"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE}, ("neighboring_relation",)),
        ({"lipschitz": 1e-101}, ("phases", 0, "lipschitz")),
    ],
)
def test_plans_that_it_cannot_keep_are_refused_before_the_first_step(
    changes: dict[str, Any], pointer: tuple[str | int, ...]
) -> None:
    plan = plan_of(Trees(2, 8), Problem(1.0, 1.0, 2.0))
    in_phase = {name: changes.pop(name) for name in ("lipschitz", "records_per_tree") if name in changes}
    if in_phase:
        changes = {"phases": (replace(plan.phases[0], **in_phase),)}
    features, labels = data(plan.dataset_size, 3)
    with pytest.raises(InvalidValue) as refused:
        run(replace(plan, **changes), build(3, kind="linear_regression"), features, labels, seed=1)
    assert refused.value.pointer == pointer


def test_a_model_of_several_layers_is_refused() -> None:
    plan = plan_of(Trees(2, 8), Problem(1.0, 1.0, 2.0))
    features, labels = data(plan.dataset_size, 3)
    with pytest.raises(Unsupported, match="only for linear models") as refused:
        run(plan, MultilayerPerceptron(3, 2, (4,)), features, labels, seed=1)
    assert refused.value.code == "unsupported_model"
