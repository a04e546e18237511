"""This module reads delta and epsilon, with bounds on both sides, from a tilted law on a lattice window.

`convolution` explains each term; this module evaluates them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accounting.intervals import Bounds

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LoweringTerms:
    """A bound on how much rounding to the lattice can have raised the profile.

    Attributes:
        eta: Volatility that bounds all roundings together.
        kappa: Distance beyond which the sum of roundings lies with negligible probability.
        usable: Whether the bound is worth evaluating; without it the lower bound is 0.
    """

    eta: float
    kappa: float
    usable: bool

    @property
    def reach(self) -> float:
        """Distance from eps beyond which the bound's kernel is below e^-50."""
        return self.kappa + 10.0 * self.eta

    def kernel(self, distances: Array) -> Array:
        """Return an upper bound of b(y - d) over all |d| <= kappa, at each distance y, where b(y) = eta phi(y/eta)
        e^(-y/2).

        Each factor of b is bounded by itself.
        """
        nearest = np.maximum(np.abs(distances) - self.kappa, 0.0)
        exponent = -0.5 * (nearest / self.eta) ** 2 - 0.5 * (distances - self.kappa)
        kernel: Array = self.eta / math.sqrt(2.0 * math.pi) * np.exp(np.minimum(exponent, 700.0))
        return kernel

    def tail(self, tilt: float) -> float:
        """Return the mass that the kernel leaves out, relative to M(c) e^(-c eps).

        This is the mass of |log X| > kappa and of losses outside the reach.
        """
        eta, kappa = self.eta, self.kappa
        highest = eta * math.exp(0.5 * ((tilt + 0.5) * eta) ** 2)
        escape = 2.0 * math.exp(-0.5 * ((kappa - 0.5 * eta**2) / eta) ** 2)
        return highest * escape + eta * math.exp(-50.0 + (tilt + 0.5) * self.reach + 0.5 * kappa)


