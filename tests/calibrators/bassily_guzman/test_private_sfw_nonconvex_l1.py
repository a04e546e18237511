"""The calibration for stationary points: worked numbers, the number of steps, rates, refusals."""

from __future__ import annotations

import math
from typing import Any

import pytest

from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, PureDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.bassily_guzman import rates
from calibrators.bassily_guzman.tree import Problem
from calibrators.geometry import Box, L2Penalty
from calibrators.phases.recursive_selections import RecursiveSelections
from calibrators.plan import plan_from_canonical
from calibrators.registry import calibrate
from calibrators.release import RandomIterate
from calibrators.spec import Calibration, Spec, Unknown

RHO = 0.0243559703595
LENGTHS = {"lipschitz": 1.0, "smoothness": 1.0, "radius": 1.0}


def calibrated(**changes: Any) -> Calibration:
    usual: dict[str, Any] = {
        "dataset_size": 100_000,
        "target": ZcdpTarget(RHO),
        "dimension": 100,
        "assumptions": LENGTHS,
    }
    return calibrate("private_sfw_nonconvex_l1", Spec(**(usual | changes)))


def number(found: Calibration, name: str) -> float:
    [value] = [item.value for item in (*found.hyperparameters, *found.utility) if item.name == name]
    assert isinstance(value, float)
    return value


def phase_of(found: Calibration) -> RecursiveSelections:
    [phase] = found.plan.phases
    assert isinstance(phase, RecursiveSelections)
    return phase


def test_the_worked_numbers() -> None:
    """W11: K = 200, T = 100, within rho and within epsilon 1."""
    found = calibrated(iterations=100)
    phase = phase_of(found)
    assert (phase.first_batch, phase.batch, phase.step_size) == (50_000, 500, 0.1)
    assert found.value == (pytest.approx(0.0116418903824, rel=1e-7),)
    assert number(found, "gradient_norm_bound") == pytest.approx(0.984603167033, rel=1e-7)
    assert number(found, "gradient_evaluations") == 50_000 + 2 * 99 * 500
    pure = calibrated(iterations=100, target=PureDpTarget(1.0))
    assert pure.value == (pytest.approx(0.0223993389163, rel=1e-9),)
    assert number(pure, "gradient_norm_bound") == pytest.approx(1.04159954342, rel=1e-9)
    assert found.plan.release == RandomIterate()
    assert plan_from_canonical(found.plan.canonical(), found.plan.plan_hash) == found.plan


def test_the_default_number_of_steps_is_nearly_the_best() -> None:
    own = number(calibrated(), "gradient_norm_bound")
    tried = [number(calibrated(iterations=count), "gradient_norm_bound") for count in range(10, 1000, 10)]
    assert own <= min(tried) * 1.02


def test_what_is_lost_at_the_start_is_the_initial_gap() -> None:
    less = calibrated(iterations=100, assumptions=LENGTHS | {"initial_gap": 0.5})
    more = calibrated(iterations=100)
    difference = number(more, "gradient_norm_bound") - number(less, "gradient_norm_bound")
    assert difference == pytest.approx((2.0 - 0.5) / (0.1 * 100), rel=1e-9)
    [bound] = [item for item in more.utility if item.name == "gradient_norm_bound"]
    assert bound.vacuous is False
    [bound] = [item for item in calibrated(dataset_size=200).utility if item.name == "gradient_norm_bound"]
    assert bound.vacuous is True


def test_rates_follow_the_bound_at_its_best_number_of_steps() -> None:
    """W13 for the printed one; ours within a constant over sizes."""
    one = Problem(1.0, 1.0, 1.0)
    assert rates.printed_gap_rate(one, 100, 10_000, 1.0) == pytest.approx(0.128478499619, rel=1e-11)
    shares = []
    for n in (10**5, 10**7, 10**9):
        own, pure = calibrated(dataset_size=n), calibrated(dataset_size=n, target=PureDpTarget(1.0))
        shares.append(number(own, "gradient_norm_bound") / number(own, "gradient_norm_rate"))
        shares.append(number(pure, "gradient_norm_bound") / number(pure, "gradient_norm_rate"))
    assert 0.5 < min(shares) <= max(shares) < 6.0
    printed = calibrated(target=ApproximateDpTarget(1.0, 1e-6))
    assert number(printed, "gradient_norm_rate_printed") == pytest.approx(
        2.0 * math.log(100) ** (2 / 3) / 1e5 ** (1 / 3), rel=1e-12
    )
    assert not any("lower" in item.name for item in printed.utility), "none is known"


def test_nothing_printed_is_certified() -> None:
    for target in (PureDpTarget(1.0), ApproximateDpTarget(1.0, 1e-6)):
        published = calibrated(target=target).as_published
        assert published is not None
        assert (published.verdict, published.noise_multiplier) == (Verdict.UNSOUND, None)
    assert calibrated().as_published is None


def test_without_the_dimension_the_noise_is_solved() -> None:
    found = calibrated(dimension=None, iterations=100)
    assert found.missing_assumptions == ("dimension",)
    assert [item.name for item in found.utility] == ["gradient_evaluations"]
    assert found.value == calibrated(iterations=100).value


@pytest.mark.parametrize(
    ("changes", "kind", "code", "pointer"),
    [
        ({"assumptions": {"lipschitz": 1.0, "radius": 1.0}}, InvalidValue, "missing", ("assumptions", "smoothness")),
        ({"domain": Box(-1.0, 1.0)}, InvalidValue, "unsupported_domain", ("domain", "kind")),
        ({"dimension": None}, InvalidValue, "missing", ("iterations",)),
        ({"dataset_size": 2}, InvalidValue, "invalid_value", ("dataset_size",)),
        ({"iterations": 1}, InvalidValue, "invalid_value", ("iterations",)),
        ({"iterations": 50_001}, InvalidValue, "too_few_records", ("iterations",)),
        ({"batch_size": 5}, InvalidValue, "overdetermined", ("batch_size",)),
        ({"step_size": 1.01}, InvalidValue, "invalid_value", ("step_size",)),
        ({"penalty": L2Penalty(1.0)}, Unsupported, "unsupported", ("penalty",)),
        ({"sampling": "poisson"}, Unsupported, "unsupported_sampling", ("sampling",)),
        (
            {"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE},
            Unsupported,
            "unsupported_relation",
            ("neighboring_relation",),
        ),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 2.0}, Unsupported, "unsupported", ("solve_for",)),
    ],
)
def test_what_has_no_sound_answer_is_refused_where_it_stands(
    changes: dict[str, Any], kind: type[AccountingError], code: str, pointer: tuple[str, ...]
) -> None:
    with pytest.raises(kind) as refused:
        calibrated(**changes)
    assert (refused.value.code, refused.value.pointer) == (code, pointer)
