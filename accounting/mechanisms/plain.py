"""Guarantees taken as stated: any mechanism with a proof of pure DP or of zCDP."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.errors import Unsupported
from accounting.mechanisms.support import Support, mirrored

Array = NDArray[np.float64]
_ALLOWANCE = 1e-12


@dataclass(frozen=True, slots=True)
class RandomizedResponseLoss:
    """Randomised response on one bit, which dominates every epsilon-DP mechanism (Kairouz, Oh & Viswanath 2015).

    The loss is +epsilon with probability p = e^eps / (1 + e^eps) and -epsilon otherwise.
    """

    epsilon: float

    symmetric = True
    has_pair = True

    @property
    def pure_epsilon(self) -> float:
        return self.epsilon

    def log_moment(self, tilts: Array) -> Array:
        """log [ cosh((x + 1/2) eps) / cosh(eps/2) ]  (Mironov 2017, Proposition 5, order x + 1)."""
        epsilon = self.epsilon
        largest = (tilts + 0.5) * epsilon
        with np.errstate(over="ignore", invalid="ignore"):
            numerator = 2.0 * np.sinh(0.5 * (tilts + 1.0) * epsilon) * np.sinh(0.5 * tilts * epsilon)
            small = np.log1p(numerator / math.cosh(min(0.5 * epsilon, 700.0)))
        large = tilts * epsilon + np.log1p(np.exp(-2.0 * largest)) - math.log1p(math.exp(-epsilon))
        moment: Array = np.where(largest > 300.0, large, small) * (1.0 + _ALLOWANCE)
        return moment

    @property
    def zcdp_rho(self) -> float:
        """Smallest rho of the zCDP that epsilon-DP implies: eps tanh(eps/2).

        Source: log cosh(eps sqrt(w)) is concave in w = (order - 1/2)^2, because its slope eps tanh(y) / (2 sqrt(w)),
        y = eps sqrt(w), falls in w; so the moment is below its tangent at order 1, which is eps tanh(eps/2) times
        order (order - 1). Randomised response attains it as the order tends to 1. It is below eps^2 / 2, the number
        of Bun & Steinke 2016, Proposition 3.3.
        """
        return self.epsilon * math.tanh(0.5 * self.epsilon)

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        """p (1 - e^(eps' - eps)) for 0 <= eps' <= eps."""
        likely = 1.0 / (1.0 + math.exp(-self.epsilon))
        profile = -likely * np.expm1(np.minimum(np.abs(epsilons) - self.epsilon, 0.0))
        return mirrored(epsilons, profile)

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        return Support(-self.epsilon, self.epsilon, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class ZcdpLoss:
    """rho-zCDP: only the moments are bounded, K(x) <= rho x (x + 1); no single pair dominates."""

    rho: float

    pure_epsilon = math.inf
    symmetric = True
    has_pair = False

    def log_moment(self, tilts: Array) -> Array:
        moment: Array = self.rho * tilts * (tilts + 1.0) * (1.0 + 1e-15)
        return moment

    def excess(self, epsilons: Array, *, remove: bool = True) -> Array:
        raise Unsupported("zCDP bounds moments; no pair of distributions stands for it")

    def support(self, log_mass: float, *, remove: bool = True) -> Support:
        raise Unsupported("zCDP bounds moments; no pair of distributions stands for it")
