"""The search for the smallest value of a real unknown that lowers the cost. It uses secants in logarithms."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from accounting.intervals import Answer
from accounting.solve.solution import Estimate, Range, Solution, log_level
from accounting.targets import Target

#: If the cost jumps, the place of the jump is bracketed to this relative width.
JUMP_TOLERANCE = 1e-7
_MAX_EVALUATIONS = 80
_MOST_ESTIMATES = 40
_MOST_STARTS = 12
_MOST_REFINEMENTS = 12
#: The longest step of one secant between close estimates, in the logarithm of the unknown.
_LONGEST_STEP = 0.5

Assess = Callable[[float], Answer]


def smallest_that_meets(
    assess: Assess,
    quick: Assess,
    target: Target,
    limits: tuple[float, float],
    words: Range,
    tolerance: float,
    *,
    guess: float = 1.0,
    close: Estimate = lambda _: None,
) -> Solution:
    """Return the smallest value whose certified cost meets the target.

    Args:
        assess: A function that returns the certified cost at a value; it must not grow with the value.
        quick: A function that estimates the cost in no time.
        target: The target.
        limits: The ends of the range, positive.
        words: The words for the ends of the range.
        tolerance: The relative tolerance in the target's level.
        guess: The value at which to begin; only the time depends on it.
        close: A function that estimates the certified cost much more closely, and bounds nothing either.

    Guarantees:
        never_misses: achieved.value.upper <= target.limit, evaluated at the returned value itself.
        target_is_used: the level reaches (1 - tolerance) times the target's, unless the bound jumps there: then the
            value is within a relative 1e-7 of one that fails.

    Raises:
        Unreachable: If no value in the range meets the target, or every value does.
    """
    start, failing, slope = _start(assess, cache(quick), close, target, limits, tolerance, guess)
    if start.achieved.value.upper > target.limit:
        raise words.too_costly(target, start.achieved.value.upper)
    best = start
    full = target.level(target.limit)
    aim = log_level(full) + math.log1p(-0.3 * tolerance)
    points = [_point(start, target)]
    for _ in range(_MAX_EVALUATIONS):
        if target.level(best.achieved.value.upper) >= full * (1.0 - tolerance):
            return best
        if best.value <= limits[0] * (1.0 + 1e-12):
            raise words.too_cheap(target)
        if failing > 0.0 and best.value < failing * (1.0 + JUMP_TOLERANCE):
            return best
        value = _propose(points, slope, aim, failing, best.value, limits[0])
        tried = Solution(value, assess(value))
        if tried.achieved.value.upper <= target.limit:
            best = tried
        else:
            failing = value
        points = [points[-1], _point(tried, target)]
    return best


def _start(
    assess: Assess,
    quick: Assess,
    close: Estimate,
    target: Target,
    limits: tuple[float, float],
    tolerance: float,
    guess: float,
) -> tuple[Solution, float, float]:
    """Return a value that meets the target, one that fails (0 if none is known), and the slope there, in logs.

    The quick estimate gives an approximate value, and the close estimate a nearly exact one. Without a close estimate,
    the quick one's error at the first certified cost is used as its error nearby, so that its second proposal is nearly
    exact, too. From there on, only certified costs count.
    """
    aim = log_level(target.level(target.limit))
    x, slope = _estimated(quick, target, limits, aim, (math.log(guess), -1.0), 1e-3)
    refined = _refined(close, target, limits, aim + math.log1p(-0.3 * tolerance), (x, slope), tolerance)
    x, slope = refined or (x, slope)
    failing, value = 0.0, min(max(math.exp(x), limits[0]), limits[1])
    found = Solution(value, assess(value))
    for trial in range(_MOST_STARTS):
        excess = log_level(target.level(found.achieved.value.upper)) - aim
        if trial == 0 and refined is None and math.isfinite(excess) and abs(excess) > tolerance:
            off = log_level(target.level(found.achieved.value.upper)) - _log_estimate(quick, target, value)
            before = found
            if math.isfinite(off):
                exact = aim + math.log1p(-0.3 * tolerance) - off
                x, slope = _estimated(quick, target, limits, exact, (x, slope), 0.05 * tolerance)
                value = min(max(math.exp(x), limits[0]), limits[1])
                found = Solution(value, assess(value))
                if before.achieved.value.upper > target.limit:
                    failing = before.value
                elif found.achieved.value.upper > target.limit:
                    return before, found.value, slope
                continue
        if found.achieved.value.upper <= target.limit or value == limits[1]:
            return found, failing if failing < found.value else 0.0, slope
        failing = max(failing, value)
        x = math.log(value) + (max(1.02 * min(excess, 20.0) / -slope, 1e-6) if math.isfinite(excess) else 1.0)
        # If the cost hardly falls, the proposal may be far out of range.
        value = limits[1] if x >= math.log(limits[1]) else max(math.exp(x), limits[0])
        found = Solution(value, assess(value))
    return Solution(limits[1], assess(limits[1])), failing, slope


def _log_estimate(quick: Assess, target: Target, value: float) -> float:
    return log_level(target.level(quick(value).value.upper))


def _estimated(
    quick: Assess,
    target: Target,
    limits: tuple[float, float],
    aim: float,
    start: tuple[float, float],
    tolerance: float,
) -> tuple[float, float]:
    """Find the value at which the quick estimate's level is ``aim``, by secants inside a bracket, and the slope there;
    all in logs.

    Args:
        start: where to begin, and the slope that is expected there.
    """
    low, high = math.log(limits[0]), math.log(limits[1])
    x, slope = min(max(start[0], low), high), start[1]
    before: tuple[float, float] | None = None
    for _ in range(_MOST_ESTIMATES):
        y = _log_estimate(quick, target, math.exp(x)) - aim
        low, high = (x, high) if y > 0.0 else (low, x)
        if before is not None and math.isfinite(y) and math.isfinite(before[1]) and x != before[0]:
            found = (y - before[1]) / (x - before[0])
            slope = found if found < -1e-3 else slope
        if abs(y) < tolerance or high - low < 1e-9:
            break
        before = (x, y)
        step = x - y / slope
        x = step if math.isfinite(y) and low < step < high else 0.5 * (low + high)
    return x, slope


def _refined(
    close: Estimate,
    target: Target,
    limits: tuple[float, float],
    aim: float,
    start: tuple[float, float],
    tolerance: float,
) -> tuple[float, float] | None:
    """Find the logarithm at which the close estimate's level is ``aim``, by secants in a bracket, and the slope there.

    Args:
        start: The place at which to begin, and the slope that is expected there, in logarithms.

    Returns:
        None if a close estimate is missing on the way.
    """
    low, high = math.log(limits[0]), math.log(limits[1])
    x, slope = start
    before: tuple[float, float] | None = None
    for _ in range(_MOST_REFINEMENTS):
        figure = close(math.exp(x))
        y = math.nan if figure is None else log_level(target.level(figure)) - aim
        if not math.isfinite(y):
            return None
        low, high = (x, high) if y > 0.0 else (low, x)
        turned = 0.0
        if before is not None and x != before[0]:
            found = (y - before[1]) / (x - before[0])
            if found < -1e-3:
                turned, slope = abs(found - slope), found
        moved = x + min(max(-y / slope, -_LONGEST_STEP), _LONGEST_STEP)
        left = abs(y)
        if before is not None:
            # After a secant the error is about the product of the two errors before it. If the slope has changed
            # between two secants, it may change as much again over the next step.
            left = min(left, max(abs(y * before[1]), turned * abs(moved - x)))
        if left <= 0.1 * tolerance:
            return moved, slope
        before = (x, y)
        x = moved if low < moved < high else 0.5 * (low + high)
    return x, slope


def _point(tried: Solution, target: Target) -> tuple[float, float]:
    return math.log(tried.value), log_level(target.level(tried.achieved.value.upper))


def _propose(
    points: list[tuple[float, float]], slope: float, aim: float, failing: float, passing: float, smallest: float
) -> float:
    """Return the secant's proposal where it falls inside the bracket, else a step that halves the bracket."""
    if len(points) == 2 and points[0][0] != points[1][0]:
        slope = (points[1][1] - points[0][1]) / (points[1][0] - points[0][0])
    x, y = points[-1]
    proposal = math.nan
    if math.isfinite(y) and math.isfinite(slope) and slope < -1e-3:
        proposal = x + (aim - y) / slope
    low = math.log(failing) if failing > 0.0 else max(math.log(passing) - 1.0, math.log(smallest))
    high = math.log(passing)
    if not low < proposal < high:
        proposal = low if failing == 0.0 else 0.5 * (low + high)
    return max(math.exp(proposal), smallest)
