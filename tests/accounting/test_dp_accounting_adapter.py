from __future__ import annotations

import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.dp_accounting_adapter import (
    REFEREE_ALLOWANCE,
    check_referee,
    engine,
    referee_delta,
    referee_epsilon,
)
from accounting.errors import Unsupported
from accounting.events import (
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    GaussianMixture,
    GeneralizedGaussian,
    Laplace,
    Poisson,
    RandomAllocation,
    RandomizedResponse,
    ReportNoisyMax,
    ShuffledEpochs,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    ZcDp,
)
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
LISTS = [
    ([Event(Gaussian(1.0), Poisson(0.02), 500)], ADD_REMOVE, 3.0),
    ([Event(Gaussian(4.0), Poisson(0.02), 5000)], NeighboringRelation.REPLACE_SPECIAL, 1.0),
    ([Event(Gaussian(0.6), Poisson(1e-3), 2000)], ADD_REMOVE, 1.0),
    ([Event(Laplace(1.0), count=3), Event(Laplace(2.0), count=2)], ADD_REMOVE, 3.0),
    ([Event(Laplace(4.0), count=3), Event(Gaussian(8.0), count=2)], NeighboringRelation.REPLACE_ONE, 1.0),
    ([Event(Gaussian(2.0), Poisson(0.1), 50), Event(Gaussian(5.0), count=4), Event(Laplace(9.0))], ADD_REMOVE, 1.0),
    ([Event(DiscreteLaplace(10.0, 0.5), count=12)], REPLACE, 2.0),
    ([Event(DiscreteGaussian(4.0, 0.25), count=5)], REPLACE, 4.0),
    ([Event(DiscreteGaussian(2.0, 1.0), count=30), Event(DiscreteLaplace(20.0, 1.0))], ADD_REMOVE, 12.0),
    ([Event(RandomizedResponse(10, 0.9), count=20)], REPLACE, 9.0),
    ([Event(RandomizedResponse(10, 0.9), count=20)], NeighboringRelation.REPLACE_SPECIAL, 5.0),
    ([Event(GaussianMixture((0.9, 0.06, 0.04), (20.0, 10.0, 8.0)), count=100)], ADD_REMOVE, 2.0),
    ([Event(GaussianMixture((0.9, 0.1), (2.0, 1.0)), Poisson(0.1), 50)], REPLACE, 4.0),
]


@pytest.mark.parametrize(("events", "relation", "epsilon"), LISTS)
@pytest.mark.one_in(4)
def test_an_independent_pessimistic_account_agrees(
    events: list[Event], relation: NeighboringRelation, epsilon: float
) -> None:
    ours = delta_for_epsilon(events, relation, epsilon).value
    referee = referee_delta(events, relation, epsilon)
    assert ours.lower <= referee * (1 + 1e-9) + REFEREE_ALLOWANCE
    assert referee == pytest.approx(ours.upper, rel=5e-3)
    epsilons = epsilon_for_delta(events, relation, ours.upper).value
    assert epsilons.lower <= referee_epsilon(events, relation, ours.upper - REFEREE_ALLOWANCE) + 1e-9


REFUSED = [
    ([Event(Laplace(1.0), Poisson(0.1))], NeighboringRelation.REPLACE_ONE, "under replace_one"),
    ([Event(Gaussian(1.0)), Event(ZcDp(1.0))], ADD_REMOVE, "zcdp"),
    ([Event(Gaussian(1.0), WithoutReplacement(1, 10))], NeighboringRelation.REPLACE_ONE, "without_replacement"),
    ([Event(Gaussian(1.0), ShuffledEpochs(3), 6)], ADD_REMOVE, "moves every later batch"),
    ([Event(RandomizedResponse(3, 0.5))], ADD_REMOVE, "the number of answers"),
    ([Event(RandomizedResponse(3, 1.0))], REPLACE, "drawn at random"),
    ([Event(Exponential(1.0))], REPLACE, "exponential; it has one for gaussian"),
    ([Event(ReportNoisyMax(1.0, "laplace"))], REPLACE, "report_noisy_max; it has one for"),
    ([Event(TreeAggregation(1.0, 8, 0))], REPLACE, "never filled"),
    ([Event(GeneralizedGaussian(1.5, 4, 4.0, 1.0))], REPLACE, "moments is not a distribution"),
    ([Event(Gaussian(1.0), TruncatedPoisson(0.1, 20, 100))], ADD_REMOVE, "drops records at random"),
    ([Event(Gaussian(1.0), RandomAllocation(4, 1), 4)], ADD_REMOVE, "random_allocation sampling; it has one for"),
    ([Event(Gaussian(1.0), Poisson(0.1), 10**6)], ADD_REMOVE, "200000 steps"),
]


@pytest.mark.parametrize(("events", "relation", "words"), REFUSED)
def test_the_referee_refuses_what_it_has_no_distribution_for(
    events: list[Event], relation: NeighboringRelation, words: str
) -> None:
    with pytest.raises(Unsupported, match=words):
        check_referee(events, relation)
    with pytest.raises(Unsupported, match=words):
        referee_delta(events, relation, 1.0)


def test_the_referee_says_which_event_it_refuses() -> None:
    with pytest.raises(Unsupported) as refusal:
        check_referee([Event(Gaussian(1.0)), Event(ZcDp(1.0))], ADD_REMOVE)
    assert refusal.value.pointer == (1,)


def test_poisson_batches_under_replace_one_are_refereed() -> None:
    """Its pair is the one that `accounting.losses.poisson` proves dominating: (1-q)N(0)+qN(1), (1-q)N(0)+qN(-1)."""
    events = [Event(Gaussian(2.0), Poisson(0.1), 50)]
    ours = epsilon_for_delta(events, NeighboringRelation.REPLACE_ONE, 1e-5).value
    found = referee_epsilon(events, NeighboringRelation.REPLACE_ONE, 1e-5)
    assert ours.lower <= found + 1e-7
    assert found == pytest.approx(ours.upper, rel=1e-4)


def test_it_is_named_with_its_version() -> None:
    assert engine().startswith("dp-accounting 0.")
    assert engine().endswith(" PLD")


def test_an_integer_noise_is_read_as_a_float() -> None:
    assert referee_epsilon([Event(Gaussian(1), Poisson(0.1), 10)], ADD_REMOVE, 1e-5) == referee_epsilon(
        [Event(Gaussian(1.0), Poisson(0.1), 10)], ADD_REMOVE, 1e-5
    )
