"""Contours that the tests coarsen and falsify: full-batch Gaussians, and one training run with a known delta."""

from __future__ import annotations

import numpy as np

from accounting.fourier.choice import DirectedComposition, contour_at
from accounting.fourier.contour import Contour, gaussian_table, power_values
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.fourier.steps import StepLine, TiltTable
from accounting.intervals import Bounds
from tests.accounting.references import gaussian_delta

TILTS = np.concatenate([[0.0], np.geomspace(1e-3, 2e3, 120)])
MU = 1.3
#: Noise, probability, count, epsilon and delta to ten digits: a 30-digit contour of its own found it.
TRAINING = (1.0, 0.02, 5000, 9.4, 1.0039287035e-5)
KNOWN_TO = 1e-10


def full_batch(
    mu: float, tilt: float, period: float, points: int, *, window: float = 0.0, tilts: np.ndarray = TILTS
) -> Contour:
    """Full-batch Gaussians alone, through the public constructors."""
    mu_squared = mu * mu + window * window
    values = power_values([], mu_squared, tilt, period, points)
    return Contour(tilt, period, values, window, gaussian_table(mu_squared, tilts))


def exact(epsilon: float, mu: float = MU) -> float:
    return float(gaussian_delta(mu, epsilon))


def contains(bounds: Bounds, truth: float, slack: float = 1e-14) -> bool:
    return bounds.lower <= truth * (1.0 + slack) and truth * (1.0 - slack) <= bounds.upper


def training_contour(digits: float = 60.0, window: float = 0.0) -> Contour:
    s, q, count, epsilon, _ = TRAINING
    composition = DirectedComposition(((GaussianPairStep(GaussianPair(Pair.REMOVE, s, q), digits), count),), 0.0)
    contour = contour_at(composition, composition.table_at(epsilon), epsilon, 3000, window=window)
    assert contour is not None
    return contour


def training_line(tilt: float, digits: float = 60.0) -> tuple[StepLine, TiltTable]:
    s, q, count, _, _ = TRAINING
    step = GaussianPairStep(GaussianPair(Pair.REMOVE, s, q), digits)
    return step.line(tilt, 1.0), step.table(tilt * np.geomspace(0.05, 4.0, 40)).times(count)
