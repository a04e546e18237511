"""This module holds the bounds of Renyi divergences that zCDP, truncated zCDP and Renyi DP state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import scipy

from accounting.conversions.single_order import canonne_kamath_steinke

_SMALLEST_TILT = 1e-9
_LARGEST_TILT = 1e12
_SCANNED = 121


@dataclass(frozen=True)
class LinearBounds:
    """The bounds rho a at the orders 1 < a <= omega, which are those of zCDP, or of truncated zCDP if omega is
    finite.
    """

    rho: float
    omega: float = math.inf

    def bound(self, tilt: float) -> float:
        return self.rho * (tilt + 1.0)

    def seed(self, *, delta: float | None = None, epsilon: float = 0.0) -> float:
        # The tilt a minimises (rho a (a + 1) - log(delta)) / a if delta is given, and rho a (a + 1) - a epsilon
        # otherwise.
        tilt = math.sqrt(-math.log(delta) / self.rho) if delta else 0.5 * (epsilon / self.rho - 1.0)
        return min(max(tilt, self._smallest), self._largest)

    def most_violated(self, excess: Callable[[float], float]) -> float:
        low, high = math.log(self._smallest), math.log(self._largest)
        step = (high - low) / (_SCANNED - 1)
        tilts = [math.exp(low + step * index) for index in range(_SCANNED)]
        values = [excess(tilt) for tilt in tilts]
        best = max(range(_SCANNED), key=values.__getitem__)
        interval = (max(low, low + step * (best - 1)), min(high, low + step * (best + 1)))
        found = scipy.optimize.minimize_scalar(
            lambda x: -excess(math.exp(x)), bounds=interval, method="bounded", options={"xatol": 1e-7}
        )
        return max(math.exp(float(found.x)), tilts[best], key=excess)

    @property
    def _smallest(self) -> float:
        # If omega is closer to 1 than the smallest tilt allows, only the order omega itself is tried.
        return min(_SMALLEST_TILT, self._largest)

    @property
    def _largest(self) -> float:
        return min(self.omega - 1.0, _LARGEST_TILT)


@dataclass(frozen=True)
class ListedBounds:
    """Bounds of the divergence at each of several stated orders."""

    orders: tuple[float, ...]
    epsilons: tuple[float, ...]

    def bound(self, tilt: float) -> float:
        return self._by_tilt[tilt]

    def seed(self, *, delta: float | None = None, epsilon: float = 0.0) -> float:
        points = zip(self.orders, self.epsilons, strict=True)
        if delta:
            return min((canonne_kamath_steinke(order, size, delta), order - 1.0) for order, size in points)[1]
        return min(((order - 1.0) * (size - epsilon), order - 1.0) for order, size in points)[1]

    def most_violated(self, excess: Callable[[float], float]) -> float:
        return max(self._by_tilt, key=excess)

    @cached_property
    def _by_tilt(self) -> dict[float, float]:
        return {order - 1.0: size for order, size in zip(self.orders, self.epsilons, strict=True)}
