"""Epsilon or delta as the unknown: the certified upper end of one at the given value of the other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.errors import Unreachable
from accounting.events import Event
from accounting.relations import NeighboringRelation
from accounting.solve.solution import Solution


def solve_epsilon(events: Sequence[Event], relation: NeighboringRelation, delta: float) -> Solution:
    """Return the smallest epsilon that is certified at delta.

    Guarantees: is_the_certified_upper_end: the list is (value, delta)-DP, and value is what a ledger would charge.

    Raises:
        InvalidValue: If delta is not in [0, 1].
        Unreachable: If no finite epsilon is known at this delta.

    >>> from accounting.events import Gaussian
    >>> found = solve_epsilon([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-5)
    >>> round(found.value, 6)
    4.377178
    """
    answer = epsilon_for_delta(events, relation, delta)
    if math.isinf(answer.value.upper):
        raise Unreachable(f"no finite epsilon at delta {delta:g}: {' '.join(answer.warnings)}")
    return Solution(answer.value.upper, answer)


def solve_delta(events: Sequence[Event], relation: NeighboringRelation, epsilon: float) -> Solution:
    """Return the smallest delta that is certified at epsilon.

    Guarantees: is_the_certified_upper_end: the list is (epsilon, value)-DP.

    Raises:
        InvalidValue: If epsilon is not in [0, 1e15].

    >>> from accounting.events import Gaussian
    >>> found = solve_delta([Event(Gaussian(1.0))], NeighboringRelation.ADD_OR_REMOVE_ONE, 0.0)
    >>> round(found.value, 9)
    0.382924923
    """
    answer = delta_for_epsilon(events, relation, epsilon)
    return Solution(answer.value.upper, answer)
