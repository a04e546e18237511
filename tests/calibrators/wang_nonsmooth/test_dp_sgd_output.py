"""The calibrator of DP-SGD-Output: worked noise, step sizes, the plan, refusals, the verdict on what is printed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError
from accounting.events import ApproximateDp, Event
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, GaussianDpTarget, PureDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import Box, L2Ball, L2Penalty
from calibrators.phases.output_perturbation import OutputPerturbation
from calibrators.provenance import Provenance
from calibrators.registry import calibrate
from calibrators.release import AverageIterate
from calibrators.spec import Calibration, OpenDelta, OpenEpsilon, Spec, Unknown

#: Squares with inputs and labels of at most 1, in the unit ball.
SQUARE = {"holder_exponent": 1.0, "holder_constant": 2.0, "gradient_at_zero": 2.0, "loss_at_zero": 1.0, "radius": 1.0}
HINGE = SQUARE | {"holder_exponent": 0.5, "holder_constant": 1.5, "gradient_at_zero": 1.5}


def spec(**changes: Any) -> Spec:
    given = Spec(
        1000, ApproximateDpTarget(1.0, 1e-6), iterations=1000, step_size=0.02, dimension=50, assumptions=SQUARE
    )
    return replace(given, **changes)


def solve(**changes: Any) -> Calibration:
    return calibrate("dp_sgd_output", spec(**changes))


def phase_of(found: Calibration) -> OutputPerturbation:
    [phase] = found.plan.phases
    assert isinstance(phase, OutputPerturbation)
    return phase


def numbers(found: Calibration) -> dict[str, Provenance]:
    return {item.name: item for item in (*found.hyperparameters, *found.utility)}


def refused(**changes: Any) -> AccountingError:
    with pytest.raises(AccountingError) as caught:
        solve(**changes)
    return caught.value


@pytest.mark.parametrize(
    ("assumptions", "mixture", "printed"), [(SQUARE, 2.552039261, 94.14306215), (HINGE, 1.937760835, 70.6073349)]
)
def test_the_worked_noise_on_the_average(assumptions: dict[str, float], mixture: float, printed: float) -> None:
    found = solve(assumptions=assumptions)
    phase = phase_of(found)
    assert phase.noise_stddev == pytest.approx(mixture, rel=1e-9)
    assert found.value == pytest.approx(mixture / (phase.gradient_norm * 0.02), rel=1e-9)
    assert found.as_published is not None
    assert found.as_published.noise_stddev_on_mean == pytest.approx(printed, rel=1e-9)
    assert found.as_published.verdict is Verdict.LOOSE
    assert found.as_published.noise_multiplier is None
    if assumptions is SQUARE:
        assert numbers(found)["analytic_noise_stddev"].value == pytest.approx(6.285823115, rel=1e-9)


def test_the_plan_is_one_event_of_the_whole_run() -> None:
    found = solve(assumptions=HINGE)
    phase = phase_of(found)
    assert phase.event == Event(ApproximateDp(1.0 - 1e-12, 1e-6))
    assert found.plan.domain == L2Ball(1.0)
    assert found.plan.release == AverageIterate()
    assert (phase.steps, phase.batch_size, found.plan.iterations) == (1000, 1, 1000)
    assert found.plan.cost_of_prefix(3) == (phase.event,)
    assert (phase.holder_exponent, phase.holder_constant, phase.gradient_norm, phase.radius) == (0.5, 1.5, 3.0, 1.0)


def test_the_worked_step_sizes_are_the_plans() -> None:
    usual = {"dataset_size": 10_000, "iterations": None, "step_size": None, "target": ApproximateDpTarget(1.0, 1e-8)}
    ball = SQUARE | {"failure_probability": 0.05}
    found = solve(**usual, assumptions=ball)
    assert found.plan.iterations == 10_000
    assert phase_of(found).step_size == pytest.approx(0.0003010715635, rel=1e-9)
    space = {name: value for name, value in ball.items() if name != "radius"}
    found = solve(**usual, assumptions=space)
    assert phase_of(found).step_size == pytest.approx(0.0007601061571, rel=1e-9)
    assert found.plan.domain is None
    assert phase_of(found).radius == pytest.approx(math.sqrt(2.0 * 0.0007601061571 * 10_000), rel=1e-9)


def test_a_null_record_moves_half_as_far() -> None:
    any_record, null = (
        phase_of(solve(neighboring_relation=relation)).noise_stddev
        for relation in (NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL)
    )
    assert null == pytest.approx(any_record / 2.0, rel=1e-3)


def test_epsilon_and_delta_are_solved_for_at_a_given_noise_and_step() -> None:
    noise = 2.552039261 / 0.08
    epsilon = solve(target=OpenEpsilon(1e-6), unknown=Unknown.EPSILON, noise_multiplier=noise)
    assert epsilon.value == pytest.approx(1.0, rel=1e-8)
    delta = solve(target=OpenDelta(1.0), unknown=Unknown.DELTA, noise_multiplier=noise)
    assert delta.value == pytest.approx(1e-6, rel=1e-7)
    assert phase_of(delta).noise_stddev == pytest.approx(2.552039261, rel=1e-12)


def test_the_printed_noise_beyond_its_proof_says_so() -> None:
    found = solve(target=ApproximateDpTarget(8.0, 1e-5)).as_published
    assert found is not None
    assert "epsilon <= 1" in found.why
    near_one = solve(assumptions=SQUARE | {"holder_exponent": 1.0 - 1e-4}, step_size=0.01).as_published
    assert near_one is not None, "in a ball C_alpha is not needed"
    space = {name: value for name, value in SQUARE.items() if name != "radius"} | {"holder_exponent": 1.0 - 1e-4}
    overflowing = solve(assumptions=space, step_size=0.01).as_published
    assert overflowing is not None
    assert overflowing.verdict is Verdict.UNSOUND
    assert overflowing.noise_stddev_on_mean is None


@pytest.mark.parametrize("target", [ZcdpTarget(0.5), GaussianDpTarget(1.0), PureDpTarget(1.0)])
def test_targets_that_it_has_no_cost_for_are_refused(target: Any) -> None:
    error = refused(target=target)
    assert (error.code, error.pointer) == ("no_cost_in_filter", ("target", "kind"))
    assert "approximate_dp" in error.detail


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"target": ApproximateDpTarget(1.0, 0.0)}, ("target", "delta")),
        ({"batch_size": 2}, ("batch_size",)),
        ({"penalty": L2Penalty(0.1)}, ("penalty",)),
        ({"domain": Box(-1.0, 1.0)}, ("domain", "kind")),
        ({"domain": L2Ball(2.0)}, ("domain", "radius")),
        ({"step_size": 0.5}, ("step_size",)),
        ({"step_size": None, "assumptions": SQUARE | {"failure_probability": 0.05}, "iterations": 2}, ("iterations",)),
        ({"step_size": None}, ("assumptions", "failure_probability")),
        ({"step_size": None, "assumptions": SQUARE | {"failure_probability": 0.05}, "dimension": None}, ("dimension",)),
        ({"assumptions": {"radius": 1.0}}, ("assumptions", "holder_exponent")),
        ({"iterations": None}, ("assumptions", "failure_probability")),
        ({"unknown": Unknown.ITERATIONS, "iterations": None, "noise_multiplier": 3.0}, ("solve_for",)),
        (
            {"dataset_size": 1, "step_size": None, "assumptions": SQUARE | {"failure_probability": 0.05}},
            ("dataset_size",),
        ),
    ],
)
def test_what_it_cannot_do_is_refused_where_it_stands(changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    assert refused(**changes).pointer == pointer


def test_lipschitz_alone_is_enough() -> None:
    found = phase_of(solve(assumptions={"lipschitz": 1.5, "radius": 1.0}))
    assert (found.holder_exponent, found.holder_constant, found.gradient_norm) == (0.0, 3.0, 1.5)
