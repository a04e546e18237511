"""Bounds on how far a list is from the composition that stands for it, if mechanisms are replaced by others near them.

If, for each data set by itself, the outputs are within total variation t of those of a composition with profile delta',
then their own profile satisfies

    delta'(eps) - t (1 + e^eps) <= delta(eps) <= delta'(eps) + t (1 + e^eps),

since P(S) <= P'(S) + t <= e^eps Q'(S) + delta' + t <= e^eps (Q(S) + t) + delta' + t, and the same the other way round.
Steps add up, adaptive ones too: exchange the steps one after the other, given the outputs before each. If both data
sets leave the composition together, in a branch that is seen and has probability t at most, then |delta - delta'| <= t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting.intervals import Interval

#: A relative allowance for the rounding of the sums and of the exponential below.
_ALLOWANCE = 1e-14


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """|delta - delta'| <= fixed + growing e^eps at every eps >= 0.

    Attributes:
        fixed, growing: The two terms, rounded up.

    Guarantees: interval_contains_every_profile_within; discrepancies_add_up_and_round_up.

    >>> Discrepancy.of_total_variation(1e-9, 10).at(0.0) >= 2e-8
    True
    """

    fixed: float = 0.0
    growing: float = 0.0

    @classmethod
    def of_total_variation(cls, distance: float, count: int) -> Discrepancy:
        """Bound the discrepancy of ``count`` steps, each within ``distance`` of its stand-in for each data set."""
        total = min(1.0, count * distance * (1.0 + _ALLOWANCE))
        return cls(total, total)

    @classmethod
    def of_common_branch(cls, probability: float, count: int) -> Discrepancy:
        """Bound the discrepancy of ``count`` steps.

        Each step takes, with ``probability``, a branch that differs from its stand-in; whether it was taken is part of
        the output.
        """
        return cls(min(1.0, count * probability * (1.0 + _ALLOWANCE)), 0.0)

    def __bool__(self) -> bool:
        return self.fixed > 0.0 or self.growing > 0.0

    def plus(self, other: Discrepancy) -> Discrepancy:
        if not (self and other):
            return self or other
        return Discrepancy(
            (self.fixed + other.fixed) * (1.0 + _ALLOWANCE), (self.growing + other.growing) * (1.0 + _ALLOWANCE)
        )

    def at(self, epsilon: float) -> float:
        """Return the largest difference at ``epsilon``, rounded up; inf if the exponential overflows."""
        if self.growing == 0.0:
            return self.fixed
        if epsilon > 700.0:
            return math.inf
        return (self.fixed + self.growing * math.exp(epsilon)) * (1.0 + _ALLOWANCE * (1.0 + epsilon))

    def around(self, delta: Interval, epsilon: float) -> Interval:
        """Return the list's delta from the delta of its stand-in."""
        if not self:
            return delta
        most = self.at(epsilon)
        lower = max(0.0, (delta.lower - most) * (1.0 - _ALLOWANCE))
        upper = min(1.0, (delta.upper + most) * (1.0 + _ALLOWANCE))
        return Interval(min(lower, upper), min(max(delta.estimate, lower), upper), upper)
