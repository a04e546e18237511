"""Epsilon or delta as the unknown."""

from __future__ import annotations

import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.errors import InvalidValue, Unreachable
from accounting.events import Event, Gaussian, Laplace, Poisson
from accounting.relations import NeighboringRelation
from accounting.solve import solve_delta, solve_epsilon

RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
LISTS = [[Event(Gaussian(2.0), count=5)], [Event(Gaussian(2.0), Poisson(0.1), 20)], [Event(Laplace(2.0), count=3)]]


@pytest.mark.parametrize("events", LISTS)
def test_is_the_certified_upper_end(events: list[Event]) -> None:
    found = solve_epsilon(events, RELATION, 1e-5)
    assert found.value == found.achieved.value.upper == epsilon_for_delta(events, RELATION, 1e-5).value.upper
    at = solve_delta(events, RELATION, found.value)
    assert at.value == at.achieved.value.upper == delta_for_epsilon(events, RELATION, found.value).value.upper
    assert at.value <= 1e-5 * (1 + 1e-3)


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(Unreachable, match="no finite epsilon at delta 0"):
        solve_epsilon(LISTS[0], RELATION, 0.0)
    with pytest.raises(InvalidValue):
        solve_epsilon(LISTS[0], RELATION, 1.5)
    with pytest.raises(InvalidValue):
        solve_delta(LISTS[0], RELATION, -1.0)
