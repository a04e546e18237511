"""Steps and batch sizes for a target: the largest integer whose certified cost meets it."""

from __future__ import annotations

import math
from collections.abc import Callable

from accounting.intervals import Answer
from accounting.numbers import MAX_COUNT, MAX_DATASET_SIZE, read_integer
from accounting.relations import NeighboringRelation
from accounting.solve.solution import EventsAtInteger, IntegerSolution, Range, log_level, refuse_if_indifferent
from accounting.targets import Target

#: The ratio up to which the quick bound locates the largest integer.
_QUICK_RATIO = 1.03

Assess = Callable[[int], Answer]


def solve_count(
    events_at: EventsAtInteger, relation: NeighboringRelation, target: Target, *, most: int = MAX_COUNT
) -> IntegerSolution:
    """Return the largest number of steps at which the list's certified cost meets the target.

    Args:
        events_at: The event list as a function of the number of steps; more steps must not cost less.
        relation: the neighbouring relation.
        target: the target.
        most: The largest number of steps for which the list is accounted.

    Guarantees:
        never_misses: achieved.value.upper <= target.limit, evaluated at the returned number itself.
        one_more_misses: next_achieved.value.upper > target.limit, evaluated at the next number.

    Raises:
        NoCostInFilter: If the target is in rho, in mu or a budget, and an event has no proved cost there.
        Unreachable: If not even one step meets the target, or ``most`` steps do.

    >>> from accounting.events import Event, Gaussian
    >>> from accounting.targets import GaussianDpTarget
    >>> relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    >>> solve_count(lambda n: [Event(Gaussian(10.0), count=n)], relation, GaussianDpTarget(1.0)).value
    100
    """
    words = Range(
        least_private=f"{most} steps",
        most_private="one step",
        everything=f"every number of steps up to {most}",
        advice="take more noise or a smaller batch, or allow a larger target",
    )
    return _solve(events_at, NeighboringRelation(relation), target, most, words)


def solve_batch_size(
    events_at: EventsAtInteger, relation: NeighboringRelation, target: Target, dataset_size: int
) -> IntegerSolution:
    """Return the largest batch size at which the list's certified cost meets the target.

    Args:
        events_at: The event list as a function of the batch size; a larger size must not cost less.
        relation: the neighbouring relation.
        target: the target.
        dataset_size: The largest possible batch size.

    Guarantees: as `solve_count`.

    Raises:
        Unsupported: If the cost is the same at every batch size: the target makes no use of the sampling.
        Unreachable: If not even batches of 1 meet the target, or batches of the whole data set do.

    >>> from accounting.events import Event, Gaussian, Poisson
    >>> from accounting.targets import ApproximateDpTarget
    >>> relation, target = NeighboringRelation.ADD_OR_REMOVE_ONE, ApproximateDpTarget(0.5, 1e-5)
    >>> solve_batch_size(lambda b: [Event(Gaussian(1.0), Poisson(b / 1000))], relation, target, 1000).value
    22
    """
    relation = NeighboringRelation(relation)
    size = read_integer("dataset_size", dataset_size, 1, MAX_DATASET_SIZE)
    words = Range(
        least_private=f"batches of all {size} records",
        most_private="a batch size of 1",
        everything=f"every batch size up to {size}",
        advice="take more noise or fewer steps, or allow a larger target",
    )
    if size > 1:
        refuse_if_indifferent(target, relation, "batch size", events_at(1), events_at(size))
    return _solve(events_at, relation, target, size, words)


def _solve(
    events_at: EventsAtInteger, relation: NeighboringRelation, target: Target, largest: int, words: Range
) -> IntegerSolution:
    def assess(value: int) -> Answer:
        return target.assess(events_at(value), relation)

    def quick(value: int) -> Answer:
        return target.assess(events_at(value), relation, quick=True)

    return largest_that_meets(assess, quick, target, largest, words)


def largest_that_meets(assess: Assess, quick: Assess, target: Target, largest: int, words: Range) -> IntegerSolution:
    """Find the largest integer up to ``largest`` whose certified cost meets the target; certify that the next one
    misses it.

    The bracket [passing, failing) always has certificates at both ends; secants in logs narrow it from either side, and
    every third proposal halves it, so that no shape of the cost makes the search long.

    Raises:
        Unreachable: If 1 misses the target, or ``largest`` meets it.
    """
    passing = _quick_largest(quick, target, largest)
    achieved = assess(passing)
    if achieved.value.upper > target.limit and passing > 1:
        passing, achieved = 1, assess(1)
    if achieved.value.upper > target.limit:
        raise words.too_costly(target, achieved.value.upper)
    failing, failed = largest + 1, achieved
    points = [_point(passing, achieved, target)]
    aim = log_level(target.level(target.limit))
    for turn in range(1, 200):
        if failing - passing == 1:
            break
        value = _propose(points, aim, passing, failing, halve=turn % 3 == 0)
        answer = assess(value)
        if answer.value.upper <= target.limit:
            passing, achieved = value, answer
        else:
            failing, failed = value, answer
        points = [points[-1], _point(value, answer, target)]
    if failing > largest:
        raise words.too_cheap(target)
    return IntegerSolution(passing, achieved, failed)


def _quick_largest(quick: Assess, target: Target, largest: int) -> int:
    """Return an integer that meets the target by the quick bound, within 3 % of the largest such integer; 1 if there is
    none.
    """
    if quick(1).value.upper > target.limit:
        return 1
    low, high = 1, largest + 1
    while high - low > 1 and high > _QUICK_RATIO * low:
        middle = _middle(low, high)
        low, high = (middle, high) if quick(middle).value.upper <= target.limit else (low, middle)
    return low


def _propose(points: list[tuple[float, float]], aim: float, passing: int, failing: int, *, halve: bool) -> int:
    """Return an integer strictly inside the bracket: the secant's, or the middle."""
    slope = 0.5
    if len(points) == 2 and points[0][0] != points[1][0]:
        slope = (points[1][1] - points[0][1]) / (points[1][0] - points[0][0])
    x, y = points[-1]
    if halve or not (math.isfinite(y) and math.isfinite(slope) and slope > 1e-3):
        return _middle(passing, failing)
    logarithm = min(x + (aim - y) / slope, math.log(failing))
    return min(max(math.floor(math.exp(logarithm) * (1.0 + 1e-12)), passing + 1), failing - 1)


def _middle(low: int, high: int) -> int:
    """Return a point inside (low, high): the geometric mean if the ends are far apart, otherwise the mean."""
    middle = math.isqrt(low * high) if high > 4 * low else (low + high) // 2
    return min(max(middle, low + 1), high - 1)


def _point(value: int, answer: Answer, target: Target) -> tuple[float, float]:
    return math.log(value), log_level(target.level(answer.value.upper))
