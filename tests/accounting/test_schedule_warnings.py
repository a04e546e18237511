from __future__ import annotations

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import InvalidValue
from accounting.events import DisjointBatches, Event, Gaussian, Laplace, Poisson, ShuffledEpochs, WithoutReplacement
from accounting.relations import NeighboringRelation
from accounting.schedule_warnings import schedule_warnings

REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
SHUFFLED = Event(Gaussian(0.5), ShuffledEpochs(10_000), 10_000)


def test_poisson_is_shown_only_as_not_valid() -> None:
    [warning] = schedule_warnings([SHUFFLED], SPECIAL, delta=1e-6)
    assert "The number for Poisson batches, epsilon 1.95" in warning
    assert "not valid" in warning
    assert epsilon_for_delta([SHUFFLED], SPECIAL, 1e-6).value.lower > 10.99
    [warning] = schedule_warnings([SHUFFLED], SPECIAL, epsilon=2.0)
    assert "delta" in warning
    assert "at epsilon 2, is not valid" in warning


def test_fixed_size_batches_say_that_they_are_charged_as_replace_one() -> None:
    fixed = Event(Laplace(4.0), WithoutReplacement(10, 1000), 50)
    own = Event(Gaussian(4.0), WithoutReplacement(10, 1000), 50)
    [warning] = schedule_warnings([own, fixed], SPECIAL, delta=1e-5)
    assert "(event 1) are charged as replace_one" in warning
    assert schedule_warnings([fixed], REPLACE, delta=1e-5) == ()
    both = schedule_warnings([fixed, SHUFFLED, *[fixed] * 6], SPECIAL, delta=1e-5)
    assert len(both) == 2
    assert "(events 0, 2, 3, 4, 5, ...)" in both[0]


def test_other_schemes_need_no_warning() -> None:
    events = [
        Event(Gaussian(1.0)),
        Event(Gaussian(1.0), Poisson(0.1)),
        Event(Gaussian(1.0), ShuffledEpochs(1), 3),
        Event(Gaussian(1.0), DisjointBatches("by_position"), 3),
        Event(Gaussian(1.0), WithoutReplacement(10, 10), 3),
    ]
    assert schedule_warnings(events, SPECIAL, delta=1e-5) == ()


def test_exactly_one_question() -> None:
    for question in ({}, {"delta": 1e-5, "epsilon": 1.0}):
        with pytest.raises(InvalidValue, match="exactly one"):
            schedule_warnings([SHUFFLED], SPECIAL, **question)
