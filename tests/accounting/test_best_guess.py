"""The best guess of who took part: no pair of outputs that keeps the guarantee lets anybody guess better."""

from __future__ import annotations

import math

import mpmath
import pytest

from accounting.best_guess import under_epsilon, under_mu, under_rho


def of_gaussian(mu: float) -> float:
    """The best guess of which of two normal distributions with variance 1, mu apart, a number is from."""
    return float(mpmath.ncdf(mpmath.mpf(mu) / 2))


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.5, 1.0, 3.0, 8.0])
def test_gaussian_noise_attains_the_bound_of_mu_and_stays_below_that_of_rho(mu: float) -> None:
    truth = of_gaussian(mu)
    assert truth <= under_mu(mu) <= truth + 1e-9
    assert truth <= under_rho(mu**2 / 2)  # Gaussian noise of mu is (mu^2 / 2)-zCDP


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0, 30.0, 800.0])
@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.1, 1.0])
def test_randomised_response_attains_the_bound_of_epsilon_and_delta(epsilon: float, delta: float) -> None:
    with mpmath.workdps(40):
        # With probability delta the truth is told; else a coin that is right with probability e^eps / (1 + e^eps).
        right = mpmath.exp(min(epsilon, 700)) / (1 + mpmath.exp(min(epsilon, 700)))
        truth = float(delta + (1 - delta) * right)
    assert truth <= under_epsilon(epsilon, delta) <= min(1.0, truth + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 6.0])
def test_randomised_response_stays_below_the_bound_of_rho(epsilon: float) -> None:
    # epsilon-DP is (epsilon tanh(epsilon / 2) / 2)-zCDP at the least, and (epsilon^2 / 2)-zCDP always.
    assert under_epsilon(epsilon) <= under_rho(epsilon * math.tanh(epsilon / 2)) + 1e-9
