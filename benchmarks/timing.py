"""Two contenders timed in turns: on a shared machine only a ratio measured in one run means something.

Every round calls ours, the other, and ours again, so that a slow moment of the machine falls on both; the figure is the
median over the rounds of the round's ratio. No two timed calls have the same arguments, so that no cache can answer.
"""

from __future__ import annotations

import itertools
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

#: Relative change from one timed call to the next: far below what anyone can see in an answer.
PERTURBATION = 1e-9
#: A call below this many seconds is a warm-up when it comes first; above it, warming up is not what costs.
WARM_UP = 1.0


class TookTooLong(Exception):
    """A call exceeded its limit and was interrupted."""


class NoAnswer(Exception):
    """The second contender failed; its own error is the cause."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How long two contenders took, measured in turns.

    Attributes:
        first_milliseconds: Median time of the first.
        second_milliseconds: Median time of the second.
        ratio: Median over the rounds of the second's time over the first's.
        smallest_ratio: Of all rounds.
        largest_ratio: Of all rounds.
        rounds: How many.
    """

    first_milliseconds: float
    second_milliseconds: float
    ratio: float
    smallest_ratio: float
    largest_ratio: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Effort:
    """How much measuring a comparison gets.

    Attributes:
        rounds_at_least: Even where they take long.
        rounds_at_most: Even where they take no time.
        seconds: When to stop between the two.
        limit: Seconds after which one call is interrupted and counts as no answer.
    """

    rounds_at_least: int
    rounds_at_most: int
    seconds: float = 2.0
    limit: float = 30.0


def perturbed(value: float, index: int) -> float:
    """Return ``value`` for the call number ``index``; the call 0 gets it as it is.

    >>> perturbed(2.0, 0)
    2.0
    """
    return value * (1.0 + PERTURBATION * index)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the body with `TookTooLong`; in the main thread alone, between two bytecodes."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise TookTooLong(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def seconds_of(call: Callable[[int], object], index: int) -> float:
    """Return how long ``call(index)`` takes."""
    start = time.perf_counter()
    call(index)
    return time.perf_counter() - start


def in_turns(
    first: Callable[[int], object],
    second: Callable[[int], T],
    effort: Effort,
    *,
    calls_of_first: int = 2,
) -> tuple[T, Comparison]:
    """Return the answer of ``second(0)`` and the comparison of the two.

    Args:
        first: the contender in the denominator; its argument numbers the calls (see `perturbed`).
        second: the contender in the numerator.
        effort: rounds, time and limit.
        calls_of_first: before and again after each call of ``second``.

    Raises:
        NoAnswer: If ``second`` raised, or took longer than the limit.
        Exception: Whatever ``first`` raises.
    """
    numbers = itertools.count(1)
    answer: T
    rounds: list[tuple[float, float]] = []
    started = time.perf_counter()
    first(next(numbers))
    for turn in itertools.count():
        before = [seconds_of(first, next(numbers)) for _ in range(calls_of_first)]
        given, taken = _answer(second, 0 if turn == 0 else next(numbers), effort.limit)
        after = [seconds_of(first, next(numbers)) for _ in range(calls_of_first)]
        if turn == 0:
            answer = given
        if turn > 0 or taken >= WARM_UP:
            rounds.append((statistics.median(before + after), taken))
        spent = time.perf_counter() - started
        enough = len(rounds) >= effort.rounds_at_least and spent >= effort.seconds
        if len(rounds) >= effort.rounds_at_most or enough:
            return answer, compare(rounds)
    raise AssertionError("unreachable: the rounds are bounded")


def _answer(call: Callable[[int], T], index: int, limit: float) -> tuple[T, float]:
    try:
        with time_limit(limit):
            start = time.perf_counter()
            return call(index), time.perf_counter() - start
    except Exception as error:
        raise NoAnswer from error


def compare(rounds: list[tuple[float, float]]) -> Comparison:
    """Return the comparison of (first, second) seconds, one pair a round.

    >>> compare([(0.1, 0.2), (0.2, 0.2), (0.1, 0.4)]).ratio
    2.0
    """
    ratios = [second / first for first, second in rounds]
    return Comparison(
        first_milliseconds=1e3 * statistics.median(first for first, _ in rounds),
        second_milliseconds=1e3 * statistics.median(second for _, second in rounds),
        ratio=statistics.median(ratios),
        smallest_ratio=min(ratios),
        largest_ratio=max(ratios),
        rounds=len(rounds),
    )
