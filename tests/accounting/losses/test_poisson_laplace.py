from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.losses.laplace import LaplaceLoss
from accounting.losses.poisson_laplace import PoissonLaplaceLoss, PoissonLaplaceReplaceLoss
from accounting.losses.symmetrized_moments import ALLOWANCE
from tests.accounting.losses import sampled_references as references

CASES = [(1.0, 0.1), (0.05, 1e-4), (3.0, 0.6), (12.0, 1e-3), (0.7, 1e-6)]


def excess(loss: float, q: float, epsilon: float, direction: str) -> float:
    pair = PoissonLaplaceReplaceLoss if direction == "replace" else PoissonLaplaceLoss
    return float(pair(loss, q).excess(np.array([epsilon]), remove=direction != "add")[0])


def integrated(loss: float, q: float, epsilon: float, direction: str) -> mp.mpf:
    """The excess from the densities, by quadrature."""
    common = references.laplace(0.0, loss)
    p = references.mixture(q, references.laplace(1.0, loss), common)
    other = references.mixture(q, references.laplace(-1.0, loss), common) if direction == "replace" else common
    if direction == "add":
        p, other = other, p
    stick = references.hockey_stick(p, other, epsilon, [-1.0, 0.0, 0.5, 1.0], 3.0 + 90.0 / loss)
    return stick - max(mp.mpf(0), 1 - mp.exp(mp.mpf(epsilon)))


@pytest.mark.parametrize("direction", ["remove", "add", "replace"])
@pytest.mark.parametrize(("loss", "q"), CASES)
@pytest.mark.one_in(1000)
def test_excess_is_the_integral_of_the_densities_for_both_signs(loss: float, q: float, direction: str) -> None:
    pair = PoissonLaplaceReplaceLoss(loss, q) if direction == "replace" else PoissonLaplaceLoss(loss, q)
    end = pair.pure_epsilon
    for share in (-1.1, -0.9, -0.3, 0.0, 0.2, 0.999, 1.3):
        with mp.workdps(25):
            exact = integrated(loss, q, share * end, direction)
        assert excess(loss, q, share * end, direction) == pytest.approx(float(exact), rel=1e-11, abs=1e-16 * q)


@settings(max_examples=60, deadline=None)
@given(st.floats(-3.0, 2.0), st.floats(-7.0, -0.01), st.floats(0.0, 1.2))
def test_profiles_are_the_closed_forms_of_the_hockey_stick(log_loss: float, log_q: float, share: float) -> None:
    """H_g(L(1)|L(0)) = 1 - sqrt(g e^-l), evaluated with 60 digits at the g of each relation."""
    loss, q = 10.0**log_loss, 10.0**log_q
    for direction in ("remove", "replace"):
        pair = PoissonLaplaceReplaceLoss(loss, q) if direction == "replace" else PoissonLaplaceLoss(loss, q)
        epsilon = share * pair.pure_epsilon
        with mp.workdps(80):
            alpha, lam, share_q = mp.exp(mp.mpf(epsilon)), mp.mpf(loss), mp.mpf(q)
            g = 1 + (alpha - 1) / share_q
            if direction == "replace":
                g = (1 - share_q) * (alpha - 1) / share_q + alpha * mp.exp(-lam)
            exact = share_q * max(mp.mpf(0), 1 - mp.sqrt(g * mp.exp(-lam)))
        tolerance = 1e-12 * float(q) * min(1.0, loss) if abs(share - 1) < 1e-3 else 0.0
        assert excess(loss, q, epsilon, direction) == pytest.approx(float(exact), rel=1e-11, abs=tolerance + 1e-300)


