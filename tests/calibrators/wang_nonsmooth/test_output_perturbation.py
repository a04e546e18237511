"""The parts of output perturbation: stability, the mixture over draws, rates, other rules of noise; worked numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy import stats

from accounting.errors import Unreachable
from accounting.targets import ApproximateDpTarget
from calibrators.wang_nonsmooth.holder import HolderProblem
from calibrators.wang_nonsmooth.mixture import Mixture, draws_of
from calibrators.wang_nonsmooth.optimisation_error import OptimisationError
from calibrators.wang_nonsmooth.other_output_noise import analytic_stddev, printed_stability, printed_stddev, quantile
from calibrators.wang_nonsmooth.output_rates import OutputRate, theorem_9_iterations
from calibrators.wang_nonsmooth.output_utility import OutputNoise
from calibrators.wang_nonsmooth.stability import Stability, expansion, iterate_radius

TARGET = ApproximateDpTarget(1.0, 1e-6)
#: alpha, L, M, M_0 of losses with inputs and labels of at most 1.
HINGE_15, SQUARE, HINGE_1 = (0.5, 1.5, 1.5, 1.0), (1.0, 2.0, 2.0, 1.0), (0.0, 1.0, 1.0, 1.0)


def stability_of(loss: tuple[float, float, float, float], radius: float | None) -> tuple[Stability, Stability]:
    """That which is used, and that of the paper's own G: n = T = 1000, eta = 0.02."""
    alpha, constant, at_zero, value = loss
    reached = iterate_radius(alpha, constant, at_zero + constant, value, 0.02, 1000) if radius is None else radius
    longest = at_zero + constant * reached**alpha
    used = Stability(alpha, constant, longest, 0.02, 1000, math.inf if radius is None else radius)
    problem = HolderProblem(
        None if radius is None else longest, alpha, constant, value, at_zero, radius, None, None, 1.0, ()
    )
    return used, printed_stability(problem, used)


def test_the_worked_expansions_of_one_step() -> None:
    assert expansion(0.5, 1.5, 0.1 / 1.5) == pytest.approx(8.333333333e-06, rel=1e-9)
    assert expansion(0.8, 0.5937785598, 0.1) == pytest.approx(2.364627008e-16, rel=1e-8)
    assert expansion(0.9, 2.0, 0.4) == pytest.approx(2.314761322e-09, rel=1e-9)
    assert expansion(1.0, 2.0, 0.4) == 0.0
    assert expansion(1.0 - 1e-12, 2.0, 0.4) == 0.0, "no overflow near 1"


@pytest.mark.parametrize(
    ("steps", "gamma", "kappa", "of_all", "of_one"),
    [
        (1000, 5e-7, 65.24923905, 12, 9),
        (100_000, 5e-7, 180.155623, 167, 153),
        (1_000_000, 0.05, 1172.367232, 1125, 1052),
    ],
)
def test_the_worked_numbers_of_draws(steps: int, gamma: float, kappa: float, of_all: int, of_one: int) -> None:
    width = Stability(1.0, 1.0, 0.5, 1.0, steps).printed(1000, gamma)
    assert width == pytest.approx(math.sqrt(math.e * (1.0 + kappa) * kappa), rel=1e-9)
    assert quantile(steps, 1000, gamma / 1000) == of_all
    assert quantile(steps, 1000, gamma) == of_one


@pytest.mark.parametrize(
    ("loss", "radius", "printed", "of_all", "of_one"),
    [
        (HINGE_15, None, 25.56369436, 2.538923033, 1.906246234),
        (HINGE_15, 1.0, 13.00789118, 1.448215838, 1.088215838),
        (SQUARE, None, 63.51797795, 7.031573108, 5.273679831),
        (SQUARE, 1.0, 17.34384551, 1.92, 1.44),
        (HINGE_1, 1.0, 8.734389331, 1.592455532, 1.352455532),
    ],
)
def test_the_worked_displacements(
    loss: tuple[float, float, float, float], radius: float | None, printed: float, of_all: float, of_one: float
) -> None:
    used, papers = stability_of(loss, radius)
    assert papers.printed(1000, 5e-7) == pytest.approx(printed, rel=1e-9)
    assert used.displacement(12) == pytest.approx(of_all, rel=1e-9)
    assert used.displacement(9) == pytest.approx(of_one, rel=1e-9)
    assert used.displacement(0) == 0.0
    assert used.displacement(10**6) == (math.inf if radius is None else 2.0) or radius is None


