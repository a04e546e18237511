"""This module times two contenders in turns, since on a shared machine only a ratio of times in the same run is
meaningful.

Every round calls our side, the other side, and our side again, so that a slow moment of the machine affects both. The
result is the median of the rounds' ratios. Timed calls all have different arguments, so that no cache can answer.
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

#: The relative change from one timed call to the next, which is too small to be visible in an answer.
PERTURBATION = 1e-9
#: A first call that takes less than this many seconds is not timed. A longer first call is timed, since the share of
#: its warm-up is small.
WARM_UP = 1.0


class TookTooLong(Exception):
    """A call exceeded its time limit and was interrupted."""


class NoAnswer(Exception):
    """The second contender failed. The exception that it raised is the cause of this one."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The times of two contenders, measured in turns.

    Attributes:
        first_milliseconds: The median time of the first.
        second_milliseconds: The median time of the second.
        ratio: The median over the rounds of the second's time divided by the first's.
        smallest_ratio: The smallest ratio of all rounds.
        largest_ratio: The largest ratio of all rounds.
        rounds: The number of rounds.
    """

    first_milliseconds: float
    second_milliseconds: float
    ratio: float
    smallest_ratio: float
    largest_ratio: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a comparison: its rounds and its time.

    Attributes:
        rounds_at_least: The least number of rounds, even if they take longer than ``seconds``.
        rounds_at_most: The largest number of rounds, even if they take less than ``seconds``.
        seconds: The time after which the comparison stops, if it has had the least number of rounds.
        limit: The time in seconds after which one call is interrupted and counts as no answer.
    """

    rounds_at_least: int
    rounds_at_most: int
    seconds: float = 2.0
    limit: float = 30.0


def perturbed(value: float, index: int) -> float:
    """Return ``value`` for call number ``index``, changed a little except for call 0.

    >>> perturbed(2.0, 0)
    2.0
    """
    return value * (1.0 + PERTURBATION * index)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the body of a `with` statement with `TookTooLong` after the given time. This works only in the main
    thread, and compiled code is interrupted only when it returns to Python."""

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
    """Return the seconds that ``call(index)`` takes."""
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
        first: The contender in the denominator; its argument numbers the calls (see `perturbed`).
        second: The contender in the numerator.
        effort: The rounds, the time and the limit.
        calls_of_first: The number of calls of ``first`` before each call of ``second``, and again after it.

    Raises:
        NoAnswer: If ``second`` raised, or took longer than the limit.
        Exception: If ``first`` raises. Its exception is passed on.
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
    """Return the comparison from pairs (first, second) of seconds, one pair for each round.

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
