from __future__ import annotations

import math

import pytest

from accounting.accountant import deltas_for_epsilons, epsilons_for_deltas
from accounting.dp_accounting_adapter import REFEREE_ALLOWANCE, referee_epsilon
from accounting.events import (
    ApproximateDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Gaussian,
    GaussianMixture,
    Laplace,
    Poisson,
    PureDp,
    RandomizedResponse,
    ShuffledEpochs,
)
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.second_opinion import MAX_INTERVAL, MIN_INTERVAL, lattice_step, opinions_on_delta, opinions_on_epsilon

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
LISTS = [
    ([Event(Gaussian(1.0), Poisson(0.02), 500)], ADD_REMOVE),
    ([Event(Gaussian(2.0), Poisson(0.1), 100), Event(Gaussian(9.0), count=50)], REPLACE),
    ([Event(Gaussian(0.5))], REPLACE),
    ([Event(Gaussian(3.0), ShuffledEpochs(10), 95)], NeighboringRelation.REPLACE_SPECIAL),
    ([Event(Laplace(5.0), count=10), Event(PureDp(0.05), count=3)], ADD_REMOVE),
    ([Event(DiscreteLaplace(12.0, 0.5), count=10), Event(DiscreteGaussian(9.0, 0.5), count=4)], REPLACE),
    ([Event(RandomizedResponse(10, 0.95), count=12)], REPLACE),
    ([Event(GaussianMixture((0.8, 0.2), (3.0, 2.0)), Poisson(0.1), 100)], ADD_REMOVE),
]


@pytest.mark.parametrize(("events", "relation"), LISTS)
@pytest.mark.one_in(4)
def test_it_agrees_with_what_is_right_and_not_with_what_is_wrong(
    events: list[Event], relation: NeighboringRelation
) -> None:
    deltas = [1e-4, 1e-7]
    answers = [answer.value for answer in epsilons_for_deltas(events, relation, deltas)]
    step = lattice_step(events, answers[0].upper)
    for interval, opinion in zip(answers, opinions_on_epsilon(events, relation, deltas, step), strict=True):
        assert opinion.agrees(interval) is True
        assert opinion.discretization < 0.02 * interval.upper
        # An account that is three percent off, either way: a wrong one is told from a right one.
        assert opinion.agrees(_scaled(interval, 0.97)) is False
        assert opinion.agrees(_scaled(interval, 1.03)) is False
    epsilons = [interval.upper for interval in answers]
    found = [answer.value for answer in deltas_for_epsilons(events, relation, epsilons)]
    for interval, opinion in zip(found, opinions_on_delta(events, relation, epsilons, step), strict=True):
        assert opinion.agrees(interval) is True
        assert opinion.agrees(_scaled(interval, 2.0)) is False
        # Near the end of a bounded loss delta is steep, and the lattice coarse beside it.
        assert opinion.agrees(_scaled(interval, 0.5)) is False or isinstance(
            events[-1].mechanism, PureDp | RandomizedResponse
        )


def _scaled(interval: Interval, factor: float) -> Interval:
    """As if the truth were so many times as large, and the interval narrow."""
    return Interval(interval.upper * factor, interval.upper * factor, interval.upper * factor)


def test_poisson_instead_of_shuffling_is_told() -> None:
    """The field's standing error: 1.95 where 10.99 is attained."""
    shuffled = [Event(Gaussian(0.5), ShuffledEpochs(10_000), 10_000)]
    [wrong] = epsilons_for_deltas([Event(Gaussian(0.5), Poisson(1e-4), 10_000)], ADD_REMOVE, [1e-6])
    [opinion] = opinions_on_epsilon(shuffled, NeighboringRelation.REPLACE_SPECIAL, [1e-6], 1e-3)
    assert opinion.value == pytest.approx(10.9971512, abs=5e-3)
    assert opinion.agrees(wrong.value) is False
    assert opinion.position(wrong.value) == "above"


def test_it_cannot_tell_where_its_rounding_hides_the_answer() -> None:
    events = [Event(Gaussian(4.0), Poisson(0.01), 1000)]
    for opinion in opinions_on_epsilon(events, ADD_REMOVE, [1e-18, 0.0, REFEREE_ALLOWANCE], 1e-4):
        assert opinion.agrees(Interval(0.0, 1.0, 1e9)) is None
    [huge] = opinions_on_epsilon([Event(Gaussian(0.05), count=10)], ADD_REMOVE, [1e-6], 1e-2)
    assert huge.agrees(Interval(0.0, 1.0, 1e9)) is None
    for nothing in opinions_on_delta([Event(Laplace(1.0))], ADD_REMOVE, [701.0, 2.0], 1e-3):
        assert nothing.value <= 1e-14
        assert nothing.agrees(Interval(0.0, 0.0, 0.0)) is None
    [tiny] = opinions_on_delta(events, ADD_REMOVE, [1.2], 1e-4)
    assert 0 < tiny.value < 2 * REFEREE_ALLOWANCE
    assert tiny.agrees(Interval(0.0, 0.0, 0.0)) is None


def test_the_allowances_hold_the_distance_to_a_finer_lattice() -> None:
    for events, relation in LISTS[:2]:
        [coarse] = opinions_on_epsilon(events, relation, [1e-6], 2e-3)
        fine = referee_epsilon(events, relation, 1e-6, interval=1e-4)
        assert fine - coarse.rounding <= coarse.value <= fine + coarse.discretization


def test_random_answers_are_rounded_up_at_every_step() -> None:
    answers = [Event(RandomizedResponse(10, 0.95), count=100)]
    [coarse] = opinions_on_epsilon(answers, REPLACE, [1e-6], 2e-3)
    [truth] = epsilons_for_deltas(answers, REPLACE, [1e-6])
    assert truth.value.upper + 3.0 * 2e-3 < coarse.value <= truth.value.upper + coarse.discretization
    assert coarse.agrees(truth.value) is True


def test_stated_guarantees_have_their_distribution() -> None:
    stated = [Event(PureDp(0.5), count=2), Event(ApproximateDp(0.3, 1e-6))]
    [opinion] = opinions_on_epsilon(stated, ADD_REMOVE, [1e-6], 1e-4)
    assert opinion.value == pytest.approx(1.3, abs=1e-3)


def test_the_lattice_is_fine_for_many_steps_and_never_beyond_its_bounds() -> None:
    one, many = [Event(Gaussian(1.0))], [Event(Gaussian(1.0), Poisson(0.1), 10**6)]
    assert lattice_step(many, 1.0) < lattice_step(one, 1.0)
    for epsilon in (1e-9, 1.0, 1e9, math.inf):
        assert MIN_INTERVAL <= lattice_step(one, epsilon) <= MAX_INTERVAL
