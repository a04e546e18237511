"""The generalised Gaussian mechanism: its scales, and its Renyi divergence by quadrature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accounting.errors import InvalidValue, NoCostInFilter
from accounting.events import ZcDp
from accounting.events.regularity import RegularityPair, kappa_pair
from accounting.filters import ApproximateDpFilter, GaussianDpFilter, PureDpFilter
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, BudgetTarget, GaussianDpTarget, PureDpTarget, ZcdpTarget
from calibrators.bassily_guzman.generalized_gaussian import Releases, mean_square, noise_scale, refuse_pure_dp
from calibrators.registry import calibrate
from calibrators.spec import Spec

#: Of (1, 1e-6): by the simple conversion, by the tight one, and what the paper takes.
RHOS = {0.0174689047691: 0.0756601436207, 0.0243559703595: 0.0640762786836, 0.0180956034126: 0.074338443777}


@pytest.mark.parametrize(("rho", "sigma"), RHOS.items())
def test_the_scale_is_that_of_zcdp(rho: float, sigma: float) -> None:
    pair = kappa_pair(1.5, 100)
    assert noise_scale(pair, 0.01, 1, 1.0 / math.sqrt(2.0 * rho)) == pytest.approx(sigma, rel=1e-10)
    assert noise_scale(pair, 0.05, 5, 1.0 / math.sqrt(2.0 * rho), releases=4) == pytest.approx(2.0 * sigma, rel=1e-10)


def test_the_divergence_and_the_moments_of_the_worked_example() -> None:
    pair, sigma = kappa_pair(1.5, 100), 0.0640762786836
    # The worked bound at order 8: alpha kappa Delta^2 / (2 sigma^2), which is 8 rho.
    assert 8.0 * pair.kappa * 0.01**2 / (2.0 * sigma**2) == pytest.approx(0.194847762876, rel=1e-10)
    assert math.sqrt(mean_square(pair, 100, sigma) / pair.kappa_plus) == pytest.approx(0.640762786836, rel=1e-11)
    mean = sigma * math.sqrt(2.0) * math.exp(math.lgamma(50.5) - math.lgamma(50.0))
    assert mean == pytest.approx(0.639162907214, rel=1e-11)


def test_the_density_of_the_worked_example() -> None:
    d, r, sigma = 2, 3.0, 0.7
    volume = (2.0 * math.gamma(1.0 + 1.0 / r)) ** d / math.gamma(1.0 + d / r)
    log_z = math.log(volume) + d / 2 * math.log(2.0 * sigma**2) + math.lgamma(d / 2 + 1)
    assert log_z == pytest.approx(1.24202320328, rel=1e-11)
    grid = np.linspace(-7.0, 7.0, 1401)
    x, y = np.meshgrid(grid, grid)
    square = (np.abs(x) ** r + np.abs(y) ** r) ** (2.0 / r)
    assert math.log(np.exp(-square / (2.0 * sigma**2)).sum() * 0.01**2) == pytest.approx(log_z, rel=1e-5)
    at = (0.5**r + 0.25**r) ** (2.0 / r)
    assert -at / (2.0 * sigma**2) - log_z == pytest.approx(-1.51796380985, rel=1e-11)


@pytest.mark.parametrize("r", [2.0, 3.0, 6.0])
def test_the_renyi_divergence_is_at_most_that_of_rho(r: float) -> None:
    """By quadrature in the plane, in the worst of the shifts tried; for r = 2 it is that of rho."""
    grid = np.linspace(-16.0, 16.0, 801)
    x, y = np.meshgrid(grid, grid)

    def square(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        found: np.ndarray = (np.abs(a) ** r + np.abs(b) ** r) ** (2.0 / r)
        return found

    weight = -square(x, y) / 2.0
    total = np.log(np.exp(weight).sum())
    reached = 0.0
    for angle in (0.0, 0.4, math.pi / 4.0):
        shift = np.array([math.cos(angle), math.sin(angle)])
        length = float(square(*shift)[()])
        moved = -square(x - shift[0], y - shift[1]) / 2.0
        for alpha in (1.05, 2.0, 5.0):
            divergence = (np.log(np.exp(alpha * moved + (1.0 - alpha) * weight).sum()) - total) / (alpha - 1.0)
            bound = alpha * (r - 1.0) * length / 2.0
            assert divergence <= bound * (1.0 + 1e-6)
            reached = max(reached, divergence / bound)
    assert reached > (0.9999 if r == 2.0 else 0.1)


def test_events_are_charged_for_each_step_or_once() -> None:
    once, each = (Releases(NeighboringRelation.REPLACE_ONE, each=each) for each in (False, True))
    assert once(4.0, 7, 1).count == 1
    assert each(4.0, 7, 1).count == 7
    assert each(4.0, 7, 1).mechanism == ZcDp(0.125)
    assert Releases(NeighboringRelation.REPLACE_SPECIAL, each=True)(4.0, 7, 1).mechanism == ZcDp(0.03125)
    with pytest.raises(InvalidValue, match="more noise"):
        once(1e-3, 1, 1)


def test_scales_that_floating_point_does_not_hold_are_refused() -> None:
    with pytest.raises(InvalidValue, match="other units"):
        noise_scale(RegularityPair(2.0, 1.0, 1.0), 1e-29, 1000, 1.0)
    assert noise_scale(RegularityPair(2.0, 1.0, 1.0), 0.0, 1000, 1.0) == 0.0


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        (PureDpTarget(1.0), "kind"),
        (GaussianDpTarget(1.0), "kind"),
        (ApproximateDpTarget(1.0, 0.0), "delta"),
        (BudgetTarget(PureDpFilter(1.0), ()), "kind"),
        (BudgetTarget(GaussianDpFilter(1.0), ()), "kind"),
        (BudgetTarget(ApproximateDpFilter(1.0, 1e-5), (), charge_delta=0.0), "kind"),
    ],
)
def test_what_zcdp_does_not_imply_is_refused(target: Any, pointer: str) -> None:
    with pytest.raises(NoCostInFilter) as refused:
        refuse_pure_dp(Spec(10, target))
    assert refused.value.pointer == ("target", pointer)


@pytest.mark.parametrize("target", [ZcdpTarget(1.0), ApproximateDpTarget(1.0, 1e-6)])
def test_what_it_implies_is_met(target: Any) -> None:
    given = {"norm_order": 1.5, "lipschitz": 1.0, "radius": 1.0}
    found = calibrate("noisy_mirror_descent", Spec(1000, target, iterations=10, dimension=5, assumptions=given))
    assert 0.98 * target.limit < found.achieved.value.upper <= target.limit
