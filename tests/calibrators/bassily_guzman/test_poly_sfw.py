"""Stochastic Frank-Wolfe's calibration: worked numbers, the verdict on the printed noise, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon
from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import Event, ZcDp
from accounting.events.regularity import kappa_pair
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.printed_poly_sfw import Printed, printed_calibration
from calibrators.bassily_guzman.recursion import Recursion, excess_risk_bound
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import Box, L2Penalty
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.plan import plan_from_canonical
from calibrators.registry import calibrate
from calibrators.spec import Calibration, OpenEpsilon, Spec, Unknown
from trainer.recursive_gradients import rounding_is_paid_for

RHO = 0.0243559703595
W5 = Problem(2.0, 1.0, 2.0)
PAPER = Printed(W5, 100, 10_000, 1.0, 1e-6, 2.0)


def calibrated(**changes: Any) -> Calibration:
    usual: dict[str, Any] = {
        "dataset_size": 10_000,
        "target": ZcdpTarget(RHO),
        "dimension": 50,
        "assumptions": {"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
    }
    return calibrate("poly_sfw", Spec(**(usual | changes)))


def number(found: Calibration, name: str) -> float:
    [value] = [item.value for item in (*found.hyperparameters, *found.utility) if item.name == name]
    assert isinstance(value, float)
    return value


def phase_of(found: Calibration) -> RecursiveSelections:
    [phase] = found.plan.phases
    assert isinstance(phase, RecursiveSelections)
    return phase


def test_the_rigorous_calibration() -> None:
    """W5: the paper's step size and batches, one Gumbel scale, and the bound; Laplace for comparison."""
    found = calibrated()
    phase = phase_of(found)
    assert (phase.selections, phase.first_batch, phase.batch) == (5001, 5000, 1)
    assert phase.step_size == pytest.approx(0.000768316074617, rel=1e-11)
    recursion = Recursion(5001, 5000, 1, phase.step_size)
    assert recursion.ranges(W5) == pytest.approx((0.0016 / 2.0, 0.0122883347171 / 2.0), rel=1e-10)
    exact = 2.0 * recursion.zcdp_width(W5) / math.sqrt(8.0 * RHO)
    assert exact == pytest.approx(0.710140153619, rel=1e-10)
    assert found.value == (pytest.approx(exact, rel=1e-7),)
    assert 2.0 * recursion.pure_width(W5) == pytest.approx(15.6511372143, rel=1e-10)
    assert calibrated(target=PureDpTarget(1.0)).value == (pytest.approx(15.6511372143, rel=1e-8),)
    kappa = kappa_pair(1.0, 50).kappa

    def bound(regret: float) -> float:
        scale = regret / math.log(100)
        return excess_risk_bound(W5, recursion, scale, num_vertices=100, kappa=kappa, initial_gap=4.0)

    assert bound(exact * math.log(100)) == pytest.approx(4.58727074439, rel=1e-10)
    harmonic = sum(1.0 / k for k in range(1, 101))
    assert bound(2.0 * exact * harmonic) == pytest.approx(8.59675698013, rel=1e-10)
    assert sum(1.0 / k for k in range(1, 201)) == pytest.approx(5.87803094812, rel=1e-11), "W2"
    assert number(found, "excess_risk_bound") == pytest.approx(4.58727074439, rel=1e-7)
    assert number(found, "gradient_evaluations") == 15_000.0
    approximate = calibrated(target=ApproximateDpTarget(1.0, 1e-6))
    assert number(approximate, "excess_risk_rate") == pytest.approx(10.5210494162, rel=1e-10)
    assert rates.poly_sfw_rate(Problem(1.0, 1.0, 1.0), 100, 10_000, 1.0, 1e-6) == pytest.approx(2.63026235404)


def test_the_worked_printed_scales_and_their_cost() -> None:
    """W5: scales, the rho that they cost with the diameter and with the radius, the paper's own composition."""
    assert PAPER.step_size == pytest.approx(0.000768316074617, rel=1e-11)
    assert PAPER.noise_scale(0) == pytest.approx(0.594707550216, rel=1e-11)
    assert PAPER.noise_scale(1) == pytest.approx(9.13846741054, rel=1e-11)
    assert PAPER.noise_scale(1) * 1.0 / (2.0 * math.sqrt(1e4 * math.log(1e6))) == pytest.approx(0.0122930571939)
    assert PAPER.rho == pytest.approx(0.000588310771625, rel=1e-11)
    assert replace(PAPER, length=1.0).rho == pytest.approx(0.00418354133636, rel=1e-11)
    each, k = 1.0 / math.sqrt(1e4 * math.log(1e6)), 5001
    assert each == pytest.approx(0.0026903979938, rel=1e-9)
    residual = k * each * math.expm1(each)
    assert each * math.sqrt(2 * k * math.log(1e6)) + residual == pytest.approx(1.03634717788, rel=1e-9)