@pytest.mark.parametrize(
    ("loss", "printed", "mixture"), [(HINGE_15, 70.6073349, 1.937760835), (SQUARE, 94.14306215, 2.552039261)]
)
def test_the_worked_noises(loss: tuple[float, float, float, float], printed: float, mixture: float) -> None:
    used, _ = stability_of(loss, 1.0)
    assert printed_stddev(used, 1000, TARGET) == pytest.approx(printed, rel=1e-9)
    own = Mixture(1000, 1000, used.drift / used.draw, 2.0, 2.0 / used.draw)
    assert own.noise_multiplier(1.0, 1e-6) * used.draw == pytest.approx(mixture, rel=1e-9)
    if loss is SQUARE:
        assert analytic_stddev(used, 1000, 2.0, TARGET) == pytest.approx(6.285823115, rel=1e-9)


@pytest.mark.parametrize(
    ("steps", "records"), [(1000, 1000), (10**6, 1000), (10**5, 10**6), (7, 3), (5, 1), (10**8, 9)]
)
def test_the_law_of_draws_is_binomial_from_above(steps: int, records: int) -> None:
    law = draws_of(steps, records)
    exact = stats.binom(steps, 1.0 / records).pmf(law.counts)
    seen = exact > 1e-200
    np.testing.assert_allclose(law.probabilities[seen], exact[seen], rtol=1e-7)
    assert 1.0 <= float(law.probabilities.sum()) + law.outside < 1.0 + 1e-9
    assert law.outside < 1e-60


def exact_delta(mixture: Mixture, epsilon: float, noise: float) -> mpmath.mpf:
    """The module's formula in 60 digits."""
    with mpmath.workdps(60):
        p, total = mpmath.mpf(1) / mixture.dataset_size, mpmath.mpf(0)
        for k in range(1, min(mixture.iterations, 120) + 1):
            mu = mpmath.mpf(min(mixture.drift + mixture.sensitivity * k, mixture.cap)) / noise
            ahead = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
            total += mpmath.binomial(mixture.iterations, k) * p**k * (1 - p) ** (mixture.iterations - k) * ahead
        return total


@pytest.mark.parametrize(("epsilon", "noise"), [(1.0, 30.0), (0.001, 5e4), (8.0, 3.0), (0.3, 1e3)])
@pytest.mark.parametrize("drift", [0.0, 4.5])
def test_delta_is_the_exact_one_rounded_up(epsilon: float, noise: float, drift: float) -> None:
    mixture = Mixture(300, 200, drift, 2.0, 20.0)
    exact = exact_delta(mixture, epsilon, noise)
    found = mixture.delta(epsilon, noise)
    assert exact <= found <= exact * (1.0 + 1e-6) + 1e-15


def test_delta_is_that_of_simulated_releases() -> None:
    """The hockey-stick divergence of the worst pair of one dimension: E (1 - e^(epsilon - loss))_+."""
    mixture, epsilon, noise = Mixture(6, 3, 0.5, 2.0, 5.0), 0.7, 4.0
    rng = np.random.default_rng(5)
    draws = rng.binomial(6, 1.0 / 3.0, 400_000)
    mu = np.where(draws == 0, 0.0, np.minimum(0.5 + 2.0 * draws, 5.0)) / noise
    losses = mu * (rng.standard_normal(mu.size) + mu) - 0.5 * mu**2  # given who was drawn
    gains = np.maximum(0.0, 1.0 - np.exp(epsilon - losses))
    assert mixture.delta(epsilon, noise) == pytest.approx(gains.mean(), abs=5.0 * gains.std() / math.sqrt(mu.size))


