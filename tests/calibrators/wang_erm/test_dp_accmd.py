"""The calibrator of DP-AccMD: worked noise and steps, the two balls, refusals, and attacks on what is printed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import Event, FullBatch, Gaussian
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.geometry import Box, L1Ball, L2Ball, L2Penalty
from calibrators.plan import Clip, Phase
from calibrators.provenance import Provenance
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown
from calibrators.wang_erm.accelerated import Accelerated, Entropic, Euclidean, Geometry
from calibrators.wang_erm.paper_noise import printed_noise_stddev_on_mean

BALL = {"smoothness": 1.0, "radius": 2.0}


def spec(**changes: Any) -> Spec:
    given = Spec(10**4, ApproximateDpTarget(1.0, 1e-6), gradient_bound=Clip(1.0), dimension=5, assumptions=BALL)
    return replace(given, **changes)


def solve(**changes: Any) -> Calibration:
    return calibrate("dp_accmd", spec(**changes))


def phase_of(found: Calibration) -> Phase:
    [phase] = found.plan.phases
    assert isinstance(phase, Phase)
    return phase


def numbers(found: Calibration) -> dict[str, Provenance]:
    return {item.name: item for item in (*found.hyperparameters, *found.utility)}


def refused(**changes: Any) -> AccountingError:
    with pytest.raises(AccountingError) as caught:
        solve(**changes)
    return caught.value


@pytest.mark.parametrize(
    ("epsilon", "stddev_on_mean"), [(1.0, 0.008449357779), (0.5, 0.01611523696), (8.0, 0.001305870769)]
)
def test_the_noise_is_that_of_full_gradients(epsilon: float, stddev_on_mean: float) -> None:
    found = solve(iterations=100, target=ApproximateDpTarget(epsilon, 1e-6))
    assert phase_of(found).noise_stddev_on_mean == pytest.approx(stddev_on_mean, rel=1e-6)
    assert isinstance(found.value, float)
    assert phase_of(found).event == Event(Gaussian(found.value), FullBatch(), 100)


def test_the_worked_number_of_steps_and_its_bound_at_zcdp_noise() -> None:
    found = solve(target=ZcdpTarget(0.01746890477))
    assert found.plan.iterations == numbers(found)["iterations"].value == 63
    assert numbers(found)["excess_risk_bound"].value == pytest.approx(0.007843715115, rel=1e-6)
    assert phase_of(found).step_size == numbers(found)["step_size"].value == 1.0
    assert found.plan.domain == L2Ball(2.0)


def test_the_norm_or_the_domain_picks_the_ball_and_its_bound() -> None:
    l1 = solve(assumptions=BALL | {"norm_order": 1.0}, iterations=20)
    assert l1.plan.domain == L1Ball(2.0)
    assert l1.plan == solve(assumptions={"smoothness": 1.0}, domain=L1Ball(2.0), iterations=20).plan
    l2 = solve(assumptions=BALL | {"norm_order": 2.0}, iterations=20)
    assert l2.plan == solve(assumptions={"smoothness": 1.0}, domain=L2Ball(2.0), iterations=20).plan
    assert l2.plan == solve(assumptions=BALL, domain=L2Ball(2.0), iterations=20).plan
    balls: tuple[tuple[Calibration, Geometry], ...] = ((l1, Entropic(2.0, 5)), (l2, Euclidean(2.0, 5)))
    for found, geometry in balls:
        noise = phase_of(found).noise_stddev_on_mean
        bound = numbers(found)["excess_risk_bound"].value
        assert bound == pytest.approx(Accelerated(geometry, 1.0).bound(noise, 20), rel=1e-12)
    assert "lower_bound_rate" in numbers(l2)
    assert "lower_bound_rate" not in numbers(l1)


def test_in_high_dimension_the_l1_ball_has_the_smaller_bound() -> None:
    bounds = [
        numbers(solve(assumptions=BALL | {"norm_order": order}, dimension=10**6))["excess_risk_bound"].value
        for order in (1.0, 2.0)
    ]
    assert isinstance(bounds[0], float)
    assert isinstance(bounds[1], float)
    assert bounds[0] < 0.3 * bounds[1]


def test_the_rate_is_the_papers() -> None:
    found = solve(iterations=20, assumptions=BALL | {"order_constant": 3.0})
    size = math.sqrt(4.255384324**2 + 16.0)
    expected = 3.0 * math.sqrt(0.5) * size * math.sqrt(math.log(1e6)) / 1e4
    assert numbers(found)["excess_risk_rate"].value == pytest.approx(expected, rel=1e-9)


def test_a_shorter_step_is_that_of_a_larger_smoothness_and_a_longer_one_has_no_bound() -> None:
    short = solve(step_size=0.25, iterations=20)
    assert phase_of(short).step_size == 0.25
    same = solve(assumptions=BALL | {"smoothness": 4.0}, iterations=20)
    assert numbers(short)["excess_risk_bound"].value == numbers(same)["excess_risk_bound"].value
    long = solve(step_size=1.5, iterations=20)
    assert "excess_risk_bound" not in numbers(long)
    assert "step_size" in " ".join(long.warnings)
    assert refused(step_size=1.5).pointer == ("iterations",)


def test_without_the_smoothness_the_noise_is_solved_and_no_step_is_made_up() -> None:
    found = solve(assumptions={"radius": 2.0}, iterations=100)
    assert found.missing_assumptions == ("smoothness",)
    assert not found.plan.is_executable
    assert found.achieved.value.upper <= 1.0
    error = refused(assumptions={"radius": 2.0})
    assert (error.code, error.pointer) == ("missing", ("iterations",))
    assert "smoothness" in error.detail


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"assumptions": {"smoothness": 1.0}}, ("assumptions", "radius")),
        ({"assumptions": BALL | {"norm_order": 1.5}}, ("assumptions", "norm_order")),
        ({"assumptions": BALL | {"norm_order": 2.0}, "domain": L1Ball(2.0)}, ("assumptions", "norm_order")),
        ({"domain": L2Ball(1.0)}, ("domain", "radius")),
        ({"domain": Box(-1.0, 1.0)}, ("domain", "kind")),
        ({"penalty": L2Penalty(0.1)}, ("penalty",)),
        ({"unknown": Unknown.BATCH_SIZE, "noise_multiplier": 5.0, "iterations": 5}, ("solve_for",)),
        ({"unknown": Unknown.EPSILON, "noise_multiplier": 5.0}, ("target",)),
        ({"batch_size": 100, "iterations": 5}, ("batch_size",)),
    ],
)
def test_what_it_cannot_do_is_refused_where_it_stands(changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    error = refused(**changes)
    assert error.pointer == pointer
    assert isinstance(error, InvalidValue | Unsupported)


@pytest.mark.parametrize("relation", NeighboringRelation)
def test_the_printed_algorithm_is_unsound_whatever_its_constant(relation: NeighboringRelation) -> None:
    for constant in (1.0, 1e6):
        found = solve(
            iterations=20, assumptions=BALL | {"order_constant": constant}, neighboring_relation=relation
        ).as_published
        assert found is not None
        assert found.verdict is Verdict.UNSOUND
        assert found.noise_multiplier is None, "no such noise is executable"
        assert found.noise_stddev_on_mean == printed_noise_stddev_on_mean(1.0, 1e-6, 10**4, 20, 1.0, constant)
        assert "T = 1" in found.why
    assert solve(iterations=20, target=ZcdpTarget(0.1)).as_published is None


def moved_over_noise(steps: int, modulus: float, *, printed: bool) -> float:
    """Of y_T, for linear losses and no projection: its shift per unit of gradient over its noise per unit of sigma.

    In units of R^2 / L_C; w = modulus |x|^2 / (2 R^2). The printed y takes the gradient, the safe one follows z.
    """
    # Each of z and y is a multiple of the gradient, and a row of multiples of the noises.
    z, y = [0.0] * (steps + 1), [0.0] * (steps + 1)
    for k in range(steps):
        share, alpha = 2.0 / (k + 2), (k + 2) / (4.0 * modulus)
        x = [share * a + (1.0 - share) * b for a, b in zip(z, y, strict=True)]
        z = list(z)
        z[0] -= alpha
        z[k + 1] -= alpha
        y = [x[0] - 1.0, *x[1:]] if printed else [share * a + (1.0 - share) * b for a, b in zip(z, y, strict=True)]
    noise = math.sqrt(sum(value**2 for value in y[1:]))
    return math.inf if noise == 0.0 else abs(y[0]) / noise


def test_the_attacks_on_the_printed_step_for_y() -> None:
    """In units of 2 G / (n sigma): what is charged is sqrt(T)."""
    found = {steps: moved_over_noise(steps, 1.0, printed=True) for steps in (1, 2, 3, 5, 10, 20, 60, 100)}
    assert found[1] == math.inf, "one step has no noise at all"
    assert [round(found[steps], 3) for steps in (2, 3, 5, 10, 20)] == [5.0, 4.385, 4.189, 4.437, 5.191]
    assert all(found[steps] > math.sqrt(steps) for steps in (2, 3, 5, 10, 20))
    assert found[100] < 10.0, "there only the other attacks show the failure"
    # A mirror map of larger modulus keeps the shift of y and takes away its noise.
    assert moved_over_noise(100, 1e6, printed=True) > 1e5
    for steps in (1, 2, 20, 100):
        for modulus in (1.0, 1e6):
            assert moved_over_noise(steps, modulus, printed=False) <= math.sqrt(steps) * (1.0 + 1e-12)
