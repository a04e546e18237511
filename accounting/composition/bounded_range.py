"""What equal steps of bounded range cost, adaptive ones too: from below by what is attained, from above by recursion.

A step's pair has the losses t and t - eps, t with P-mass p_t = (e^eps - e^t) / (e^eps - 1), for some t in [0, eps]
(`accounting.losses.exponential`); every t is attained, in the limit.

* From below: T steps with one t are a binomial sum, and any t will do. (Dong, Durfee & Rogers 2020: of steps that are
  fixed in advance one common t is the worst.)
* Where t may depend on what was seen, k steps cost D_k(x) at x, the largest delta of all ways to choose it,

      D_0(x) = (1 - e^x)_+,     D_k(x) = sup over t of p_t D_(k-1)(x - t) + (1 - p_t) D_(k-1)(x - t + eps),

  since the rest of a list, given its first output of loss L, costs D_(k-1)(x - L), which is convex in e^-L = dQ/dP, so
  that its mean is largest where all mass is at the ends of an interval of losses of length eps (same source).

On a lattice that divides eps the t of the lattice alone give a number that is attained. From above: D_k falls with x
and is convex in e^x, a mean of such functions being one and a largest one of such being one. For t between two points
of the lattice, with v = e^-t: both D's are below their chords in v, and p_t, which is concave in v, is below its
tangent in the middle. So the mean is below a quadratic polynomial in v, and that is below the larger one of its values
at the ends and, where it is concave, a quarter of its leading coefficient (v running from 0 to 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from accounting.composition.composition import Composition
from accounting.intervals import Bounds
from accounting.losses.exponential import BoundedRangeLoss

Array = NDArray[np.float64]

#: Steps whose outcomes are counted, and values of t that are tried at once.
_MOST_STEPS, _TRIED = 4096, 41
#: Relative; covers the rounding of binomial terms.
_ALLOWANCE = 1e-9
_BISECTIONS = 60
#: Parts of eps on the lattice, and what the recursion may cost: parts times steps, squared.
_FINEST, _COARSEST, _WORK = 300, 6, 2e7
#: Sum of the epsilons up to which e^x is no problem.
_LARGEST = 300.0
#: Relative; covers some ten roundings at each step.
_ROUNDING = 1e-9
#: Of a step of the lattice: how far short of an estimated place one is tried that should still be attained.
_SHORT_OF = 0.01
METHOD = "bounded_range_recursion"
#: Log-odds of the t that are tried.
_FARTHEST = 14.0


@dataclass(frozen=True, slots=True)
class EqualSteps:
    """Steps of one bounded range.

    Attributes:
        size: eps.
        count: T.
    """

    size: float
    count: int

    def epsilon(self, delta: float) -> Bounds:
        """Guarantees: interval_contains_truth."""
        lower = max(self._binomial_epsilon(delta), self._attained_epsilon(delta))
        return Bounds(lower, max(lower, self._proved_epsilon(delta)), method=METHOD)

    def delta(self, epsilon: float) -> Bounds:
        """Guarantees: interval_contains_truth."""
        lower = max(self._binomial_delta(epsilon), self._attained_delta(epsilon))
        return Bounds(lower, max(lower, self._proved_delta(epsilon)), method=METHOD)

    def _binomial_epsilon(self, delta: float) -> float:
        low, high = 0.0, self.size * self.count
        if self._binomial_delta(low) <= delta:
            return 0.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._binomial_delta(middle) > delta else (low, middle)
        return low

    def _binomial_delta(self, epsilon: float) -> float:
        if self.count > _MOST_STEPS:
            return 0.0
        # Close to both ends at every scale: log-odds of t / eps.
        left, right, best = -_FARTHEST, _FARTHEST, 0.0
        for _ in range(2):
            odds = np.linspace(left, right, _TRIED)
            deltas = self._binomial(self.size * scipy.special.expit(odds), epsilon)
            at = int(np.argmax(deltas))
            best = max(best, float(deltas[at]))
            left, right = odds[max(at - 1, 0)], odds[min(at + 1, _TRIED - 1)]
        # Terms are exponentials of what may be as large as the sum of all epsilons.
        return best * max(0.0, 1.0 - _ALLOWANCE - 2.0**-50 * self.size * self.count)

    def _attained_epsilon(self, delta: float) -> float:
        """Return an epsilon that is attained: the larger of two, at a point of the lattice and between two points."""
        if self.parts is None:
            return 0.0
        places, deltas = _from_below(self.size, self.count, self.parts, 0.0)
        last = int(np.count_nonzero(deltas > delta)) - 1
        if last < 0 or places[last] < 0.0 or deltas[last + 1] <= 0.0:
            return max(0.0, float(places[last])) if last >= 0 else 0.0
        share = math.log(deltas[last] / delta) / math.log(deltas[last] / deltas[last + 1])
        offset = max(0.0, share - _SHORT_OF) * self.size / self.parts
        between = _from_below(self.size, self.count, self.parts, offset)[1][last] > delta
        return float(places[last] + offset * between)

    def _attained_delta(self, epsilon: float) -> float:
        if self.parts is None or epsilon >= self.size * self.count:
            return 0.0
        step = self.size / self.parts
        offset = epsilon - math.floor(epsilon / step) * step
        places, deltas = _from_below(self.size, self.count, self.parts, offset)
        # At this place or the next one, as the rounding of the places has it.
        return float(deltas[int(np.argmax(places >= epsilon))])

    def _proved_epsilon(self, delta: float) -> float:
        if self.parts is None:
            return math.inf
        places, deltas = _from_above(self.size, self.count, self.parts)
        if deltas[-1] > delta:
            return self.size * self.count * (1.0 + _ROUNDING)
        after = int(np.argmax(deltas <= delta))
        if places[after] <= 0.0:
            return 0.0
        # Below the chord in e^x.
        share = (deltas[after - 1] - delta) / (deltas[after - 1] - deltas[after])
        step = math.expm1(places[after] - places[after - 1])
        return float(places[after - 1] + math.log1p(share * step)) * (1.0 + _ROUNDING) + _ROUNDING * step

    def _proved_delta(self, epsilon: float) -> float:
        if self.parts is None:
            return 1.0
        places, deltas = _from_above(self.size, self.count, self.parts)
        before = min(max(int(np.searchsorted(places, epsilon, side="right")) - 1, 0), places.size - 2)
        # The chord in e^x, from differences: however small eps is, neighbours do not fall together.
        share = math.expm1(epsilon - places[before]) / math.expm1(places[before + 1] - places[before])
        chord = deltas[before] + max(share - _ROUNDING, 0.0) * (deltas[before + 1] - deltas[before])
        return min(1.0, float(chord) * (1.0 + _ROUNDING))

    @property
    def parts(self) -> int | None:
        """How many lattice steps eps is divided into; None where the recursion would take too long."""
        parts = min(_FINEST, int(math.sqrt(_WORK) / self.count))
        return parts if parts >= _COARSEST and self.size * self.count <= _LARGEST else None

    def _binomial(self, places: Array, epsilon: float) -> Array:
        """delta of T steps with each t."""
        j = np.arange(self.count + 1.0)
        chosen = (
            scipy.special.gammaln(self.count + 1.0)
            - scipy.special.gammaln(j + 1.0)
            - scipy.special.gammaln(self.count - j + 1.0)
        )
        whole = _log_expm1(np.array([self.size]))
        # p_t = (e^eps - e^t) / (e^eps - 1), and what is left of 1.
        log_likely, log_unlikely = places + _log_expm1(self.size - places) - whole, _log_expm1(places) - whole
        log_unlikely = log_unlikely[:, None]
        logs = chosen + (self.count - j) * log_likely[:, None] + j * log_unlikely
        gains = -np.expm1(np.minimum(epsilon - (self.count * places[:, None] - j * self.size), 0.0))
        deltas: Array = (np.exp(logs) * gains).sum(axis=1)
        return deltas


def _lattice(size: float, count: int, parts: int, offset: float) -> tuple[Array, Array, Array]:
    """x from -T eps to T eps, D_0 there, and 1 - e^x further left, where no loss is as small."""
    last, step = count * parts, size / parts
    places = np.arange(-last - parts, last + 1, dtype=np.float64) * np.float64(step) + offset
    start: Array = np.maximum(-np.expm1(places), 0.0)
    return places[parts:], start[parts:], start[:parts]


@lru_cache(maxsize=32)
def _from_below(size: float, count: int, parts: int, offset: float) -> tuple[Array, Array]:
    """(x, what is attained of D_T(x))."""
    places, deltas, beyond = _lattice(size, count, parts, offset)
    masses = np.expm1(size * np.arange(parts, -1, -1) / parts) * np.exp(size * np.arange(parts + 1) / parts)
    masses = masses / math.expm1(size)
    for _ in range(count):
        padded = np.concatenate([beyond, deltas, np.zeros(parts)])
        best = np.zeros_like(deltas)
        for i, mass in enumerate(masses.tolist()):
            near, far = padded[parts - i : parts - i + deltas.size], padded[2 * parts - i : 2 * parts - i + deltas.size]
            np.maximum(best, far + mass * (near - far), out=best)
        deltas = best * (1.0 - _ROUNDING / count)
    return places, deltas


@lru_cache(maxsize=32)
def _from_above(size: float, count: int, parts: int) -> tuple[Array, Array]:
    """(x, bounds of D_T(x))."""
    places, deltas, beyond = _lattice(size, count, parts, 0.0)
    # p = (1 - e^-eps / v) / (1 - e^-eps) in the middle of each piece, and its change over the piece along the tangent;
    # from differences that keep their digits however small eps is.
    starts, step = size * np.arange(parts) / parts, size / parts
    middle = math.log1p(0.5 * math.expm1(-step))
    masses = -np.expm1(-(size * np.arange(parts, 0, -1) / parts) - middle) / -math.expm1(-size)
    slopes = math.expm1(-step) * np.exp(starts - 2.0 * middle) / math.expm1(size)
    for _ in range(count):
        padded = np.concatenate([beyond, deltas, np.zeros(parts)])
        worst = np.zeros_like(deltas)
        # D at x - t + eps, and how much larger it is at x - t, at one end of a piece and at the other.
        far = padded[2 * parts : 2 * parts + deltas.size]
        gap = np.maximum(padded[parts : parts + deltas.size] - far, 0.0)
        for i, (mass, slope) in enumerate(zip(masses.tolist(), slopes.tolist(), strict=True), 1):
            next_far = padded[2 * parts - i : 2 * parts - i + deltas.size]
            next_gap = np.maximum(padded[parts - i : parts - i + deltas.size] - next_far, 0.0)
            ends = np.maximum(far + (mass - 0.5 * slope) * gap, next_far + (mass + 0.5 * slope) * next_gap)
            np.maximum(worst, ends + 0.25 * np.maximum(slope * (gap - next_gap), 0.0), out=worst)
            far, gap = next_far, next_gap
        deltas = worst * (1.0 + _ROUNDING / count)
    return places, deltas


def equal_steps(composition: Composition) -> EqualSteps | None:
    """None where a list is anything else, or one step, which has a closed form.

    >>> from accounting.losses.exponential import BoundedRangeLoss
    >>> equal_steps(Composition(((BoundedRangeLoss(0.5), 4),)))
    EqualSteps(size=0.5, count=4)
    """
    loss, count = composition.steps[0]
    if composition.count == 1 or len(composition.steps) > 1 or not isinstance(loss, BoundedRangeLoss):
        return None
    return EqualSteps(loss.epsilon, count)


def _log_expm1(y: Array) -> Array:
    """log(e^y - 1), y > 0."""
    log: Array = y + np.log(-np.expm1(-y))
    return log