@pytest.mark.parametrize(
    ("loss", "q"), [*CASES, (700.0, 1e-300), (2000.0, 0.5), (1e-6, 1.0 - 1e-12), (0.3, 1e-300), (37.0, 1.0 - 2.0**-53)]
)
def test_pure_epsilon_is_where_the_profile_ends(loss: float, q: float) -> None:
    for pair in (PoissonLaplaceLoss(loss, q), PoissonLaplaceReplaceLoss(loss, q)):
        with mp.workdps(400):
            top = mp.log(1 - mp.mpf(q) + mp.mpf(q) * mp.exp(mp.mpf(loss)))
            bottom = mp.log(1 - mp.mpf(q) + mp.mpf(q) * mp.exp(-mp.mpf(loss)))
            exact = top - bottom if isinstance(pair, PoissonLaplaceReplaceLoss) else max(top, -bottom)
            assert 0 <= pair.pure_epsilon / exact - 1 < 1e-12
        for remove in (True, False):
            assert not pair.excess(np.array([pair.pure_epsilon]), remove=remove)[0] > 0.0
            support = pair.support(-30.0, remove=remove)
            assert -pair.pure_epsilon <= support.lower <= 0 <= support.upper <= pair.pure_epsilon


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("loss", "q", "tilt"), [(1.0, 0.1, 3.0), (0.02, 1e-4, 0.4), (6.0, 0.7, 11.0), (9.0, 1e-5, 1.5)]
)
def test_moment_is_an_upper_bound(loss: float, q: float, tilt: float) -> None:
    at = np.array([tilt])
    with mp.workdps(45):
        worse = max(references.laplace_moment(loss, q, tilt, kind) for kind in ("remove", "add"))
        assert 0 <= float(PoissonLaplaceLoss(loss, q).log_moment(at)[0]) / worse - 1 < 1.2 * ALLOWANCE
        exact = references.laplace_moment(loss, q, tilt, "replace")
        assert 0 <= float(PoissonLaplaceReplaceLoss(loss, q).log_moment(at)[0]) / exact - 1 < 1.2 * ALLOWANCE


@pytest.mark.parametrize(("loss", "q"), [(1.0, 0.2), (2.5, 0.05)])
@pytest.mark.one_in(2)
def test_replace_one_dominates_every_pair_of_contributions(loss: float, q: float) -> None:
    """u and v anywhere in the interval, and in the l1 ball of the plane: no hockey stick is larger."""
    epsilons = (
        0.0,
        0.3 * PoissonLaplaceReplaceLoss(loss, q).pure_epsilon,
        0.7 * PoissonLaplaceLoss(loss, q).pure_epsilon,
    )
    x = np.linspace(-14.0, 14.0, 50_001)
    grid = np.linspace(-6.0, 6.0, 401)
    plane = np.stack(np.meshgrid(grid, grid), axis=-1)

    def law(centre: np.ndarray, at: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(-loss * np.abs(at - centre).sum(axis=-1)) * (loss / 2) ** at.shape[-1])

    def stick(u: np.ndarray, v: np.ndarray, at: np.ndarray, cell: float, epsilon: float) -> float:
        zero = np.zeros_like(u)
        p = (1 - q) * law(zero, at) + q * law(u, at)
        other = (1 - q) * law(zero, at) + q * law(v, at)
        return float(np.maximum(p - np.exp(epsilon) * other, 0.0).sum() * cell)

    for epsilon in epsilons:
        worst = excess(loss, q, epsilon, "replace")
        line = x[:, None]
        for u in (1.0, 0.6, 0.1, -0.5):
            for v in (-1.0, -0.4, 0.0, 0.7, 1.0):
                assert stick(np.array([u]), np.array([v]), line, x[1] - x[0], epsilon) <= worst + 1e-3 * q
        attained = stick(np.array([1.0]), np.array([-1.0]), line, x[1] - x[0], epsilon)
        assert attained == pytest.approx(worst, abs=1e-3 * q)
        for u2, v2 in [((1, 0), (0, 1)), ((0.5, 0.5), (-0.5, -0.5)), ((0.5, 0.5), (-0.5, 0.5)), ((0.3, -0.7), (0, 0))]:
            cell = (grid[1] - grid[0]) ** 2
            assert stick(np.array(u2, float), np.array(v2, float), plane, cell, epsilon) <= worst + 2e-2 * q


def test_sampling_and_relation_order_the_profiles() -> None:
    for loss, q in CASES:
        pair, replace = PoissonLaplaceLoss(loss, q), PoissonLaplaceReplaceLoss(loss, q)
        epsilons = np.linspace(0, replace.pure_epsilon, 31)
        remove, add = pair.excess(epsilons, remove=True), pair.excess(epsilons, remove=False)
        assert np.all(add <= remove * (1 + 1e-12))
        assert np.all(remove <= replace.excess(epsilons) * (1 + 1e-12) + 1e-18)
        assert np.all(remove <= LaplaceLoss(loss).excess(epsilons) * (1 + 1e-12))
        assert np.all(replace.excess(epsilons) <= LaplaceLoss(2 * loss).excess(epsilons) * (1 + 1e-12))
        assert math.isfinite(pair.pure_epsilon)
