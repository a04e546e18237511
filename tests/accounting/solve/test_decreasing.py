"""The search over a real unknown, on costs made for it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.errors import Unreachable
from accounting.filters import ZcdpFilter
from accounting.intervals import Answer, Interval
from accounting.solve.decreasing import smallest_that_meets
from accounting.solve.solution import Range
from accounting.targets import BudgetTarget

WORDS = Range("the smallest", "the largest", "every value", "advice")
#: Met where the cost is at most 1.
TARGET = BudgetTarget(ZcdpFilter(1.0), (0,))
LIMITS = (1e-3, 1e6)


def exactly(cost: float) -> Answer:
    return Answer(Interval(cost, cost, cost), "test")


def bent_power(place: float, power: float, bend: float) -> Callable[[float], float]:
    """A decreasing function that is 1 at e^place, about a power of its argument."""

    def cost(value: float) -> float:
        distance = math.log(value) - place
        return math.exp(-power * distance - bend * distance * abs(distance) / (1.0 + abs(distance)))

    return cost


@settings(max_examples=200, deadline=None)
@given(st.floats(-6.5, 13.5), st.floats(0.3, 3.0), st.floats(0.0, 2.0), st.sampled_from([0.0, 1.0, 5.0]))
def test_a_power_with_a_bend_is_solved_in_few_evaluations(
    place: float, power: float, bend: float, slack: float
) -> None:
    """The smallest value is e^place; ``slack`` is how far, in logs, the quick bound is off."""
    asked, cost = [], bent_power(place, power, bend)

    def assess(value: float) -> Answer:
        asked.append(value)
        return exactly(cost(value))

    def quick(value: float) -> Answer:
        return exactly(cost(value * math.exp(-slack)))

    found = smallest_that_meets(assess, quick, TARGET, LIMITS, WORDS, 8e-6)
    assert found.achieved == exactly(cost(found.value))
    assert 1.0 - 8e-6 <= found.achieved.value.upper <= 1.0
    assert len(asked) <= 40


def test_a_quick_bound_that_is_too_low_is_not_believed() -> None:
    found = smallest_that_meets(
        lambda value: exactly(2.0 / value), lambda value: exactly(0.5 / value), TARGET, LIMITS, WORDS, 8e-6
    )
    assert 2.0 <= found.value <= 2.0 * (1 + 1e-5)


@settings(max_examples=200, deadline=None)
@given(st.floats(-6.5, 13.5), st.floats(0.3, 3.0), st.floats(0.0, 2.0), st.floats(-0.5, 0.5))
@example(0.0, 0.3125, 2.0, 0.015625)
def test_a_close_estimate_leaves_little_to_certify(place: float, power: float, bend: float, slack: float) -> None:
    """The quick bound misses the place by ``slack``, in logs; the close estimate is the cost but for 1e-7."""
    asked, cost = [], bent_power(place, power, bend)

    def assess(value: float) -> Answer:
        asked.append(value)
        return exactly(cost(value))

    def quick(value: float) -> Answer:
        return exactly(cost(value * math.exp(-slack)))

    found = smallest_that_meets(
        assess, quick, TARGET, LIMITS, WORDS, 8e-6, close=lambda value: cost(value) * (1.0 + 1e-7)
    )
    assert found.achieved == exactly(cost(found.value))
    assert 1.0 - 8e-6 <= found.achieved.value.upper <= 1.0
    assert len(asked) <= 3


@pytest.mark.parametrize("factor", [0.2, 0.99, 1.01, 5.0, math.inf])
def test_a_close_estimate_that_is_wrong_is_not_believed(factor: float) -> None:
    """Neither where it is too low nor where it is too high; nor one that is not to be had on the way."""

    def cost(value: float) -> Answer:
        return exactly(2.0 / value)

    for estimate in (lambda value: factor * 2.0 / value, lambda value: factor * 2.0 / value if value > 3.0 else None):
        found = smallest_that_meets(cost, cost, TARGET, LIMITS, WORDS, 8e-6, close=estimate)
        assert 2.0 <= found.value <= 2.0 * (1 + 1e-5)


def test_a_close_estimate_with_a_long_flat_stretch_is_bracketed() -> None:
    """A secant of the flat stretch points far out of the range."""
    asked = []

    def cost(value: float) -> float:
        return 0.9 * value**-0.001 if value > 1.0 else 0.9 * math.exp(30.0 * (1.0 - value))

    def close(value: float) -> float:
        asked.append(value)
        return cost(value)

    found = smallest_that_meets(
        lambda value: exactly(cost(value)), lambda value: exactly(cost(value / 20.0)), TARGET, LIMITS, WORDS, 8e-6,
        close=close,
    )  # fmt: skip
    assert 1.0 - 8e-6 <= found.achieved.value.upper <= 1.0
    assert min(asked) > 0.3


@given(st.floats(-6.0, 13.0), st.floats(0.1, 0.999))
@settings(max_examples=50, deadline=None)
def test_a_jump_is_closed_in_on_from_the_side_that_meets_the_target(place: float, after: float) -> None:
    edge = math.exp(place)

    def assess(value: float) -> Answer:
        return exactly(after if value >= edge else 1.0 + 1e-9)

    found = smallest_that_meets(assess, assess, TARGET, LIMITS, WORDS, 8e-6)
    assert edge <= found.value <= edge * (1 + 2e-7) or after >= 1 - 8e-6
    assert found.achieved.value.upper <= 1.0


def test_ends_are_refused_in_words() -> None:
    with pytest.raises(Unreachable, match="even the largest costs 2 times what remains"):
        smallest_that_meets(lambda _: exactly(2.0), lambda _: exactly(2.0), TARGET, LIMITS, WORDS, 8e-6)
    with pytest.raises(Unreachable, match="every value meets"):
        smallest_that_meets(lambda _: exactly(0.5), lambda _: exactly(0.5), TARGET, LIMITS, WORDS, 8e-6)
    with pytest.raises(Unreachable, match="no finite bound"):
        smallest_that_meets(lambda _: exactly(math.inf), lambda _: exactly(math.inf), TARGET, LIMITS, WORDS, 8e-6)
