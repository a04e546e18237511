"""Measuring in turns: who is called when, with what, and what a failure is."""

from __future__ import annotations

import signal

import pytest

from benchmarks.timing import Effort, NoAnswer, TookTooLong, compare, in_turns, perturbed, time_limit

EFFORT = Effort(rounds_at_least=2, rounds_at_most=2, seconds=0.0)


def test_the_two_take_turns_and_no_two_calls_are_alike() -> None:
    calls: list[tuple[str, int]] = []

    def first(index: int) -> None:
        calls.append(("first", index))

    def second(index: int) -> int:
        calls.append(("second", index))
        return index

    answer, comparison = in_turns(first, second, EFFORT)
    assert answer == 0
    assert comparison.rounds == 2
    turn = ["first", "first", "second", "first", "first"]
    # One call of the first warms it up; the second's first turn warms it up and gives the answer.
    assert [name for name, _ in calls] == ["first", *turn, *turn, *turn]
    assert len(set(calls)) == len({index for _, index in calls}) == len(calls)


def test_the_figure_is_the_median_over_rounds_of_the_rounds_ratio() -> None:
    comparison = compare([(1.0, 10.0), (2.0, 20.0), (4.0, 400.0)])
    assert (comparison.ratio, comparison.smallest_ratio, comparison.largest_ratio) == (10.0, 10.0, 100.0)
    assert (comparison.first_milliseconds, comparison.second_milliseconds) == (2e3, 20e3)


def test_a_contender_that_fails_has_no_answer() -> None:
    def fail(_index: int) -> float:
        raise ZeroDivisionError("why")

    with pytest.raises(NoAnswer) as raised:
        in_turns(lambda index: index, fail, EFFORT)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_our_own_failure_is_not_laid_at_the_peers_door() -> None:
    def fail(_index: int) -> float:
        raise ZeroDivisionError("ours")

    with pytest.raises(ZeroDivisionError, match="ours"):
        in_turns(fail, lambda index: index, EFFORT)


def test_a_call_without_end_is_interrupted() -> None:
    def endless() -> None:
        while True:
            pass

    with pytest.raises(TookTooLong), time_limit(0.02):
        endless()


def test_a_call_that_ends_in_time_is_not_interrupted_later() -> None:
    with time_limit(60.0):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_perturbation_is_invisible_and_yet_another_number() -> None:
    values = [perturbed(0.3, index) for index in range(100)]
    assert len(set(values)) == 100
    assert values[0] == 0.3
    assert max(values) < 0.3 * (1.0 + 2e-7)
