"""A second opinion on a certified interval: the number of dp-accounting's PLD, and whether it agrees.

Its number is an upper bound on a lattice, computed in double precision. Two allowances say how far it may be from the
truth:

* rounding: its transforms may put delta `REFEREE_ALLOWANCE` too low or too high; in epsilon, the allowance is divided
  by the slope of the number's own curve. If delta is not far above the allowance, there is no opinion.
* discretization: connect-the-dots splits each step's loss between two lattice points h apart, which keeps both laws'
  masses and adds a variance of h^2/4 at most. At a slope c of -log delta that is a factor e^(v c (c+1)/2), v = n h^2/4,
  of delta, or v (c+1)/2 of epsilon; twice that, and one h, are allowed. Stated guarantees and random answers are
  rounded up by h in each step.

The allowances are estimates from the curve's own slope. They decide only whether the answer says that the two agree.
They never change the interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.dp_accounting_adapter import (
    REFEREE_ALLOWANCE,
    Distribution,
    check_referee,
    referee_distribution,
)
from accounting.events import ApproximateDp, Event, PureDp, RandomizedResponse
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation

MIN_INTERVAL, MAX_INTERVAL = 1e-5, 1e-2
#: The epsilon beyond which e^epsilon overflows, and dp-accounting's sums mean nothing.
MAX_EPSILON = 700.0


@dataclass(frozen=True, slots=True)
class Opinion:
    """dp-accounting's number, an epsilon or a delta, and its possible distance from the truth, in the same unit.

    Attributes:
        value: dp-accounting's pessimistic epsilon or delta; inf if it finds none.
        rounding: The allowance for its floating point, in either direction; inf if rounding hides the answer.
        discretization: The allowance for its lattice, upwards.
    """

    value: float
    rounding: float
    discretization: float

    def position(self, interval: Interval) -> str:
        """Return ``"below"``, ``"within"`` or ``"above"`` the interval.

        >>> Opinion(1.2, 0.0, 0.0).position(Interval(1.0, 1.0, 1.1))
        'above'
        """
        if self.value < interval.lower:
            return "below"
        return "above" if self.value > interval.upper else "within"

    def agrees(self, interval: Interval) -> bool | None:
        """Return whether the number could be a pessimistic account of the same truth; None if this cannot be decided.

        >>> [Opinion(x, 0.01, 0.1).agrees(Interval(1.0, 1.0, 1.0)) for x in (0.98, 0.995, 1.05, 1.2)]
        [False, True, True, False]
        """
        if not math.isfinite(self.value) or not math.isfinite(self.rounding):
            return None
        lowest, highest = interval.lower - self.rounding, interval.upper + self.rounding + self.discretization
        return lowest <= self.value <= highest


def lattice_step(events: Sequence[Event], epsilon: float) -> float:
    """Return a step fine enough for the allowances to be some 1e-4 of epsilon, and coarse enough for small arrays.

    >>> from accounting.events import Gaussian
    >>> round(lattice_step([Event(Gaussian(1.0))], 3.0), 9)
    0.0003
    """
    steps = sum(event.count for event in events)
    step = 1e-4 * epsilon * min(1.0, math.sqrt(1e4 / steps))
    return min(max(step, MIN_INTERVAL), MAX_INTERVAL)


def opinions_on_epsilon(
    events: Sequence[Event], relation: NeighboringRelation, deltas: Sequence[float], step: float
) -> list[Opinion]:
    """Return dp-accounting's epsilon at each delta. This takes seconds, and memory: call it in a process of its own.

    Raises:
        Unsupported: If dp-accounting has no distribution for an event.
    """
    curve = referee_distribution(events, relation, step)
    splits, roundings = _lattice_events(events, relation)
    return [_on_epsilon(curve, delta, step, splits, roundings) for delta in deltas]


def opinions_on_delta(
    events: Sequence[Event], relation: NeighboringRelation, epsilons: Sequence[float], step: float
) -> list[Opinion]:
    """Return dp-accounting's delta at each epsilon. See also `opinions_on_epsilon`."""
    curve = referee_distribution(events, relation, step)
    splits, roundings = _lattice_events(events, relation)
    return [_on_delta(curve, epsilon, step, splits, roundings) for epsilon in epsilons]


def _lattice_events(events: Sequence[Event], relation: NeighboringRelation) -> tuple[int, int]:
    """Return the number of losses that are split between lattice points, and the number that are rounded up."""
    grouped = check_referee(events, relation)
    rounded = sum(
        event.count for event in grouped if isinstance(event.mechanism, PureDp | ApproximateDp | RandomizedResponse)
    )
    return sum(event.count for event in grouped) - rounded, rounded


def _on_epsilon(curve: Distribution, delta: float, step: float, splits: int, roundings: int) -> Opinion:
    value = float(curve.get_epsilon_for_delta(delta))
    if delta <= 2.0 * REFEREE_ALLOWANCE or not value < MAX_EPSILON:
        return Opinion(value, math.inf, 0.0)
    rounding = float(curve.get_epsilon_for_delta(delta - REFEREE_ALLOWANCE)) - value
    further = float(curve.get_epsilon_for_delta(0.5 * delta)) - value
    slope = math.log(2.0) / further if further > 0.0 else 1.0 / step
    return Opinion(value, rounding, 0.25 * splits * step**2 * (slope + 1.0) + (1 + roundings) * step)


def _on_delta(curve: Distribution, epsilon: float, step: float, splits: int, roundings: int) -> Opinion:
    value = float(curve.get_delta_for_epsilon(epsilon))
    if value <= 2.0 * REFEREE_ALLOWANCE or epsilon > MAX_EPSILON:
        return Opinion(value, math.inf, 0.0)
    distance = max(10.0 * step, 1e-3 * epsilon)
    further = max(float(curve.get_delta_for_epsilon(epsilon + distance)), REFEREE_ALLOWANCE)
    slope = max(math.log(value / further), 0.0) / distance
    growth = 0.25 * splits * step**2 * slope * (slope + 1.0) + (1 + roundings) * step * slope
    return Opinion(value, REFEREE_ALLOWANCE, value * math.expm1(min(growth, 700.0)))