def test_the_cost_of_the_printed_scales_is_the_largest_sum_over_all_records() -> None:
    """Every record, every selection, where the scales fall for many steps and where they do not."""
    for printed in (
        Printed(Problem(1.0, 0.01, 2.0), 4, 10, 8.0, 1e-5, 1.0),
        Printed(Problem(1.0, 0.0, 2.0), 40, 8, 1.0, 1e-5, 2.0),
        Printed(Problem(2.0, 1.0, 2.0), 100, 200, 4.0, 1e-6, 2.0),
    ):
        steps, eta = printed.recursion.selections, printed.step_size
        first, other = printed.recursion.ranges(printed.problem)
        costs = []
        for tau in range(steps):
            ranges = [
                2.0 * (other if tau else first) * (1.0 - eta) ** (t - tau) / printed.noise_scale(t)
                for t in range(tau, steps)
            ]
            costs.append(sum(a * math.tanh(a / 2.0) for a in ranges))
        assert printed.rho == pytest.approx(max(costs), rel=1e-12)
    small = Printed(Problem(1.0, 0.01, 2.0), 4, 10, 8.0, 1e-5, 1.0)
    events, relation = [Event(ZcDp(small.rho))], NeighboringRelation.REPLACE_ONE
    assert delta_for_epsilon(events, relation, 8.0).value.upper > 1e-5, "a radius, few records: above the target"
    assert delta_for_epsilon([Event(ZcDp(small.rho / 1.13))], relation, 8.0).value.upper <= 1.01e-5


def test_the_printed_noise_is_loose_and_the_reason_is_computed() -> None:
    published = calibrated(target=ApproximateDpTarget(1.0, 1e-6)).as_published
    assert published is not None
    assert published.verdict is Verdict.LOOSE
    assert published.noise_multiplier == pytest.approx(math.sqrt(2.0 / 0.000588310771625), rel=1e-9)
    assert "rho 0.000588311" in published.why
    assert (
        "radius in place of the diameter, the paper's lemma is false, and the selections cost rho 0.00418354"
        in published.why
    )
    odd = calibrated(target=ApproximateDpTarget(1.0, 1e-6), dataset_size=10_001).as_published
    assert odd == published
    for target in (PureDpTarget(1.0), ApproximateDpTarget(1.0, 0.0)):
        none = calibrated(target=target).as_published
        assert none is not None
        assert (none.verdict, none.noise_multiplier) == (Verdict.UNSOUND, None)
    assert calibrated().as_published is None
    assert printed_calibration(ApproximateDpTarget(1.0, 1.0), W5, 100, 100, 1.0) is None
    few = printed_calibration(ApproximateDpTarget(1.0, 1e-6), W5, 10**6, 10, 1.0)
    assert few is not None
    assert (few.verdict, "not positive" in few.why) == (Verdict.UNSOUND, True)


def test_the_radius_for_the_diameter_falsifies_the_lemma() -> None:
    """Huber losses of a linear function, L_0 = L_1 = D = 1, n = 100: the attained and the printed range."""
    n, D = 100, 1.0
    eta = math.log(n / math.log(4)) / n
    before, vertex = np.array([-1.0, 0.0]), np.array([0.0, 1.0])
    # The vertex that the step goes to is e_1: along it the record's derivative rises from 1 - 2 eta D to 1.
    after = (1.0 - eta) * before + eta * np.array([1.0, 0.0])

    def increment(a: np.ndarray) -> np.ndarray:
        def gradient(x: np.ndarray) -> np.ndarray:
            return a * float(np.clip(a @ x - (a @ after - 1.0), -1.0, 1.0))

        return (1.0 - eta) * (gradient(after) - gradient(before)) + eta * gradient(after)

    difference = increment(np.array([1.0, 1.0])) - increment(np.array([1.0, -1.0]))
    moved = abs(float(vertex @ difference))
    assert moved == pytest.approx(0.249389807693, rel=1e-9)
    printed = 2.0 * eta * (D**2 + D)
    assert printed == pytest.approx(0.171141437040, rel=1e-9)
    assert moved == pytest.approx(2.0 * Recursion(2, 1, 1, eta).ranges(Problem(1.0, 1.0, 2.0))[1] / 2.0, rel=1e-9)


