"""Generalised linear losses over the l1 ball: worked numbers, choices of least bound, the bound in simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, PureDpTarget, Target, ZcdpTarget
from calibrators.bassily_guzman.dp_fw import noise_scale
from calibrators.bassily_guzman.generalized_linear_l1 import (
    Link,
    best_iterations_smoothed,
    best_smoothing,
    generalisation_gap,
    smoothed_risk_bound,
)
from calibrators.bassily_guzman.rates import generalized_linear_rate, pure_generalized_linear_rate
from calibrators.bassily_guzman.selection import expected_regret
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import L2Penalty
from calibrators.phases.smoothed_vertex_steps import SmoothedVertexSteps
from calibrators.plan import plan_from_canonical
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown
from trainer.losses import QNormHinge
from trainer.models import LinearModel
from trainer.run import run

RHO = 0.0243559703595
LENGTHS = {"lipschitz": 1.0, "link_lipschitz": 1.0, "radius": 1.0}


def calibrated(**changes: Any) -> Calibration:
    usual: dict[str, Any] = {
        "dataset_size": 10_000,
        "target": ZcdpTarget(RHO),
        "dimension": 50,
        "assumptions": LENGTHS,
    }
    return calibrate("generalized_linear_l1", Spec(**(usual | changes)))


def number(found: Calibration, name: str) -> float:
    [value] = [item.value for item in (*found.hyperparameters, *found.utility) if item.name == name]
    assert isinstance(value, float)
    return value


def test_the_worked_bound() -> None:
    """W15: beta = 20, T = 2000, apart from the Rademacher term; and that term."""
    scale = noise_scale(Problem(1.0, 20.0, 2.0), 10_000, math.sqrt(2.0 * 2000.0 / RHO), pure=False)
    assert smoothed_risk_bound(Link(1.0, 1.0), 2.0, 20.0, 2000, scale, 100) == pytest.approx(0.291546429617, rel=1e-9)
    assert generalisation_gap(1.0, 1.0, 100, 10_000) == pytest.approx(0.0606970851754, rel=1e-9)
    found = calibrated(iterations=2000, assumptions=LENGTHS | {"smoothing": 20.0})
    assert number(found, "excess_risk_bound") == pytest.approx(0.291546429617 + 0.0606970851754, rel=1e-7)
    assert number(found, "gradient_evaluations") == 2e7
    [phase] = found.plan.phases
    assert isinstance(phase, SmoothedVertexSteps)
    assert (phase.smoothing, phase.steps, phase.lipschitz) == (20.0, 2000, 1.0)


def test_no_other_smoothing_or_number_of_steps_has_a_smaller_bound() -> None:
    link = Link(0.7, 3.0)
    own = best_smoothing(link, 2.0, 90)
    grid = [smoothed_risk_bound(link, 2.0, own * factor, 90, 0.1, 20) for factor in np.linspace(0.2, 4.0, 400)]
    least = smoothed_risk_bound(link, 2.0, own, 90, 0.1, 20)
    assert least <= min(grid)
    assert least - 0.1 * math.log(20) == pytest.approx(2.0 * 2.1 * 2.0 / math.sqrt(92.0), rel=1e-12)
    tried = np.arange(1.0, 50_000.0)
    for power in (0.5, 1.0):
        for regret in (1e-3, 1e-2, 1.0, 50.0):
            sums = 2.0 * 2.0 * 3.0 / np.sqrt(tried + 2.0) + regret * tried**power
            assert best_iterations_smoothed(2.0, 3.0, regret, power, 10**6) == 1 + int(np.argmin(sums))
    for target in (PureDpTarget(2.0), GaussianDpTarget(0.5), ApproximateDpTarget(1.0, 1e-6)):
        for given in (LENGTHS, LENGTHS | {"smoothing": 3.0}):
            best = calibrated(target=target, assumptions=given)
            for steps in (max(1, best.plan.iterations - 5), best.plan.iterations + 5):
                other = calibrated(target=target, assumptions=given, iterations=steps)
                assert number(best, "excess_risk_bound") <= number(other, "excess_risk_bound") * (1.0 + 1e-3)


def test_a_run_with_noise_is_under_the_bound_in_simulation() -> None:
    """A hinge with labels that are turned with probability 1/4; the population is a finite set, solved exactly."""
    generator = np.random.default_rng(5)
    d, size, D, n = 3, 60, 2.0, 4000
    population = generator.choice([-1.0, 1.0], size=(size, d))
    signs = np.where(generator.random(size) < 0.25, -1.0, 1.0) * np.sign(population @ np.array([1.0, -0.5, 0.2]))

    def risk(x: np.ndarray) -> float:
        return float(np.mean(np.maximum(0.0, 1.0 - signs * (population @ x))))

    # x = p - q, slacks s >= 1 - sign <a, x>
    rows = -signs[:, None] * population
    solved = linprog(
        np.concatenate([np.zeros(2 * d), np.full(size, 1.0 / size)]),
        A_ub=np.vstack(
            [np.hstack([rows, -rows, -np.eye(size)]), np.concatenate([np.ones(2 * d), np.zeros(size)])[None]]
        ),
        b_ub=np.append(np.full(size, -1.0), D),
    )
    found = calibrated(
        dataset_size=n, dimension=d, target=ZcdpTarget(0.5), assumptions=LENGTHS | {"radius": D}, iterations=120
    )
    model = LinearModel(QNormHinge(1.0), d, fit_intercept=False)
    excess = []
    for seed in range(4):
        drawn = generator.integers(0, size, n)
        result = run(found.plan, model, population[drawn], (signs[drawn] > 0.0).astype(int), seed=seed)
        excess.append(risk(result.parameters["weights"]) - solved.fun)
    assert min(excess) >= -1e-9
    assert np.mean(excess) <= number(found, "excess_risk_bound")
    bound = [item for item in found.utility if item.name == "excess_risk_bound"]
    assert bound[0].vacuous is False


def at_best(n: int, target: Target, power: float) -> Calibration:
    """The number of steps of least bound, however much work they are."""
    one = number(calibrated(dataset_size=n, target=target, iterations=1), "noise_scale")
    steps = best_iterations_smoothed(1.0, 2.0, expected_regret(one, 100), power, 10**6)
    return calibrated(dataset_size=n, target=target, iterations=steps)


def test_rates_follow_the_bound_at_its_best_choices() -> None:
    problem, shares = Problem(1.0, 0.0, 2.0), []
    for n in (10**4, 10**6, 10**8):
        own = at_best(n, ZcdpTarget(RHO), 0.5)
        shares.append(number(own, "excess_risk_bound") / generalized_linear_rate(problem, 100, n, RHO))
        pure = at_best(n, PureDpTarget(1.0), 1.0)
        shares.append(number(pure, "excess_risk_bound") / pure_generalized_linear_rate(problem, 100, n, 1.0))
    assert 1.0 < min(shares) <= max(shares) < 6.0


def test_without_the_links_slope_the_noise_is_solved() -> None:
    given = {"lipschitz": 1.0, "radius": 1.0, "smoothing": 2.0}
    found = calibrated(assumptions=given, iterations=9)
    assert found.missing_assumptions == ("link_lipschitz",)
    assert [item.name for item in found.utility] == ["excess_risk_rate", "gradient_evaluations"]
    assert found.value == calibrated(iterations=9).value
    neither = calibrated(assumptions=given, iterations=9, dimension=None)
    assert neither.missing_assumptions == ("dimension", "link_lipschitz")
    assert [item.name for item in neither.utility] == ["gradient_evaluations"]


def test_a_bound_above_the_trivial_one_is_vacuous() -> None:
    found = calibrated(dataset_size=100)
    [bound] = [item for item in found.utility if item.name == "excess_risk_bound"]
    assert bound.vacuous is True
    assert number(found, "excess_risk_bound") >= 2.0


def test_the_plan_travels_with_its_smoothing() -> None:
    plan = calibrated(iterations=9).plan
    assert plan_from_canonical(plan.canonical(), plan.plan_hash) == plan
    other = calibrated(iterations=9, assumptions=LENGTHS | {"smoothing": 1.5}).plan
    assert other.plan_hash != plan.plan_hash
    [phase] = plan.phases
    assert isinstance(phase, SmoothedVertexSteps)
    for changes in ({"divisor": 0}, {"gumbel_scale": 0.0}, {"smoothing": 0.0}, {"smoothing": math.nan}):
        with pytest.raises(InvalidValue):
            replace(phase, **changes)


@pytest.mark.parametrize(
    ("changes", "kind", "code", "pointer"),
    [
        ({"assumptions": {"radius": 1.0}}, InvalidValue, "missing", ("assumptions", "lipschitz")),
        ({"assumptions": LENGTHS | {"smoothing": 0.0}}, InvalidValue, None, ("assumptions", "smoothing")),
        ({"assumptions": LENGTHS | {"smoothness": 1.0}}, InvalidValue, None, ("assumptions", "smoothness")),
        (
            {"assumptions": {"lipschitz": 1.0, "radius": 1.0}},
            InvalidValue,
            "missing",
            ("assumptions", "link_lipschitz"),
        ),
        (
            {"assumptions": {"lipschitz": 1.0, "radius": 1.0, "smoothing": 1.0}},
            InvalidValue,
            "missing",
            ("assumptions", "link_lipschitz"),
        ),
        ({"dimension": None}, InvalidValue, "missing", ("iterations",)),
        ({"penalty": L2Penalty(1.0)}, Unsupported, "unsupported", ("penalty",)),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 2.0}, Unsupported, "unsupported", ("solve_for",)),
    ],
)
def test_what_has_no_sound_answer_is_refused_where_it_stands(
    changes: dict[str, Any], kind: type[AccountingError], code: str | None, pointer: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as refused:
        calibrated(**changes)
    assert code is None or refused.value.code == code
    assert refused.value.pointer == pointer
