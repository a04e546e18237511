"""Steps on batches of a fixed size: the symmetrised pair.

Its loss has on l > 0 the law of Poisson's remove pair, on l < 0 the reflection of that pair's other law, and the rest
of the mass at 0:

    M(z) = 1 + E_Q [(f^(z+1) + f^-z - f - 1) 1{y >= 0}],

because its profile is the remove pair's for eps >= 0 and delta(-eps) = 1 - e^-eps + e^-eps delta(eps).
"""

from __future__ import annotations

import math

from accounting.fourier.ratio_path import RatioPart
from accounting.fourier.ratio_step import RatioStep
from accounting.fourier.sampled_laplace import log_f
from accounting.sampling.laplace import PoissonLaplaceLoss
from accounting.sampling.poisson import PoissonGaussianLoss
from accounting.sampling.without_replacement import SymmetrizedLoss


def symmetrized_step(loss: SymmetrizedLoss, digits: float) -> RatioStep:
    """Guarantees: moment_within_its_error; line_within_its_error; envelope_is_above_and_falls."""
    if isinstance(loss.pair, PoissonLaplaceLoss):
        return _laplace(loss.pair, digits)
    return _gaussian(loss.pair, digits)


def _gaussian(pair: PoissonGaussianLoss, digits: float) -> RatioStep:
    """y = (2x - 1) / (2 s^2) is N(-1/(2 s^2), 1/s^2) under Q; the mass at 0 is (1 - q) P(|N(0, 1)| < 1/(2s))."""
    s, q = pair.noise_multiplier, pair.sampling_probability
    log_scale = math.log(s) - 0.5 * math.log(2.0 * math.pi) - 0.125 / s**2
    parts = tuple(RatioPart(q, log_scale, s * s, 0.0, math.inf, upward=upward) for upward in (True, False))
    at_zero = (1.0 - q) * math.erf(0.5 / s * math.sqrt(0.5))
    return RatioStep(parts, (), at_zero, digits, q, math.inf)


def _laplace(pair: PoissonLaplaceLoss, digits: float) -> RatioStep:
    """The upper half of `sampled_laplace`'s law; the mass at 0 is (1 - q)(1 - e^(-l/2))."""
    size, q = pair.epsilon, pair.sampling_probability
    log_scale, high = -0.5 * size - math.log(4.0), log_f(size, q)
    parts = tuple(RatioPart(q, log_scale, 0.0, 0.0, size, upward=upward) for upward in (True, False))
    atoms = ((0.5 * math.exp(high - size), high), (0.5 * math.exp(-size), -high))
    at_zero = -(1.0 - q) * math.expm1(-0.5 * size)
    return RatioStep(parts, atoms, at_zero, digits, q, pair.pure_epsilon)
