"""What a simulation says is what runs attain, the seed decides it, and a smaller one has the noise of the whole."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from accounting.errors import InvalidValue
from accounting.group_targets import GroupDpTarget
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, PureDpTarget, Target, ZcdpTarget
from calibrators.advice import Advice, Facts, advise
from calibrators.geometry import L2Penalty
from calibrators.plan import Clip, Phase
from calibrators.registry import calibrate
from calibrators.scopes import Problem, Shape
from calibrators.spec import Spec
from trainer.run import run
from trainer.simulation.attained import MOST_STEPS, Attained, Simulation, before_training, calibrated, ranked, simulate
from trainer.simulation.sizes import MOST_PARAMETERS, simulated_records, target_for_fewer

CONSTANTS = {"lipschitz": 1.0, "smoothness": 0.5, "radius": 2.0, "diameter": 4.0, "initial_gap": 1.0}
FACTS = Facts(3000, 10, ApproximateDpTarget(2.0, 1e-6), assumptions=CONSTANTS)
CONVEX = Problem(Shape.CONVEX)


def advised(problem: Problem, facts: Facts, *names: str) -> list[Advice]:
    return list(advise(problem, facts, names))


def attained(asked: Simulation, *names: str) -> dict[str, Attained]:
    items = advised(asked.problem, asked.facts, *names)
    return {item.algorithm: simulate(asked, item.algorithm, item.spec) for item in items if item.spec is not None}


@pytest.mark.parametrize(
    "target",
    [
        ApproximateDpTarget(2.0, 1e-6),
        GroupDpTarget(2.0, 1e-6, 3),
        GaussianDpTarget(0.5),
        ZcdpTarget(0.1),
    ],
)
def test_fewer_records_have_the_noise_of_all_on_their_mean(target: Target) -> None:
    """Exactly, for full batches of Gaussian noise: the standard deviation on the mean is the same."""
    found = []
    for records, asked in ((40_000, target), (2_500, target_for_fewer(target, 16.0))):
        relation = NeighboringRelation.ADD_OR_REMOVE_ONE
        spec = Spec(
            records, asked, iterations=10, sampling="full_batch", batch_size=records, neighboring_relation=relation
        )
        spec = replace(spec, gradient_bound=Clip(1.0), step_size=0.1, judge_published=False)
        [phase] = calibrate("dp_sgd", spec).plan.phases
        assert isinstance(phase, Phase)
        found.append(phase.noise_stddev_on_mean)
    assert found[0] == pytest.approx(found[1], rel=2e-3)


def test_a_target_without_delta_is_scaled_itself() -> None:
    assert target_for_fewer(PureDpTarget(2.0), 3.0) == PureDpTarget(6.0)
    assert target_for_fewer(ApproximateDpTarget(2.0, 0.0), 3.0) == ApproximateDpTarget(6.0, 0.0)
    assert target_for_fewer(ApproximateDpTarget(2.0, 1e-6), 1.0) == ApproximateDpTarget(2.0, 1e-6)


def test_the_seed_decides() -> None:
    asked = Simulation(CONVEX, FACTS, "logistic_regression", repetitions=2)
    once, again = (attained(asked, "dp_sgd")["dp_sgd"] for _ in range(2))
    other = attained(replace(asked, seed=1), "dp_sgd")["dp_sgd"]
    assert once == again
    assert once.excess is not None
    assert once.standard_error is not None
    assert other.excess != once.excess
    assert other.is_final


def test_what_is_said_is_what_a_run_attains() -> None:
    """The same rows, the same plan and the same seed, carried out and judged here."""
    asked = Simulation(CONVEX, FACTS, "logistic_regression", repetitions=1)
    [item] = advised(CONVEX, FACTS, "clipped_acsa")
    assert item.spec is not None
    plan = replace(calibrated(asked, item.algorithm, item.spec).plan, dtype="float32")
    population = asked.population()
    released = run(plan, population.model, *asked.rows(population, 0), seed=0).parameters
    said = simulate(asked, item.algorithm, item.spec)
    assert said.excess == pytest.approx(population.excess(released, *asked.fresh(population)), rel=1e-12)
    assert said.steps == plan.iterations
    start, unit = before_training(asked)
    assert 0.0 < said.excess < start
    assert "excess population risk" in unit


def test_more_privacy_costs_more() -> None:
    found = []
    for epsilon in (0.1, 100.0):
        facts = replace(FACTS, target=ApproximateDpTarget(epsilon, 1e-6))
        found.append(attained(Simulation(CONVEX, facts, "logistic_regression"), "dp_adam")["dp_adam"].excess)
    assert found[0] is not None
    assert found[1] is not None
    assert found[0] > 1.5 * found[1]


def test_a_large_data_set_is_simulated_by_fewer_rows() -> None:
    facts = replace(FACTS, dataset_size=10**6, dimension=100)
    asked = Simulation(CONVEX, facts, "logistic_regression", repetitions=1)
    assert asked.records == simulated_records(10**6, 100) == 4000
    assert asked.factor == 250.0
    assert attained(asked, "dp_sgd")["dp_sgd"].excess is not None


def test_runs_carry_the_penalty_and_the_intercept() -> None:
    """The plan has the penalty, the released point a bias, and what it attains is that of a run carried out here."""
    constants = CONSTANTS | {"lipschitz": 2.0, "smoothness": 1.0}
    facts, penalty = replace(FACTS, assumptions=constants), L2Penalty(0.05)
    asked = Simulation(CONVEX, facts, "logistic_regression", fit_intercept=True, penalty=penalty, repetitions=1)
    [item] = advised(CONVEX, facts, "dp_sgd")
    assert item.spec is not None
    plan = replace(calibrated(asked, item.algorithm, item.spec).plan, dtype="float32")
    assert plan.penalty == penalty
    population = asked.population()
    released = run(plan, population.model, *asked.rows(population, 0), seed=0).parameters
    assert released["bias"].shape == ()
    assert released["weights"].shape == (9,)
    said = simulate(asked, item.algorithm, item.spec)
    assert said.excess == pytest.approx(population.excess(released, *asked.fresh(population)), rel=1e-12)
    without = simulate(replace(asked, penalty=None), item.algorithm, item.spec)
    assert without.excess != said.excess
    refused = attained(asked, "dp_accmd")["dp_accmd"].reason
    assert refused is not None
    assert refused.pointer == ("simulation", "penalty")
    silent = attained(asked, "dp_gd")["dp_gd"].reason
    assert silent is not None
    assert "they give no step size and no bound with a domain or a penalty" in silent.detail
    assert silent.pointer == ("simulation", "penalty")


def test_a_perceptron_is_simulated_and_learns() -> None:
    problem, dimension = Problem(Shape.NONCONVEX), 8 * 6 + 8 + 9 * 2
    facts = Facts(5000, dimension, ApproximateDpTarget(20.0, 1e-6))
    asked = Simulation(problem, facts, "mlp", classes=2, hidden=(8,), activation="tanh", repetitions=1)
    start, _ = before_training(asked)
    found = attained(asked, "dp_sgd")["dp_sgd"]
    assert found.excess is not None
    assert 0.0 < found.excess < start
    assert not asked.objective.is_convex
    for other in (CONVEX, Problem(Shape.NONCONVEX, is_heavy_tailed=True)):
        with pytest.raises(InvalidValue, match="take a linear model") as refused:
            replace(asked, problem=other)
        assert refused.value.pointer == ("simulation", "model")


def test_what_the_preset_knows_of_a_simulated_loss_is_what_it_knows_of_a_runs() -> None:
    """A regression's Adam steps are shorter than a classifier's, here as in a run."""
    sizes = []
    for kind in ("logistic_regression", "linear_regression"):
        asked = Simulation(CONVEX, FACTS, kind)
        assert asked.objective.predicts_numbers is (kind == "linear_regression")
        sizes.append(calibrated(asked, *named("dp_adam")).plan.phases[0].step_size)  # type: ignore[union-attr]
    assert sizes[1] == pytest.approx(0.25 * sizes[0])


def test_too_many_steps_are_told_and_given_ones_taken() -> None:
    """Theorem 12 of the nonsmooth gradient steps takes n^2 of them; a run takes those that a worker has time for."""
    problem = Problem(Shape.CONVEX, is_smooth=False)
    constants = {"lipschitz": 1.0, "radius": 2.0, "failure_probability": 0.05}
    facts = replace(FACTS, assumptions=constants)
    asked = Simulation(problem, facts, "quantile_regression", repetitions=1)
    found = attained(asked, "dp_sgd_gradient")["dp_sgd_gradient"]
    assert found.reason is not None
    [steps] = re.findall(r"takes (\d+) steps on 3000 rows", found.reason.detail)
    assert MOST_STEPS < int(steps) < 3000**2
    assert found.reason.pointer == ("iterations",)
    assert found.is_final
    given = replace(asked, facts=replace(facts, iterations=300))
    [item] = advised(problem, given.facts, "dp_sgd_gradient")
    assert item.calibration is not None
    assert item.calibration.plan.iterations == 3000**2, "the theorem's own, where a plan may have them"
    assert attained(given, "dp_sgd_gradient")["dp_sgd_gradient"].steps == 300


def test_what_is_not_simulated_says_why() -> None:
    mean = Simulation(Problem(Shape.MEAN), replace(FACTS, assumptions={}), "mean", repetitions=1)
    [item] = advised(mean.problem, replace(FACTS, gradient_bound=Clip(1.0)), "clipped_mean")
    assert item.spec is not None
    assert simulate(mean, item.algorithm, item.spec).excess is not None
    asked = Simulation(CONVEX, FACTS, "softmax_regression", 2, repetitions=1)
    refused = simulate(asked, item.algorithm, item.spec)
    assert refused.excess is None
    assert refused.reason is not None
    assert "clipped_mean trains mean" in refused.reason.detail
    name, spec = named("dp_sgd")
    slow = simulate(asked, name, replace(spec, iterations=10**6))
    assert slow.reason is not None
    assert "may take at most 20000" in slow.reason.detail
    late = simulate(Simulation(CONVEX, FACTS, "logistic_regression"), *named("dp_sgd"), seconds=0.0)
    assert late.reason is not None
    assert not late.is_final


def named(name: str) -> tuple[str, Spec]:
    [item] = advised(CONVEX, FACTS, name)
    assert item.spec is not None
    return name, item.spec


def test_numbers_that_make_no_simulation_are_refused() -> None:
    with pytest.raises(InvalidValue, match="at most 10000"):
        Simulation(CONVEX, replace(FACTS, dimension=MOST_PARAMETERS + 1), "logistic_regression")
    with pytest.raises(InvalidValue, match="shape is mean"):
        Simulation(CONVEX, FACTS, "mean")
    with pytest.raises(InvalidValue, match="moment_order and moment_bound"):
        Simulation(Problem(Shape.CONVEX, is_heavy_tailed=True), FACTS, "logistic_regression")


def test_the_least_excess_is_first_and_what_has_none_is_left_out() -> None:
    found = [Attained("a", 2.0), Attained("b"), Attained("c", float("inf")), Attained("d", 0.0)]
    assert [each.algorithm for each in ranked(found)] == ["d", "a", "c"]
