"""The answer of a search, and the range in which it searches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from accounting.accountant import closely_estimate_epsilon
from accounting.errors import Unreachable, Unsupported
from accounting.events import Event
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget, Target

EventsAt = Callable[[float], Sequence[Event]]
#: A quick number close to the upper end of a certified cost; None if nothing is quicker.
Estimate = Callable[[float], float | None]
EventsAtInteger = Callable[[int], Sequence[Event]]


@dataclass(frozen=True, slots=True)
class Solution:
    """A value of an unknown, and the cost that it achieves.

    Attributes:
        value: The value of the unknown.
        achieved: The certified cost at this very value, in the unit of the target's limit; its upper end meets the
            limit.
    """

    value: float
    achieved: Answer


@dataclass(frozen=True, slots=True)
class IntegerSolution:
    """The largest integer that meets a target.

    Attributes:
        value: The value of the unknown.
        achieved: Its certified cost; the upper end meets the target.
        next_achieved: The certified cost of ``value + 1``; the upper end does not meet the target.
    """

    value: int
    achieved: Answer
    next_achieved: Answer


@dataclass(frozen=True, slots=True)
class Range:
    """The range in which an unknown is searched, and the words for its ends.

    Attributes:
        least_private, most_private: The ends, in words with their value: ``noise multiplier 1e+06``.
        everything: The whole range in words, for the message that every value in it meets the target.
        advice: What would help if even the most private end costs too much.
    """

    least_private: str
    most_private: str
    everything: str
    advice: str

    def too_costly(self, target: Target, figure: float) -> Unreachable:
        """Return the error that no value meets the target: the most private value costs ``figure``."""
        if math.isinf(figure):
            return Unreachable(
                f"{self.most_private} has no finite bound ({target.say(figure)}): the mechanism's loss is unbounded "
                "or no budget is left"
            )
        return Unreachable(
            f"even {self.most_private} costs {target.say(figure)}, more than the target {target.say(target.limit)}; "
            f"{self.advice}"
        )

    def too_cheap(self, target: Target) -> Unreachable:
        """Return the error that every value meets the target."""
        return Unreachable(
            f"{self.everything} meets {target.say(target.limit)}, so the target does not determine a value: take "
            f"{self.least_private}, or a smaller target"
        )


def log_level(level: float) -> float:
    """Return the logarithm in which searches take their secants; -inf if the cost is 0, inf if it is not bounded."""
    if level <= 0.0:
        return -math.inf
    return math.log(level) if math.isfinite(level) else math.inf


def close_estimate(target: Target, events_at: EventsAt, relation: NeighboringRelation) -> Estimate:
    """Return an estimate that a search may use before it certifies a cost; it affects only the time."""
    if not isinstance(target, ApproximateDpTarget) or not 0.0 < target.delta < 1.0:
        return lambda _: None
    delta = target.delta
    return lambda value: closely_estimate_epsilon(events_at(value), relation, delta)


def refuse_if_indifferent(
    target: Target, relation: NeighboringRelation, unknown: str, least: Sequence[Event], most: Sequence[Event]
) -> None:
    """Refuse an unknown that does not change the number that the target limits.

    Args:
        target: The target; only additive targets can be indifferent.
        relation: The neighbouring relation.
        unknown: The name of the unknown, in words.
        least, most: The events at the ends of the unknown's range.

    Raises:
        Unsupported: If both ends of the range cost the same.
    """
    if not target.additive:
        return
    first, last = (target.assess(events, relation).value.upper for events in (least, most))
    if first == last and math.isfinite(last):
        raise Unsupported(
            f"the {unknown} does not change what this target limits: its smallest and its largest value both cost "
            f"{target.say(last)}. Solve for something else, or aim at (epsilon, delta) or an attack risk"
        )