def test_batches_and_steps_follow_from_the_iterations() -> None:
    phase = phase_of(calibrated(iterations=101))
    assert (phase.selections, phase.first_batch, phase.batch) == (101, 5000, 50)
    assert phase.step_size == pytest.approx(50 * 0.000768316074617)
    assert phase_of(calibrated(iterations=2)).step_size == 1.0
    assert phase_of(calibrated(iterations=1)).selections == 1
    own = calibrated(dimension=None, step_size=0.01)
    assert own.missing_assumptions == ("dimension",)
    assert [item.name for item in own.utility] == ["gradient_evaluations"]
    uneven = calibrated(iterations=300)
    assert any("not read" in warning for warning in uneven.warnings)
    assert not any("not read" in warning for warning in calibrated().warnings)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("size", [2**17, 2**19, 2**20 + 1, 10**7, 10**9])
def test_the_default_is_one_whose_rounding_a_trainer_pays_for(size: int, pure: bool) -> None:
    for dimension, smoothness in ((2, 0.5), (10**5, 0.5), (50, 100.0)):
        found = calibrated(
            dataset_size=size,
            dimension=dimension,
            target=PureDpTarget(1.0) if pure else ZcdpTarget(0.1),
            assumptions={"lipschitz": 1.0, "smoothness": smoothness, "radius": 1.0},
        )
        phase = phase_of(found)
        assert phase.first_batch + (phase.selections - 1) * phase.batch <= size
        assert rounding_is_paid_for(phase, 1.0)
        assert not rounding_is_paid_for(replace(phase, step_size=1e-7), 1.0)


def test_the_plan_travels_and_is_charged_as_a_whole() -> None:
    plan = calibrated(iterations=9).plan
    assert plan_from_canonical(plan.canonical(), plan.plan_hash) == plan
    assert plan.cost_of_prefix(1) == plan.events
    [phase] = plan.phases
    for changes in (
        {"selections": 0},
        {"batch": 0},
        {"step_size": 1.5},
        {"step_size": 0.0},
        {"gumbel_scale": 0.0},
        {"smoothness": -1.0},
        {"event": Event(ZcDp(0.1), count=2)},
    ):
        with pytest.raises(InvalidValue):
            replace(phase, **changes)  # type: ignore[arg-type]  # of several types, by field


LENGTHS = {"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0}


@pytest.mark.parametrize(
    ("changes", "kind", "code", "pointer"),
    [
        ({"assumptions": {"lipschitz": 1.0, "radius": 1.0}}, InvalidValue, "missing", ("assumptions", "smoothness")),
        ({"assumptions": LENGTHS | {"diameter": 1.0}}, InvalidValue, "contradiction", ("assumptions", "radius")),
        ({"domain": Box(-1.0, 1.0)}, InvalidValue, "unsupported_domain", ("domain", "kind")),
        ({"dimension": None}, InvalidValue, "missing", ("dimension",)),
        ({"dataset_size": 1}, InvalidValue, "invalid_value", ("dataset_size",)),
        ({"dataset_size": 4}, InvalidValue, "too_few_records", ("dataset_size",)),
        ({"iterations": 5002}, InvalidValue, "too_few_records", ("iterations",)),
        ({"iterations": 10**7}, InvalidValue, "invalid_value", ("iterations",)),
        ({"batch_size": 5}, InvalidValue, "overdetermined", ("batch_size",)),
        ({"step_size": 1.01}, InvalidValue, "invalid_value", ("step_size",)),
        ({"step_size": 0.0}, InvalidValue, "invalid_value", ("step_size",)),
        ({"penalty": L2Penalty(1.0)}, Unsupported, "unsupported", ("penalty",)),
        ({"sampling": "full_batch"}, Unsupported, "unsupported_sampling", ("sampling",)),
        (
            {"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE},
            Unsupported,
            "unsupported_relation",
            ("neighboring_relation",),
        ),
        ({"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 2.0}, Unsupported, "unsupported", ("solve_for",)),
        (
            {"target": OpenEpsilon(1e-6), "unknown": Unknown.EPSILON, "noise_multiplier": 1e-3},
            InvalidValue,
            "invalid_value",
            ("noise_multiplier",),
        ),
    ],
)
def test_what_has_no_sound_answer_is_refused_where_it_stands(
    changes: dict[str, Any], kind: type[AccountingError], code: str, pointer: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as refused:
        calibrated(**changes)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)
