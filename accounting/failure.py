"""Steps that may fail outright: the deltas of (epsilon, delta)-DP guarantees in a composition.

Every (epsilon, delta)-DP step is dominated by a step that reveals everything with probability delta and otherwise is
randomised response, independently of all other steps. Let f be the probability that some step fails. Then

    delta(eps) = f + (1 - f) delta_rest(eps),     f = 1 - prod (1 - delta_i)^count_i,

where the rest are the randomised responses and all other steps (Kairouz, Oh & Viswanath 2015, Theorem 3.3, whose
composition of equal steps this is; Murtagh & Vadhan 2016, Theorem 1.5, for different ones).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.intervals import Interval

#: A relative allowance: the sums and the functions below are wrong by a few units in the last place.
_ALLOWANCE = 4e-15


@dataclass(frozen=True, slots=True)
class Failure:
    """The probability that some step fails, as an interval.

    Guarantees: interval_contains_the_probability; one_step_is_exact: so that a guarantee is found at its own delta.

    >>> Failure.of([(1e-5, 1)])
    Failure(lower=1e-05, upper=1e-05)
    """

    lower: float = 0.0
    upper: float = 0.0

    @classmethod
    def of(cls, steps: Sequence[tuple[float, int]]) -> Failure:
        """Bound the failure of steps, each given as (delta, count)."""
        failing = [(delta, count) for delta, count in steps if delta > 0.0]
        if not failing:
            return cls()
        if any(delta == 1.0 for delta, _ in failing):
            return cls(1.0, 1.0)
        if len(failing) == 1 and failing[0][1] == 1:
            return cls(failing[0][0], failing[0][0])
        probability = -math.expm1(math.fsum(count * math.log1p(-delta) for delta, count in failing))
        return cls(probability * (1.0 - _ALLOWANCE), min(1.0, probability * (1.0 + _ALLOWANCE)))

    def left_of(self, delta: float) -> tuple[float, float]:
        """Bound the part of ``delta`` < 1 that is left for the rest: at most 1, and negative if nothing is left."""
        if self.upper == 0.0:
            return delta, delta
        bounds = []
        for failure, outward in ((self.upper, -_ALLOWANCE), (self.lower, _ALLOWANCE)):
            left = (delta - failure) / (1.0 - failure) if failure < 1.0 else -1.0
            bounds.append(min(1.0, left + abs(left) * outward))
        return bounds[0], bounds[1]

    def with_rest(self, rest: Interval) -> Interval:
        """Return the total delta from the delta given that no step fails."""
        if self.upper == 0.0:
            return rest
        lower = (self.lower + (1.0 - self.lower) * rest.lower) * (1.0 - _ALLOWANCE)
        upper = min(1.0, (self.upper + (1.0 - self.upper) * rest.upper) * (1.0 + _ALLOWANCE))
        if rest.upper == 0.0:
            lower, upper = self.lower, self.upper
        estimate = self.upper + (1.0 - self.upper) * rest.estimate
        return Interval(lower, min(max(estimate, lower), upper), upper)