@dataclass(frozen=True)
class Line:
    """A composed loss around ``centre``.

    Attributes:
        values: Tilted masses at lattice indices first, first + 1, ...; they are e^(c l - log M(c)) times the masses.
        log_scale: log M(c) - c centre.
        tilts: Other tilts x >= 0 at which ``moments`` holds log M(x), for Chernoff bounds.
        rounding: Bound of the sum of the values' absolute errors.
        infinite_mass, lumped_mass: P-mass sent to +infinity, and P-mass moved up to a lattice's lowest point, of all
            steps together.
    """

    values: Array
    first: int
    step: float
    tilt: float
    centre: float
    log_scale: float
    tilts: Array
    moments: Array
    rounding: float
    infinite_mass: float
    lumped_mass: float
    lowering: LoweringTerms

    @property
    def period(self) -> float:
        return self.values.size * self.step

    @property
    def start(self) -> float:
        return self.first * self.step

    @cached_property
    def _distances(self) -> Array:
        """The distance of each lattice point's loss from the centre."""
        return (self.first + np.arange(self.values.size, dtype=np.float64)) * self.step - self.centre

    @cached_property
    def _upper_sums(self) -> tuple[Array, Array]:
        """Return two arrays of sums from the right: of the untilted masses, and of these masses times e^(centre - l).

        Each array ends with a 0.
        """
        with np.errstate(under="ignore"):
            masses = self.values * np.exp(-self.tilt * self._distances)
            weighted = masses * np.exp(-self._distances)
        upper, lower = (np.append(np.cumsum(part[::-1])[::-1], 0.0) for part in (masses, weighted))
        return upper, lower

    def delta_bounds(self, epsilon: float) -> Bounds:
        """Return bounds of delta(eps) in this direction."""
        raised, terms = self._raised(epsilon)
        upper = min(1.0, raised + math.fsum(terms.values()))
        lowered = self._lowered(epsilon, raised, terms)
        lower = min(upper, max(0.0, lowered))
        budget = {**terms, "lattice": max(0.0, raised - terms["rounding"] - terms["aliasing"] - lower)}
        return Bounds(lower, max(upper, 5e-324), min(max(lower, raised), upper), budget)

    def epsilon_bounds(self, delta: float) -> Bounds:
        """Return bounds of epsilon(delta) in this direction; if it is outside the window, they are wide but sound."""
        low, high = max(0.0, self.start, self.centre - 600.0), min(self.start + 0.75 * self.period, self.centre + 600.0)
        if self._upper(low) <= delta:
            return Bounds(0.0, low, 0.0 if low == 0.0 else low)
        if self._upper(high) > delta:
            return Bounds(0.0, math.inf, math.nan)
        upper = _last_above(lambda x: self._upper(x) > delta, low, high)[1]
        floor = max(0.0, self.start + self.lowering.reach)
        lower = 0.0
        if floor < upper and self._lower(floor) > delta:
            lower = _last_above(lambda x: self._lower(x) > delta, floor, upper)[0]
        raised, terms = self._raised(upper)
        # The slope turns a term in delta into one in epsilon; no term is wider than the interval.
        slope = max(raised * 1e-3, self._slope(upper), 5e-324)
        budget = {name: min(term / slope, upper - lower) for name, term in terms.items()}
        estimate = max(lower, upper - math.fsum(budget.values()))
        budget["lattice"] = max(0.0, estimate - lower)
        return Bounds(lower, upper, estimate, budget)

    def _upper(self, epsilon: float) -> float:
        raised, terms = self._raised(epsilon)
        total = raised + math.fsum(terms.values())
        # Far from the centre the weights overflow. A term that cannot be computed counts as infinite.
        return total if math.isfinite(total) else math.inf

    def _lower(self, epsilon: float) -> float:
        return self._lowered(epsilon, *self._raised(epsilon))

    def _slope(self, epsilon: float) -> float:
        """Return -d delta / d eps of the computed profile: e^eps Q(L > eps)."""
        index = self._index(epsilon)
        return math.exp(self.log_scale) * float(self._upper_sums[1][index]) * math.exp(epsilon - self.centre)

    def _index(self, epsilon: float) -> int:
        """Return the position of the first lattice point above eps."""
        return min(max(math.floor(epsilon / self.step) + 1 - self.first, 0), self.values.size)

    def _raised(self, epsilon: float) -> tuple[float, dict[str, float]]:
        """Return the computed profile of the rounded law, and the amount to add so that the sum is above the true
        profile.
        """
        index = self._index(epsilon)
        mass, weighted = float(self._upper_sums[0][index]), float(self._upper_sums[1][index])
        weighted *= math.exp(epsilon - self.centre)
        scale = math.exp(self.log_scale)
        raised = scale * (mass - weighted)
        kernel = math.exp(-self.tilt * math.log1p(1.0 / self.tilt) - math.log1p(self.tilt))
        spread = math.exp(-self.tilt * (epsilon - self.centre))
        summation = 4.0 * 2.0**-53 * math.sqrt(self.values.size) + self.rounding * 1e-3
        rounding = scale * (self.rounding * kernel * spread + summation * (abs(mass) + abs(weighted)))
        return raised, {
            "rounding": rounding,
            "aliasing": self._beyond_window(),
            "truncation": self.infinite_mass,
        }

    def _lowered(self, epsilon: float, raised: float, terms: dict[str, float]) -> float:
        if not self.lowering.usable or epsilon < self.start + self.lowering.reach:
            return 0.0
        scale = math.exp(self.log_scale)
        left, right = self._index(epsilon - self.lowering.reach), self._index(epsilon + self.lowering.reach)
        near = self._distances[left:right]
        masses = self.values[left:right] * np.exp(-self.tilt * near)
        kernel = self.lowering.kernel(near - (epsilon - self.centre))
        spread = math.exp(-self.tilt * (epsilon - self.centre))
        highest = float(kernel.max(initial=0.0)) * math.exp(self.tilt * self.lowering.reach)
        lattice = float(masses @ kernel) + spread * (self.lowering.tail(self.tilt) + self.rounding * highest)
        return raised - terms["rounding"] - scale * lattice - self.lumped_mass - self._aliases(epsilon)

    def _beyond_window(self) -> float:
        """Return P(rounded loss > end of the window), by Chernoff."""
        right = self.tilts > self.tilt
        end = self.start + self.period
        exponents = self.moments[right] - self.tilts[right] * end
        return math.exp(min(0.0, float(np.min(exponents))))

    def _aliases(self, epsilon: float) -> float:
        """Bound the mass that folding can have added to delta(eps) from both sides, by Chernoff and a geometric
        series."""
        total = 0.0
        for side in (self.tilts > self.tilt, self.tilts < self.tilt):
            gap = np.abs(self.tilts[side] - self.tilt) * self.period
            exponents = self.moments[side] - self.tilts[side] * epsilon
            with np.errstate(over="ignore"):
                logs = exponents - gap - np.log(-np.expm1(-gap))
            total += math.exp(min(700.0, float(np.min(logs))))
        return total


def _last_above(above: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return two neighbouring numbers, at most 1e-13 apart relatively. ``above`` is true at the first and false at
    the second.
    """
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if above(middle) else (low, middle)
    return low, high
