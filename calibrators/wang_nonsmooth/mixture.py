r"""This module computes the cost of noise on an average of points, if the steps draw the differing record a random
number of times.

The indices do not depend on data. Given the indices, two neighbours give two Gaussians at most $\Delta_k$ apart, where
$k \sim \mathrm{Bin}(T, 1/n)$ is the number of draws. Hockey-stick divergences are jointly convex, hence

$$\delta(\varepsilon) \le \sum_k \mathrm{Bin}(k; T, 1/n)\; \delta_G(\varepsilon; \Delta_k/\sigma),\qquad
\delta_G(\varepsilon; \mu) = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon\,\Phi(-\mu/2 - \varepsilon/\mu).$$

Everything here is rounded outward. Probabilities are computed relative to the probability of the mode and divided by a
sum that leaves out the tails. The tails are added with a weight of 1. Each difference of the two $\Phi$ is enlarged by
a bound on its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import scipy

from accounting.errors import Unreachable
from accounting.numbers import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER

Floats = npt.NDArray[np.float64]

_UNIT = 2.0**-52
#: The terms extend this many standard deviations and this many further terms on either side of the mode. The rest has
#: less than e^-190 of the mass.
_DEVIATIONS, _TERMS = 20.0, 200
_BISECTIONS = 200
_LARGEST_EPSILON = 1e6


@dataclass(frozen=True, slots=True)
class Draws:
    """Upper bounds on the distribution of the number of draws.

    Attributes:
        counts: Consecutive numbers of draws, shape (K,).
        probabilities: Upper bounds of the probability of each count, shape (K,).
        outside: An upper bound of the probability of all other counts.
    """

    counts: Floats
    probabilities: Floats
    outside: float


@lru_cache(maxsize=16)
def draws_of(iterations: int, dataset_size: int) -> Draws:
    """Return upper bounds on the probabilities of Bin(T, 1/n), computed by ratios from the mode.

    >>> law = draws_of(1000, 1000)
    >>> round(float(law.probabilities[0]), 9), law.outside < 1e-80
    (0.367695425, True)
    """
    steps, n = float(iterations), float(dataset_size)
    if dataset_size == 1:
        return Draws(np.array([steps]), np.ones(1), 0.0)
    mode = min(iterations, (iterations + 1) // dataset_size)
    reach = math.ceil(_DEVIATIONS * math.sqrt(steps / n)) + _TERMS
    above = np.arange(mode + 1, min(iterations, mode + reach) + 1, dtype=np.float64)
    below = np.arange(mode, max(0, mode - reach), -1, dtype=np.float64)
    up = np.cumprod((steps - above + 1.0) / (above * (n - 1.0)))
    down = np.cumprod(below * (n - 1.0) / (steps - below + 1.0))
    weights = np.concatenate([down[::-1], np.ones(1), up])
    counts = np.concatenate([below[::-1] - 1.0, np.array([float(mode)]), above])
    # The ratios of successive terms fall away from the mode, so the rest is less than a geometric series from the last
    # term.
    outside = 0.0
    if above.size and above[-1] < steps:
        ratio = (steps - above[-1]) / ((above[-1] + 1.0) * (n - 1.0))
        outside += float(up[-1]) * ratio / (1.0 - ratio)
    if below.size and below[-1] > 1.0:
        ratio = (below[-1] - 1.0) * (n - 1.0) / (steps - below[-1] + 2.0)
        outside += float(down[-1]) * ratio / (1.0 - ratio)
    total = float(np.sum(weights))
    slack = 1.0 + 8.0 * _UNIT * (weights.size + 8)
    return Draws(counts, weights / total * slack, float(outside / total * slack))


@dataclass(frozen=True, slots=True)
class Mixture:
    """The release of an average of points with noise.

    Attributes:
        iterations: The number T of steps.
        dataset_size: The number n of records.
        drift: The theorem's c_0, which is the part of the distance that does not depend on the draws, divided by G eta.
        sensitivity: The sensitivity s.
        cap: The largest distance 2 R, divided by G eta; infinite without a ball.
    """

    iterations: int
    dataset_size: int
    drift: float
    sensitivity: float
    cap: float

    def delta(self, epsilon: float, noise_multiplier: float) -> float:
        """Return an upper bound on delta at epsilon, for noise with a standard deviation of this multiple of G eta.

        >>> mixture = Mixture(1000, 1000, drift=0.0, sensitivity=2.0, cap=25.0)
        >>> round(mixture.delta(1.0, 2.552039261 / 0.08) * 1e6, 6)
        1.0
        """
        law = draws_of(self.iterations, self.dataset_size)
        moved = np.minimum(self.drift + self.sensitivity * law.counts, self.cap)
        moved = np.where(law.counts == 0.0, 0.0, moved) * (1.0 + 8.0 * _UNIT)
        found = float(np.sum(law.probabilities * _gaussian_delta(epsilon, moved / noise_multiplier)))
        return float(min(1.0, found * (1.0 + 1e-12) + law.outside))

    def noise_multiplier(self, epsilon: float, delta: float) -> float:
        """Return the least noise, divided by G eta, for which the certified delta is at most the target's delta.

        Raises:
            Unreachable: If no noise meets the target, or every noise does.
        """
        if self.delta(epsilon, MAX_NOISE_MULTIPLIER) > delta:
            raise Unreachable(
                f"no noise multiplier up to {MAX_NOISE_MULTIPLIER:g} meets epsilon {epsilon:g} and delta "
                f"{delta:g}; give a larger epsilon or delta, or fewer iterations",
                pointer=("target",),
            )
        if self.delta(epsilon, MIN_NOISE_MULTIPLIER) <= delta:
            raise Unreachable(
                f"every noise multiplier of at least {MIN_NOISE_MULTIPLIER:g} meets epsilon {epsilon:g} and "
                f"delta {delta:g}, because the steps hardly ever draw a given record; take more steps, or give "
                "a smaller epsilon or delta",
                pointer=("target",),
            )
        return _least(lambda value: self.delta(epsilon, value) <= delta, MIN_NOISE_MULTIPLIER, MAX_NOISE_MULTIPLIER)

    def epsilon(self, delta: float, noise_multiplier: float) -> float:
        """Return the least epsilon for which the certified delta is at most the given delta.

        Raises:
            Unreachable: If no epsilon up to 1e6 is enough.
        """
        if self.delta(_LARGEST_EPSILON, noise_multiplier) > delta:
            raise Unreachable(
                f"no epsilon up to {_LARGEST_EPSILON:g} can be certified at delta {delta:g}; use more noise",
                pointer=("noise_multiplier",),
            )
        smallest = 1e-12
        if self.delta(smallest, noise_multiplier) <= delta:
            return smallest
        return _least(lambda value: self.delta(value, noise_multiplier) <= delta, smallest, _LARGEST_EPSILON)


def _gaussian_delta(epsilon: float, mu: Floats) -> Floats:
    """Return upper bounds on delta_G(epsilon; mu). They are 0 at mu = 0."""
    moved = mu > 0.0
    safe = np.where(moved, mu, 1.0)
    log_first = scipy.special.log_ndtr(0.5 * safe - epsilon / safe)
    log_second = epsilon + scipy.special.log_ndtr(-0.5 * safe - epsilon / safe)
    first = np.exp(np.maximum(log_first, -745.0))
    difference = -first * np.expm1(np.minimum(log_second - log_first, 0.0))
    # The arguments have a relative error of a few units in the last place. The logarithms of Phi have this error times
    # their slope, which is about |x|.
    reach = 0.5 * safe + epsilon / safe
    error = first * _UNIT * 16.0 * (1.0 + epsilon + reach * reach)
    bound = np.minimum(difference + error, 1.0)
    return np.where(moved, np.where(log_first < -745.0, 5e-324, bound), 0.0)


def _least(holds: Callable[[float], bool], failing: float, holding: float) -> float:
    """Return nearly the least value for which the condition holds, by bisection in logarithms. The condition was tested
    for the returned value.
    """
    for _ in range(_BISECTIONS):
        middle = math.sqrt(failing) * math.sqrt(holding)
        if not failing < middle < holding or holding <= failing * (1.0 + 1e-13):
            break
        failing, holding = (failing, middle) if holds(middle) else (middle, holding)
    return holding
