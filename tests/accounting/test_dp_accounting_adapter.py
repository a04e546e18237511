from __future__ import annotations

import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.dp_accounting_adapter import REFEREE_ALLOWANCE, referee_delta, referee_epsilon
from accounting.errors import Unsupported
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
LISTS = [
    ([Event(Gaussian(1.0), Poisson(0.02), 500)], ADD_REMOVE, 3.0),
    ([Event(Gaussian(4.0), Poisson(0.02), 5000)], NeighboringRelation.REPLACE_SPECIAL, 1.0),
    ([Event(Gaussian(0.6), Poisson(1e-3), 2000)], ADD_REMOVE, 1.0),
    ([Event(Laplace(1.0), count=3), Event(Laplace(2.0), count=2)], ADD_REMOVE, 3.0),
    ([Event(Laplace(4.0), count=3), Event(Gaussian(8.0), count=2)], NeighboringRelation.REPLACE_ONE, 1.0),
    ([Event(Gaussian(2.0), Poisson(0.1), 50), Event(Gaussian(5.0), count=4), Event(Laplace(9.0))], ADD_REMOVE, 1.0),
]


@pytest.mark.parametrize(("events", "relation", "epsilon"), LISTS)
def test_an_independent_pessimistic_account_agrees(
    events: list[Event], relation: NeighboringRelation, epsilon: float
) -> None:
    ours = delta_for_epsilon(events, relation, epsilon).value
    referee = referee_delta(events, relation, epsilon)
    assert ours.lower <= referee * (1 + 1e-9) + REFEREE_ALLOWANCE
    assert referee == pytest.approx(ours.upper, rel=5e-3)
    epsilons = epsilon_for_delta(events, relation, ours.upper).value
    assert epsilons.lower <= referee_epsilon(events, relation, ours.upper - REFEREE_ALLOWANCE) + 1e-9


def test_the_referee_refuses_what_it_has_no_distribution_for() -> None:
    with pytest.raises(Unsupported, match="replace_one"):
        referee_delta([Event(Gaussian(1.0), Poisson(0.1))], NeighboringRelation.REPLACE_ONE, 1.0)
    with pytest.raises(Unsupported, match="pure_dp"):
        referee_delta([Event(PureDp(1.0))], ADD_REMOVE, 1.0)
    with pytest.raises(Unsupported, match="200000 steps"):
        referee_delta([Event(Gaussian(1.0), Poisson(0.1), 10**6)], ADD_REMOVE, 1.0)


def test_an_integer_noise_is_read_as_a_float() -> None:
    assert referee_epsilon([Event(Gaussian(1), Poisson(0.1), 10)], ADD_REMOVE, 1e-5) == referee_epsilon(
        [Event(Gaussian(1.0), Poisson(0.1), 10)], ADD_REMOVE, 1e-5
    )
