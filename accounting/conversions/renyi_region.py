"""This module finds every attack that bounds of Renyi divergences leave possible. It converts zCDP and Renyi DP
exactly.

Theorem. Let a guarantee bound the divergences of some orders, in both directions. The pairs (fpr, tpr) that tests of
neighbours can have are exactly those whose two-outcome laws obey the same bounds. Proof. A test is post-processing, so
its pair of laws obeys the bounds. Conversely a mechanism that releases one bit with these laws obeys them, and reading
the bit is the test. (Riess, Gomez, Calmon, Schnabel & Kaissis 2026 prove it for all orders; Asoodeh et al. 2020 have
the case of one order; Zhu, Dong & Wang 2022, appendix F.3, conjectured it.)

So epsilon, delta and the true positive rate are maxima over two numbers, and they are attained. Leaving out bounds can
only enlarge a maximum. The search therefore begins with a few orders and adds those that its result violates. Every
intermediate answer is sound, and the last one is tight.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import scipy

from accounting.conversions.rounding import as_probability, enlarged
from accounting.conversions.two_outcome import divergences, log_probability
from accounting.errors import Unreachable

#: The bounds are relaxed by this relative amount, which covers the error of `two_outcome.divergence`.
_RELAXATION = 1e-13
#: An allowance for the errors of the root and of the maximum, relative to the log-ratio at which the maximum is taken.
_LOG_RATIO_ALLOWANCE = 1e-12
#: The relative error of a log-ratio that a search found.
_NOISE = 1e-13
_GOLDEN = 0.5 * (math.sqrt(5.0) - 1.0)
#: Smallest log-odds that are tried: probabilities below 1e-323 vanish.
_SMALLEST_LOG_ODDS = -744.0
_MOST_ROUNDS = 16
#: A log-ratio far larger than any bound allows. A search that reaches it is stopped, because it would never end.
_LARGEST_LOG_RATIO = 1e100
_TILTS_AT_A_TIME = 4


class DivergenceBounds(Protocol):
    """Bounds of Renyi divergences in both directions, by tilt = order - 1."""

    def bound(self, tilt: float) -> float:
        """Return the bound on the divergence of order tilt + 1; it is positive."""

    def seed(self, *, delta: float | None = None, epsilon: float = 0.0) -> float:
        """Return the tilt with which the search begins: the one whose single-order conversion is best at this delta
        or epsilon.
        """

    def most_violated(self, excess: Callable[[float], float]) -> float:
        """Return the tilt at which ``excess`` is largest, among those with a bound."""


@dataclass(frozen=True)
class TwoOutcomePair:
    """Laws on two outcomes: p = 1 / (1 + e^-log_odds) and q = p e^-log_ratio."""

    log_odds: float
    log_ratio: float


#: A value and the size of its numerical noise.
Noisy = tuple[float, float]


class RenyiRegion:
    """The tests that the bounds leave possible.

    Guarantees: bounds_every_test; attained_by_a_bit (up to 1e-9, relatively).
    """

    def __init__(self, bounds: DivergenceBounds) -> None:
        self._bounds = bounds
        self._tilts = [bounds.seed()]
        self._near = 1.0  # The log-ratio that was found last, from which the next search starts.
        self._top = self._symmetric_log_odds()

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at ``delta``, rounded up: max of log((p - delta) / q) over the region.

        Raises:
            Unreachable: If delta is 0 and no epsilon is finite.
        """
        if delta <= 0.0:
            raise Unreachable(
                "bounds of Renyi divergences of finite orders leave the privacy loss unbounded, so no finite epsilon "
                "exists at delta 0; give a positive delta",
                pointer=("to", "delta"),
            )
        if delta >= self.advantage:
            return 0.0
        pair = self.attaining_pair_at_delta(delta)
        value = pair.log_ratio + _log_share_above(delta, pair.log_odds)
        return max(0.0, enlarged(value, pair.log_ratio))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at ``epsilon`` >= 0, rounded up: max of p - e^epsilon q over the region."""
        if epsilon == 0.0:
            return self.advantage

        def gain(pair: TwoOutcomePair) -> Noisy:
            p, ratio = math.exp(log_probability(pair.log_odds)), min(epsilon - pair.log_ratio, 700.0)
            return -p * math.expm1(ratio), _NOISE * pair.log_ratio * p * math.exp(ratio)

        self._tilts.append(self._bounds.seed(epsilon=epsilon))
        pair = self._best(gain, _SMALLEST_LOG_ODDS, self._top)
        return as_probability(enlarged(max(0.0, gain(pair)[0])))

    def true_positive_rate(self, fpr: float) -> float:
        """Return the largest true positive rate at ``fpr``, rounded up."""
        if fpr in {0.0, 1.0}:
            return fpr
        # The complement of the pair has p = 1 - fpr, and its q is the smallest that the bounds allow.
        log_odds = math.log1p(-fpr) - math.log(fpr)
        pair = self._tightened(lambda: TwoOutcomePair(log_odds, self._log_ratio(log_odds)))
        return as_probability(enlarged(fpr * math.exp(-pair.log_ratio) - math.expm1(-pair.log_ratio)))

    @property
    def advantage(self) -> float:
        """The largest tpr - fpr, rounded up. By convexity and symmetry, a randomised response attains it."""
        return as_probability(enlarged(math.tanh(0.5 * self._top)))

    def attaining_pair_at_delta(self, delta: float) -> TwoOutcomePair:
        """Return the two laws that cost most epsilon at 0 < ``delta`` < advantage."""

        def cost(pair: TwoOutcomePair) -> Noisy:
            return pair.log_ratio + _log_share_above(delta, pair.log_odds), _NOISE * pair.log_ratio

        self._tilts.append(self._bounds.seed(delta=delta))
        return self._best(cost, math.log(delta) - math.log1p(-delta), self._top)

    def _best(self, value: Callable[[TwoOutcomePair], Noisy], low: float, high: float) -> TwoOutcomePair:
        """Return the pair with the largest ``value`` for log-odds in (low, high). The value is quasi-concave on the
        boundary.
        """

        def search(precision: float) -> TwoOutcomePair:
            found = _golden_section(
                lambda log_odds: value(TwoOutcomePair(log_odds, self._log_ratio(log_odds))), low, high, precision
            )
            return TwoOutcomePair(found, self._log_ratio(found))

        self._tightened(lambda: search(1e-7), 1e-5)
        return self._tightened(lambda: search(1e-13))

    def _tightened(self, search: Callable[[], TwoOutcomePair], tolerance: float = 1e-10) -> TwoOutcomePair:
        """Return the result of ``search``, repeated until it violates no order. Before each repetition, the order
        that the result violates most is added.
        """
        for _ in range(_MOST_ROUNDS):
            pair = search()
            excess = self._excess(pair)
            worst = self._bounds.most_violated(excess)
            if excess(worst) <= tolerance:
                break
            self._tilts = [*self._tilts[1 - _TILTS_AT_A_TIME :], worst]
        return pair

    def _excess(self, pair: TwoOutcomePair) -> Callable[[float], float]:
        """Return the share by which the pair's divergence exceeds its bound, for each tilt."""
        divergence = divergences(pair.log_odds, pair.log_ratio)
        return lambda tilt: divergence(tilt) / (self._bounds.bound(tilt) * (1.0 + _RELAXATION)) - 1.0

    def _log_ratio(self, log_odds: float) -> float:
        """Return the largest log-ratio that the chosen orders allow at ``log_odds``, rounded up."""
        self._near = self._root(lambda log_ratio: TwoOutcomePair(log_odds, log_ratio))
        return self._near * (1.0 + _LOG_RATIO_ALLOWANCE)

    def _symmetric_log_odds(self) -> float:
        """Return the log-odds of the largest randomised response within the bounds. It has p = 1 - q, so its log-odds
        and its log-ratio are equal.
        """

        def search() -> TwoOutcomePair:
            self._near = self._root(lambda size: TwoOutcomePair(size, size))
            return TwoOutcomePair(self._near, self._near)

        return self._tightened(search).log_odds * (1.0 + _LOG_RATIO_ALLOWANCE)

    def _root(self, pair: Callable[[float], TwoOutcomePair]) -> float:
        return _increasing_root(lambda size: max(map(self._excess(pair(size)), self._tilts)), self._near)


