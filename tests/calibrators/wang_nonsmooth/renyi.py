"""A second accountant for one record of n a step under replace_one, by quadrature: the catalogue's section 4.4."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize_scalar


def renyi_divergence(order: float, fraction: float, noise_ratio: float) -> float:
    """A bound at one real order above 1; noise_ratio is the standard deviation over the sensitivity."""
    x = np.linspace(0.5, order + 0.5 + 14.0 * noise_ratio, 20_001)
    log_l = np.logaddexp(math.log1p(-fraction), math.log(fraction) + (2.0 * x - 1.0) / (2.0 * noise_ratio**2))
    log_density = -0.5 * (x / noise_ratio) ** 2 - math.log(noise_ratio * math.sqrt(2.0 * math.pi))
    # L^a + L^(1-a) - L - 1 is (L^a - 1) (1 - L^(1-a)): no cancellation where L is near 1.
    first = order * log_l + np.log(-np.expm1(-np.maximum(order * log_l, 1e-300)))
    bracket = np.exp(first + log_density) * -np.expm1((1.0 - order) * log_l)
    return math.log1p(float(np.trapezoid(bracket, x))) / (order - 1.0)


def epsilon(dataset_size: int, iterations: int, delta: float, relative_variance: float) -> float:
    """Of T steps on one record each, sigma^2 = relative_variance G^2, sensitivity 2 G."""

    def at(log_excess: float) -> float:
        order = 1.0 + math.exp(log_excess)
        divergence = iterations * renyi_divergence(order, 1.0 / dataset_size, math.sqrt(relative_variance) / 2.0)
        return divergence + math.log((order - 1.0) / order) - (math.log(delta) + math.log(order)) / (order - 1.0)

    return float(minimize_scalar(at, bounds=(math.log(0.05), math.log(100.0)), method="bounded").fun)
