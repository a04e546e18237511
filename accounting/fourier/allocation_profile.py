"""This module computes the profile of several whole allocations by convolving the density of their loss.

One allocation's loss has a density that is a mixture of normal densities of variance sigma^2 = mu^2 / t (`log_sums`),
tilted or mirrored. Let f_n be the density for n allocations. Then:

* A lattice's sum of f_a(x) f_b(l - x) is f_(a+b)(l), times 1 +- 2.01 e^(-pi^2 sigma^2 / h^2): for two normal densities
  it is a normal density, times the sum of another normal density of variance sigma^2 a b / (a + b) over points h apart.
* delta(eps) is the integral over v of f(eps + log(1 + e^v)) (e^v / (1 + e^v))^2, for which the trapezoid rule
  converges as for a sum of two variables.

All terms are nonnegative, so errors are not magnified. A contour magnifies errors of the density by M(c) e^(-c eps)
over delta, which is in the hundreds if single steps are far out in the tail. The proofs are in
docs/concepts/fourier.md, "Several allocations".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting.fourier.effort import spend
from accounting.fourier.log_interpolation import HALF, interpolated
from accounting.fourier.log_sums import DIGITS, KNOWN, LOG_LEAST, LogSum, log_rise, moved_by, shift_of
from accounting.fourier.steps import UNIT
from accounting.intervals import Bounds

Array = NDArray[np.float64]

#: The least number of lattice points per sigma of one allocation, and, for interpolation, per sigma of all allocations
#: together.
_PER_SIGMA, _PER_LAST = 3.5, 8.0
#: The most points of a lattice that is convolved.
_MOST_POINTS = 15_000
#: A factor that bounds the ratio of a sum over lattice cells to the mass in these cells.
_CELLS = 1.01
#: The log of the mass that is left out at each end of a convolution.
_LOG_LEFT_OUT = -80.0


@dataclass(frozen=True, eq=False)
class _Density:
    """A density at the places (first + i) step, known within bounds, apart from a rest of small mass.

    Attributes:
        rest: A bound of the mass of the rest.
        height: A bound of the rest's density at these places.
    """

    first: int
    low: Array
    high: Array
    rest: float
    height: float


@dataclass(frozen=True, eq=False)
class AllocationProfile:
    """The profile of one direction of n allocations, used as a `profiles.Profile`. ``law`` is the density of their
    loss.

    Attributes:
        rest: A bound of the mass that is missing from the law.
    """

    law: LogSum
    rest: float

    @cached_property
    def _rule(self) -> tuple[float, float]:
        """Return the spacing of the trapezoid rule, and its relative error."""
        shift = shift_of(self.law.sigma)
        moved = moved_by(shift)
        growth = 0.5 * (shift / self.law.sigma) ** 2 + log_rise(self.law, -moved) + 2.0 * moved
        return 2.0 * math.pi * shift / (DIGITS + growth), 2.02 * math.exp(-DIGITS)

    def _terms(self, epsilon: float) -> tuple[Array, Array, Array]:
        """Return three arrays for the nodes v of the rule: log of e^v / (1 + e^v), f times the spacing, and relative
        errors of f.
        """
        spacing = self._rule[0]
        end = float(self.law.logs[-1 - HALF]) - epsilon
        start = float(self.law.logs[HALF]) - epsilon
        last = end if end > 30.0 else math.log(math.expm1(end)) if end > 0.0 else -math.inf
        first = -0.5 * (DIGITS - LOG_LEAST) if start <= 0.0 else math.log(math.expm1(min(start, 600.0)))
        places = np.arange(math.ceil(first / spacing), math.floor(last / spacing) + 1) if last > first else np.empty(0)
        v = spacing * places
        spend(60 * v.size)
        values, errors = interpolated(self.law, self.law.table, epsilon + np.logaddexp(0.0, v))
        return -np.logaddexp(0.0, -v), spacing * values, errors + UNIT * (64.0 + 8.0 * np.abs(v))

    def estimate(self, epsilon: float) -> tuple[float, float]:
        """Return delta, and the rate at which it falls."""
        logs, values, _ = self._terms(epsilon)
        shares = np.exp(logs)
        return float(values @ (shares * shares)), float(values @ (shares * -np.expm1(logs)))

    def delta_bounds(self, epsilon: float) -> Bounds:
        """Return bounds of delta at ``epsilon``.

        Guarantees: delta_within_its_bounds."""
        logs, values, errors = self._terms(epsilon)
        terms = values * np.exp(2.0 * logs)
        delta, wrong = float(terms.sum()), float(terms @ np.minimum(errors, 1.0))
        unknown = errors > KNOWN
        wrong += delta * (self._rule[1] + UNIT * terms.size)
        unsure = 10.0 * float(terms[unknown] @ errors[unknown])
        # Below the first v the integrand is at most the largest density times e^(2v).
        left_out = 10.0 * self.rest + self.law.largest * math.exp(-DIGITS + LOG_LEAST)
        # Nodes at the ends are not interpolated. Over these nodes, the sum of (e^v / (1 + e^v))^2 is at most one term
        # plus its integral over v, which is at most the length in l.
        heights = self.law.density * (1.0 + self.law.errors)
        highest = float(heights[: HALF + 1].max() + heights[-1 - HALF :].max())
        left_out += _CELLS * highest * (HALF * self.law.step + self._rule[0])
        lower, upper = max(delta - wrong - unsure, 0.0), delta + wrong + unsure + left_out
        budget = {"density": 2.0 * wrong, "left_out": 2.0 * unsure + left_out}
        return Bounds(lower, min(upper, 1.0), min(delta, 1.0), budget)


@lru_cache(maxsize=32)
def allocation_profile(law: LogSum, count: int, *, remove: bool) -> AllocationProfile | None:
    """Return the profile of ``count`` allocations; None if it would take too many points.

    Args:
        law: The law of the sum of the ratios of one allocation.
        count: The number n.
        remove: The direction.
    """
    bins = law.count
    finest = law.sigma * min(1.0 / _PER_SIGMA, math.sqrt(count) / _PER_LAST)
    stride = max(1, math.floor(finest / law.step))
    step = stride * law.step
    # The places are multiples of the step, so that sums of losses are on the lattice, too. log t is subtracted because
    # the allocation's ratio is a mean of t ratios.
    places = slice(-law.first % stride, None, stride)
    density, errors, logs = law.density[places], law.errors[places], law.logs[places]
    means = logs - math.log(bins)
    density = density * np.exp(means) if remove else density
    errors = errors + 16.0 * UNIT * (1.0 + np.abs(logs))
    known = errors < 1.0
    unknown = _CELLS * step * float((density * (1.0 + errors))[~known].sum())
    if not np.allclose(np.diff(logs[known]), step):
        return None
    density, errors, logs = density[known], errors[known], logs[known]
    high, low = density * (1.0 + errors), density * (1.0 - errors)
    first = round(logs[0] / step)
    if not remove:
        first, high, low = -(first + high.size - 1), high[::-1], low[::-1]
    sign = 1.0 if remove else -1.0
    one = _Density(first, low, high, 2.0 * math.exp(law.log_above) + unknown, 0.0)
    largest = law.largest * 1.0001
    power: _Density | None = None
    remaining = count
    while True:
        if remaining & 1:
            power = one if power is None else _convolved(power, one, step, largest)
        remaining >>= 1
        if not remaining:
            break
        one = _convolved(one, one, step, largest)
        if one.high.size > _MOST_POINTS:
            return None
    assert power is not None
    middle = 0.5 * (power.low + power.high)
    wrong = 0.5 * (power.high - power.low) / middle + power.height / middle
    wrong += count * 2.02 * math.exp(-((math.pi * law.sigma / step) ** 2)) + 8.0 * UNIT
    sigma = law.sigma * math.sqrt(count)
    offset = sign * count * math.log(bins)
    whole = _Shifted(sigma, 1, power.first, step, middle, wrong, 0.0, 0.0, law.log_above, offset=offset)
    return AllocationProfile(whole, power.rest)


@dataclass(frozen=True, eq=False)
class _Shifted(LogSum):
    """A density whose lattice is shifted by an offset.

    Attributes:
        offset: The number that is subtracted from its places.
    """

    offset: float = 0.0

    @cached_property
    def logs(self) -> Array:
        return self.step * np.arange(self.first, self.first + self.density.size, dtype=np.float64) - self.offset


def _convolved(left: _Density, right: _Density, step: float, largest: float) -> _Density:
    """Return the density of a sum of two independent losses.

    Args:
        largest: A bound of either density.
    """
    spend(4 * left.high.size * right.high.size)
    rounding = 2.0 * UNIT * (min(left.high.size, right.high.size) + 4.0)
    high = step * np.convolve(left.high, right.high) * (1.0 + rounding)
    low = step * np.convolve(left.low, right.low) * (1.0 - rounding)
    rest = left.rest + right.rest + left.rest * right.rest
    height = 1.01 * largest * rest + left.height * (1.0 + right.rest) + right.height * (1.0 + left.rest)
    negligible = math.exp(_LOG_LEFT_OUT)
    start = int(np.searchsorted(step * np.cumsum(high), negligible))
    end = high.size - int(np.searchsorted(step * np.cumsum(high[::-1]), negligible))
    return _Density(left.first + right.first + start, low[start:end], high[start:end], rest + 2.0 * negligible, height)