def _log_share_above(delta: float, log_odds: float) -> float:
    """Return log((p - delta) / p), where p has these log-odds."""
    share = math.exp(math.log(delta) - log_probability(log_odds))
    return math.log1p(-share) if share < 1.0 else -math.inf


def _increasing_root(function: Callable[[float], float], guess: float) -> float:
    """Find where an increasing function of a positive number crosses 0, to machine precision.

    The search begins at ``guess``, which may be any positive number.
    """
    low = high = guess
    step = 1.01
    while function(high) < 0.0 and high < _LARGEST_LOG_RATIO:
        low, high, step = high, high * step, step * step
    step = 1.01
    while function(low) > 0.0:
        low, high, step = low / step, low, step * step
    if low == high:
        return low
    return float(scipy.optimize.brentq(function, low, high, xtol=1e-300, rtol=4.0 * 2.0**-52, maxiter=1000))


def _golden_section(function: Callable[[float], Noisy], low: float, high: float, precision: float) -> float:
    """Find where a unimodal function is largest, to ``precision`` of the interval's size.

    If two values differ by no more than the noise, the left one is preferred: plateaus occur only where p is 1 to
    machine precision.
    """
    width = precision * max(1.0, high - low)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > width and low < left < right < high:
        if at_right[0] <= at_left[0] + at_left[1]:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return max((at_left[0], left), (at_right[0], right))[1]
