"""The calibrators of noisy Frank-Wolfe over l_p balls: worked numbers, recursions, refusals, the paper's own noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from accounting.errors import AccountingError
from accounting.events import Event, ZcDp
from accounting.events.regularity import kappa_pair
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, ZcdpTarget
from calibrators.as_published import Verdict
from calibrators.bassily_guzman.estimate_risk import squared_errors
from calibrators.bassily_guzman.lp_setting import SMOOTH_ASSUMPTIONS, read_lp_setting
from calibrators.bassily_guzman.printed_lp_noise import printed_kappa
from calibrators.geometry import L1Ball, L2Penalty, LpBall
from calibrators.phases.gradient_estimates import EstimatePhase
from calibrators.phases.gradient_trees import GradientTreePhase
from calibrators.provenance import Provenance, ProvenanceKind
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec, Unknown
from trainer.exact.generalized_gaussian import GeneralizedGaussianNoise
from trainer.streams import random_streams

RHO = 0.0243559703595
#: Of (1, 1e-6), what the paper's formulas take.
PAPER_RHO = 0.0180956034126
GIVEN = {"norm_order": 1.5, "lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0}
NONCONVEX = {"norm_order": 1.5, "lipschitz": 1.0, "smoothness": 1.0, "radius": 1.0}


def spec(**changes: Any) -> Spec:
    return replace(Spec(40_000, ZcdpTarget(RHO), dimension=30, assumptions=GIVEN), **changes)


def calibrated(**changes: Any) -> Calibration:
    return calibrate("noisy_sfw_lp", spec(**changes))


def nonconvex(**changes: Any) -> Calibration:
    given = Spec(100_000, ZcdpTarget(RHO), dimension=100, iterations=64, assumptions=NONCONVEX)
    return calibrate("noisy_sfw_nonconvex_lp", replace(given, **changes))


def number(items: tuple[Provenance, ...], name: str) -> float:
    [value] = [item.value for item in items if item.name == name]
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize(
    ("variant", "scale", "bound"),
    [("naive", 0.00678992920266, 1.45779654749), ("prefix_tree", 0.0192048199319, 0.787406142152)],
)
def test_sums_have_the_worked_noise_and_bound(variant: str, scale: float, bound: float) -> None:
    """At rho of the (1, 1e-6) conversion; a zcdp target is solved in whole nano-units of rho."""
    found = calibrated(variant=variant)
    [phase] = found.plan.phases
    assert isinstance(phase, EstimatePhase)
    assert (phase.first_batch, phase.estimates, phase.batch) == (20_000, 201, 100)
    assert phase.step_size == pytest.approx(0.0264915868327, rel=1e-11)
    assert found.value == pytest.approx((0.00128152556367, scale), rel=1e-7)
    assert number(found.utility, "excess_risk_bound") == pytest.approx(bound, rel=1e-7)
    assert number(found.utility, "gradient_evaluations") == 60_000.0
    assert found.plan.domain == LpBall(1.5, 1.0)
    [item] = [item for item in found.hyperparameters if item.name == "batch_size"]
    assert item.value == (20_000.0, 100.0)


def test_the_papers_scales_are_those_of_its_rho() -> None:
    found = calibrated(variant="naive", target=ZcdpTarget(PAPER_RHO))
    assert found.value == pytest.approx((0.00148676887554, 0.00787737335332), rel=1e-7)
    n, delta, eta = 40_000, 1e-6, math.log(40_000) / 400.0
    assert found.value == pytest.approx(
        (
            math.sqrt(32 * 2 * 4 * -math.log(delta)) / n,
            math.sqrt(32 * 2 * 4 * eta**2 * -math.log(delta) / n),
        ),
        rel=1e-7,
    )


def test_batch_trees_have_the_worked_layout_noise_and_bound() -> None:
    found = calibrated(variant="batch_tree", iterations=5)
    [phase] = found.plan.phases
    assert isinstance(phase, GradientTreePhase)
    assert (phase.records_per_tree, phase.steps) == (2048, 62)
    assert phase.scales == pytest.approx((0.0125148981804, *[0.0250297963608] * 5), rel=1e-7)
    assert number(found.utility, "excess_risk_bound") == pytest.approx(0.886218782453, rel=1e-7)
    assert number(found.utility, "gradient_evaluations") == 40_960.0
    assert any("14400 of 40000" in warning for warning in found.warnings)


def test_the_number_of_trees_is_that_of_least_bound() -> None:
    bounds = {
        trees: number(calibrated(variant="batch_tree", iterations=trees).utility, "excess_risk_bound")
        for trees in range(1, 10)
    }
    best = calibrated(variant="batch_tree")
    assert number(best.utility, "excess_risk_bound") == min(bounds.values())
    assert number(best.hyperparameters, "iterations") == min(bounds, key=lambda trees: bounds[trees])


def test_the_nonconvex_noise_and_gap_are_the_worked_ones() -> None:
    found = nonconvex()
    [phase] = found.plan.phases
    assert isinstance(phase, EstimatePhase)
    assert (phase.first_batch, phase.batch, phase.step_size) == (50_000, 781, 0.125)
    assert found.value == pytest.approx((0.000256305114734, 0.00564051748975), rel=1e-7)
    assert number(found.utility, "gradient_norm_bound") == pytest.approx(0.843685409157, rel=1e-8)
    assert number(found.utility, "gradient_evaluations") == 50_000 + 2 * 63 * 781
    assert found.plan.release.kind == "random"


@pytest.mark.parametrize("estimator", ["sums", "prefix_tree", "momentum"])
def test_errors_follow_the_recursions(estimator: str) -> None:
    setting = read_lp_setting(spec(), SMOOTH_ASSUMPTIONS)
    phase = EstimatePhase(Event(ZcDp(1.0)), estimator, 1.5, 3.0, 40, 500, 20, 0.3, 0.2, 2.0, 1.0, 0.1)
    pair, d = kappa_pair(1.5, 30), 30
    r = 4 * pair.kappa * 4.0 / 500 + pair.kappa_plus * d * 0.3**2
    for t, found in enumerate(squared_errors(setting, phase)):
        if t > 0 and estimator == "momentum":
            G = 0.9 * 1.0 * 2.0 + 2.0
            r = 0.9**2 * r + 4 * pair.kappa * 0.1**2 * G**2 / 20 + pair.kappa_plus * d * 0.2**2
        elif t > 0:
            nodes = 1 if estimator == "sums" else t.bit_count() - (t - 1).bit_count()
            r += 4 * pair.kappa * (0.1 * 2.0) ** 2 / 20 + pair.kappa_plus * d * 0.2**2 * nodes
        assert found == pytest.approx(r, rel=1e-12)


def test_the_error_bound_holds_in_simulation() -> None:
    """Of a mean of bounded vectors with noise, in the dual norm."""
    rng, pair, d, m, sigma = np.random.default_rng(2), kappa_pair(1.5, 30), 30, 25, 0.05
    noise = GeneralizedGaussianNoise(random_streams(1).noise)
    squares = []
    for _ in range(400):
        rows = rng.choice([-1.0, 1.0], size=(m, d)) * d ** (-1.0 / 3.0)
        squares.append(
            np.linalg.norm(rows.mean(axis=0) + sigma * noise.rounded(d, pair.r, 2.0**30) / 2.0**30, 3.0) ** 2
        )
    assert np.mean(squares) <= 4.0 * pair.kappa / m + pair.kappa_plus * d * sigma**2
    assert np.mean(squares) >= 0.1 * (4.0 * pair.kappa / m + pair.kappa_plus * d * sigma**2)


def test_replacing_by_null_takes_half_the_noise() -> None:
    for variant in ("naive", "prefix_tree", "batch_tree"):
        half = calibrated(variant=variant, iterations=3, neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
        whole = calibrated(variant=variant, iterations=3)
        assert isinstance(half.value, tuple)
        assert isinstance(whole.value, tuple)
        assert half.value == pytest.approx([scale / 2.0 for scale in whole.value], rel=1e-6)


@pytest.mark.parametrize(
    ("epsilon", "assumptions", "dimension", "size", "verdict"),
    [
        (1.0, GIVEN, 30, 40_000, Verdict.LOOSE),
        (4.0, GIVEN, 30, 40_000, Verdict.LOOSE),
        (5.6, GIVEN, 30, 40_000, Verdict.UNSOUND),  # beyond epsilon_max(1e-6) = 5.5269
        (1.0, GIVEN | {"norm_order": 1.01}, 1000, 40_000, Verdict.UNSOUND),
        (1.0, GIVEN, 1, 40_000, Verdict.UNSOUND),  # 2 ln 1 = 0: no noise at all
        (5.4, GIVEN, 30, 101, Verdict.UNSOUND),  # an odd number: batches are smaller than printed
    ],
)
def test_the_verdict_on_the_printed_noise(
    epsilon: float, assumptions: dict[str, float], dimension: int, size: int, verdict: Verdict
) -> None:
    target = ApproximateDpTarget(epsilon, 1e-6)
    found = calibrated(
        variant="naive", target=target, assumptions=assumptions, dimension=dimension, dataset_size=size
    ).as_published
    assert found is not None
    assert found.verdict is verdict, found.why
    assert calibrated(variant="naive", target=ZcdpTarget(1.0)).as_published is None
    tree = calibrated(target=target).as_published
    assert tree is not None
    assert tree.verdict is Verdict.UNSOUND


def test_the_printed_constant_is_below_every_regularity_constant_near_1() -> None:
    for dimension in (2, 8, 100, 1000, 10**6):
        assert printed_kappa(1.001, dimension) < kappa_pair(1.001, dimension).kappa
    assert printed_kappa(1.5, 1000) == pytest.approx(kappa_pair(1.5, 1000).kappa)


def test_rates_are_served_with_the_targets_epsilon() -> None:
    found = calibrated(target=ApproximateDpTarget(1.0, 1e-6))
    orders = {item.name for item in found.utility if item.kind is ProvenanceKind.ORDER}
    assert orders == {"excess_risk_rate", "lower_bound_rate"}
    assert number(found.utility, "excess_risk_rate") == pytest.approx(
        8.0 * (math.sqrt(2 / 40_000) + 2 * math.sqrt(30) / 40_000), rel=1e-12
    )
    assert number(found.utility, "lower_bound_rate") == pytest.approx(2.0 / 200.0, rel=1e-12)
    assert not [item for item in calibrated().utility if item.kind is ProvenanceKind.ORDER]
    naive = calibrated(variant="naive", target=ApproximateDpTarget(1.0, 1e-6))
    curvature = 4.0 * math.log(40_000)
    expected = (2 * 4.0 + curvature) / 200.0 + 2 * curvature * math.sqrt(30 * math.log(1e6)) / 40_000**0.75
    assert number(naive.utility, "excess_risk_rate") == pytest.approx(expected, rel=1e-12)
    gap = nonconvex(target=ApproximateDpTarget(1.0, 1e-6))
    expected = 6.0 * (100_000 ** (-1 / 3) + (10 / 100_000) ** 0.4)
    assert number(gap.utility, "gradient_norm_rate") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"dimension": None}, ("dimension",)),
        ({"assumptions": {"lipschitz": 1.0, "smoothness": 1.0, "radius": 1.0}}, ("assumptions", "norm_order")),
        ({"assumptions": {"norm_order": 1.5, "lipschitz": 1.0, "smoothness": 1.0}}, ("assumptions", "radius")),
        ({"assumptions": {"norm_order": 1.5, "smoothness": 1.0, "radius": 1.0}}, ("assumptions", "lipschitz")),
        ({"assumptions": {"norm_order": 1.5, "lipschitz": 1.0, "radius": 1.0}}, ("assumptions", "smoothness")),
        ({"assumptions": GIVEN | {"diameter": 2.1}}, ("assumptions", "radius")),
        ({"domain": LpBall(1.6, 1.0)}, ("assumptions", "norm_order")),
        ({"domain": LpBall(1.5, 2.0)}, ("domain", "radius")),
        ({"domain": LpBall(2.5, 1.0), "assumptions": {"lipschitz": 1.0, "smoothness": 1.0}}, ("domain", "norm_order")),
        ({"domain": L1Ball(1.0)}, ("domain", "kind")),
        ({"penalty": L2Penalty(1.0)}, ("penalty",)),
        ({"dataset_size": 3}, ("dataset_size",)),
        ({"iterations": 20_001}, ("iterations",)),
        ({"batch_size": 10}, ("batch_size",)),
        ({"step_size": 1.5}, ("step_size",)),
        ({"unknown": Unknown.ITERATIONS, "noise_multiplier": 1.0}, ("solve_for",)),
        ({"variant": "batch_tree", "step_size": 0.1}, ("step_size",)),
        ({"variant": "batch_tree", "batch_size": 48}, ("batch_size",)),
        ({"variant": "batch_tree", "iterations": 15}, ("iterations",)),
        ({"variant": "batch_tree", "dataset_size": 2}, ("dataset_size",)),
        ({"variant": "batch_tree", "batch_size": 32_768}, ("batch_size",)),
        ({"variant": "other"}, ("variant",)),
    ],
)
def test_what_it_cannot_do_is_refused_where_it_stands(changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    with pytest.raises(AccountingError) as refused:
        calibrated(**changes)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"iterations": None}, ("iterations",)),
        ({"iterations": 50_001}, ("iterations",)),
        ({"dataset_size": 1, "iterations": 1}, ("iterations",)),
        ({"batch_size": 10}, ("batch_size",)),
        ({"step_size": 1.5}, ("step_size",)),
    ],
)
def test_what_the_nonconvex_form_cannot_do_is_refused(changes: dict[str, Any], pointer: tuple[str, ...]) -> None:
    with pytest.raises(AccountingError) as refused:
        nonconvex(**changes)
    assert refused.value.pointer == pointer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"estimator": "guess"}, "estimator"),
        ({"event": Event(ZcDp(1.0), count=2)}, "one zcdp event"),
        ({"step_size": 1.1}, "step_size"),
        ({"noise_order": 1.9}, "noise_order"),
        ({"noise_order": 3.1}, "noise_order"),
        ({"norm_order": 1.0}, "norm_order"),
        ({"estimates": 0}, "estimates"),
    ],
)
def test_phases_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    [phase] = calibrated().plan.phases
    assert isinstance(phase, EstimatePhase)
    with pytest.raises(AccountingError, match=message):
        replace(phase, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scales": (1.0,)}, "each depth"),
        ({"records_per_tree": 33}, "power of two"),
        ({"event": Event(ZcDp(1.0), count=2)}, "one zcdp event"),
    ],
)
def test_trees_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    [phase] = calibrated(variant="batch_tree").plan.phases
    assert isinstance(phase, GradientTreePhase)
    with pytest.raises(AccountingError, match=message):
        replace(phase, **changes)