def test_noise_and_epsilon_are_the_least_that_are_certified() -> None:
    mixture = Mixture(1000, 1000, 0.0, 2.0, 25.0)
    noise = mixture.noise_multiplier(1.0, 1e-6)
    assert mixture.delta(1.0, noise) <= 1e-6 < mixture.delta(1.0, noise * (1.0 - 1e-9))
    assert mixture.epsilon(1e-6, noise) == pytest.approx(1.0, rel=1e-9)
    assert mixture.delta(mixture.epsilon(1e-6, 7.0), 7.0) <= 1e-6
    with pytest.raises(Unreachable, match="no noise multiplier"):
        mixture.noise_multiplier(1e-9, 1e-30)
    with pytest.raises(Unreachable, match="hardly ever draw"):
        Mixture(1, 10**6, 0.0, 2.0, 25.0).noise_multiplier(1.0, 1e-5)
    assert mixture.epsilon(0.7, 7.0) == 1e-12, "more than the chance that anything differs"


def test_the_worked_step_sizes() -> None:
    ball = OutputRate(10_000, 50, 1.0, 1e-8, 0.05, exponent=0.25, bounded=True)
    assert ball.scale == pytest.approx(0.3321469449, rel=1e-9)
    assert ball.iterations == 398108
    assert ball.step_size(398108, 1.0) == pytest.approx(7.562559995e-06, rel=1e-9)
    smooth = replace(ball, exponent=1.0)
    assert (smooth.iterations, replace(smooth, bounded=False).iterations) == (10_000, 10_000)
    assert smooth.step_size(10_000, 1.0) == pytest.approx(0.0003010715635, rel=1e-9)
    assert smooth.step_size(10_000, 4.0) == pytest.approx(0.0003010715635 / 4.0, rel=1e-9)
    space = replace(ball, bounded=False)
    assert space.iterations == theorem_9_iterations(10_000, 0.25) == 128143
    assert space.step_size(128143, 1.0) == pytest.approx(9.472356538e-05, rel=1e-9)
    assert replace(smooth, bounded=False).step_size(10_000, 1.0) == pytest.approx(0.0007601061571, rel=1e-9)
    # The rates are sums of what is balanced: at the larger term A the sum is between A and 2 A.
    assert ball.scale < ball.excess_risk(1.0, 1.0) < 2.0 * ball.scale
    assert ball.holds
    assert not replace(ball, failure_probability=0.001).holds


def test_the_paper_takes_n_steps_from_its_exponent_on() -> None:
    limit = (math.sqrt(73.0) - 7.0) / 4.0
    assert limit == pytest.approx(0.3860009363, rel=1e-9)
    assert theorem_9_iterations(10_000, limit + 1e-9) == 10_000
    assert theorem_9_iterations(10_000, limit - 1e-3) > 10_000


def test_the_worked_utility_terms_are_above_ours() -> None:
    """q = 1.5 hinge, R = |w*| = 1, T = 10^4, eta = 0.01, sigma = 0.1, d = 50, gamma = 0.05."""
    noise = OutputNoise(0.1, 50, 3.0, 0.5, 1.5)
    papers = 0.1 * math.sqrt(50.0) * (1.0 + (8.0 * math.log(80.0) / 50.0) ** 0.25)
    assert papers == pytest.approx(1.354150687, rel=1e-9)
    assert noise.cost(papers) == pytest.approx(6.42614877, rel=1e-9)
    assert noise.length(0.05) < papers
    kappa, largest, at_minimiser = 1.889881575**2 * 0.01, 4.0, 4.0
    optimised = (
        largest * math.sqrt(2.0 * math.log(160.0) / 1e4)
        + at_minimiser * math.sqrt(math.log(160.0) / 2e4)
        + (1.0 / 200.0 + kappa / 2.0 * (at_minimiser + 1.0)) / (1.0 - kappa / 2.0)
    )
    assert optimised == pytest.approx(0.2871634673, rel=1e-8)
    ours = OptimisationError(3.0, 1.0, 50, 10_000, 0.0).with_probability(
        0.01, 0.05, radius=1.0, largest_loss=4.0, largest_loss_at_minimiser=4.0, sampled=True
    )
    assert ours is not None
    assert ours < optimised


def test_noise_is_longer_than_its_bound_as_rarely_as_is_said() -> None:
    noise = OutputNoise(2.0, 7, 1.0, 0.5, 1.0)
    for gamma in (0.4, 0.04, 1e-6):
        assert stats.chi2(7).sf((noise.length(gamma) / 2.0) ** 2) <= gamma / 4.0
