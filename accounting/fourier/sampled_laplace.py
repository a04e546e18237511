"""Steps of Laplace noise with Poisson sampling.

l = sensitivity over scale; y = log of the unsampled ratio, in [-l, l], has under Q the masses 1/2 at -l and e^-l / 2
at l and the density e^(-(y + l)/2) / 4 between them; f(y) = 1 - q + q e^y.
"""

from __future__ import annotations

import math

import numpy as np

from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.sampling.laplace import PoissonLaplaceLoss, PoissonLaplaceReplaceLoss
from accounting.sampling.ratio_quadrature import log_sampled_ratio


def poisson_laplace_step(loss: PoissonLaplaceLoss, digits: float, *, remove: bool) -> RatioStep:
    """The loss log f under P = f Q, or -log f under Q.

    Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
    """
    size, q = loss.epsilon, loss.sampling_probability
    part = RatioPart(q, -0.5 * size - math.log(4.0), 0.0, -size, size, upward=remove)
    low, high = log_f(-size, q), log_f(size, q)
    if remove:
        atoms = ((0.5 * math.exp(low), low), (0.5 * math.exp(high - size), high))
        return RatioStep((part,), atoms, 0.0, digits, q, loss.pure_epsilon)
    atoms = ((0.5, -low), (0.5 * math.exp(-size), -high))
    return RatioStep((part,), atoms, 0.0, digits, q, -low * (1.0 + 1e-14))


def poisson_laplace_replace_step(loss: PoissonLaplaceReplaceLoss, digits: float) -> RatioStep:
    """Losses log g on one half of the outcomes and -log g on the other, g = f / f(-l) at y in [-l, l].

    g is a sampled ratio of v = y + l in [0, 2 l], of probability q e^-l / f(-l); v has the density f(-l) e^(-v/2) / 4
    and the mass f(-l) e^-l / 2 at the end, of the law under which the second half weighs.

    Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls.
    """
    size, q = loss.epsilon, loss.sampling_probability
    low, high = log_f(-size, q), log_f(size, q)
    odds = q * math.exp(-size - low)
    parts = tuple(RatioPart(odds, low - math.log(4.0), 0.0, 0.0, 2.0 * size, upward=upward) for upward in (True, False))
    atoms = ((0.5 * math.exp(high - size), high - low), (0.5 * math.exp(low - size), low - high))
    return RatioStep(parts, atoms, 0.0, digits, q, loss.pure_epsilon)


def log_f(y: float, q: float) -> float:
    """log(1 - q + q e^y)."""
    return float(log_sampled_ratio(np.array([y]), math.log(q))[0])
