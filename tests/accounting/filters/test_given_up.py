"""What a tail that is given up is worth: proved in each direction, close to what could be proved, else nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from accounting.composition.composition import Composition, compose
from accounting.composition.gaussian_dp import delta_of_gaussian
from accounting.composition.one_direction import deltas_in
from accounting.discrepancy import Discrepancy
from accounting.events import (
    Event,
    FullBatch,
    Gaussian,
    Laplace,
    Mechanism,
    Poisson,
    RandomAllocation,
    Sampling,
    ShuffledEpochs,
    TreeAggregation,
    TruncatedPoisson,
    WithoutReplacement,
    WithReplacement,
    ZcDp,
)
from accounting.filters import ApproximateGaussianDpFilter, GaussianDpFilter, PureDpFilter, ZcdpFilter, given_up
from accounting.filters.given_up import _is_proved, _lines, _Node, _nodes, tail_of, worth_of
from accounting.intervals import Bounds
from accounting.losses.privacy_loss import Direction
from accounting.relations import NeighboringRelation
from accounting.units import ATTO, NANO, SATURATED, Amounts
from tests.accounting.filters.budgets import ADD_REMOVE, REPLACE, SPECIAL

FAILURE = 10**10
BUDGET = ApproximateGaussianDpFilter(1.0, 1e-5)
WHOLE = (Event(Gaussian(4.69), Poisson(0.05), 600),)
HALF = (Event(Gaussian(4.69), Poisson(0.05), 300),)

TAILS = [
    (ADD_REMOVE, Gaussian(4.69), Poisson(0.05), 300),
    (ADD_REMOVE, Gaussian(1.0), Poisson(0.1), 2),
    (REPLACE, Gaussian(2.0), Poisson(0.02), 100),
    (REPLACE, Gaussian(2.0), WithoutReplacement(20, 1000), 100),
    (SPECIAL, Gaussian(2.0), WithReplacement(20, 1000), 400),
    (ADD_REMOVE, Gaussian(2.0), TruncatedPoisson(0.02, 60, 1000), 100),
]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("relation", "mechanism", "sampling", "count"), TAILS)
def test_both_directions_are_above_the_gaussian_between_the_nodes_too(
    relation: NeighboringRelation, mechanism: Mechanism, sampling: Sampling, count: int
) -> None:
    tail = [Event(mechanism, sampling, count)]
    found = worth_of(tail, relation, FAILURE)
    assert 0 < found.least <= found.most < found.least * 1.001
    if isinstance(sampling, TruncatedPoisson):
        tail = [Event(mechanism, Poisson(sampling.sampling_probability), count)]
    composition, d = compose(tail, relation), FAILURE / ATTO
    mu = math.sqrt(found.least / NANO)
    epsilons = [mu * index / 30.0 for index in range(240)]
    larger, beyond = math.sqrt(1.01 * found.most / NANO), 0
    for direction in Direction:
        answers = deltas_in(direction, composition, epsilons, one_by_one=False)
        for epsilon, delta in zip(epsilons, answers, strict=True):
            if delta is None:
                continue
            assert delta_of_gaussian(mu, epsilon, upward=False) <= (d + (1.0 - d) * delta.upper) * (1.0 + 1e-12)
            beyond += delta_of_gaussian(larger, epsilon, upward=False) > d + (1.0 - d) * delta.upper
    assert beyond, "a larger Gaussian is above somewhere"


def test_the_smaller_direction_decides() -> None:
    """The larger one, which a price takes, would be worth more."""
    epsilon = 0.6
    remove, add = (deltas_in(direction, compose(HALF, ADD_REMOVE), [epsilon])[0] for direction in Direction)
    assert remove is not None
    assert add is not None
    mu = math.sqrt(worth_of(HALF, ADD_REMOVE, FAILURE).least / NANO)
    assert delta_of_gaussian(mu, epsilon, upward=True) <= FAILURE / ATTO + add.upper < remove.lower


def test_beyond_the_last_answer_the_gaussian_is_within_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is known from an epsilon on, the tail is worth less, and not nothing."""
    last, whole = 0.4, worth_of(HALF, ADD_REMOVE, FAILURE)

    def up_to_the_last(
        direction: Direction, composition: Composition, epsilons: Sequence[float], *, one_by_one: bool = True
    ) -> list[Bounds | None]:
        found = deltas_in(direction, composition, epsilons, one_by_one=one_by_one)
        return [bounds if epsilon <= last else None for epsilon, bounds in zip(epsilons, found, strict=True)]

    monkeypatch.setattr(given_up, "deltas_in", up_to_the_last)
    found = worth_of(HALF, ADD_REMOVE, FAILURE)
    assert 0 < found.least < whole.least
    assert delta_of_gaussian(math.sqrt(found.least / NANO), last, upward=False) <= FAILURE / ATTO


def test_lower_ends_alone_prove_a_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are far apart are worth no more than a profile at their lower ends."""

    def between(lower: float, upper: float) -> int:
        def moved(*asked: object, **given: object) -> list[Bounds | None]:
            found = deltas_in(*asked, **given)  # type: ignore[arg-type]
            return [None if each is None else Bounds(lower * each.lower, upper * each.upper) for each in found]

        monkeypatch.setattr(given_up, "deltas_in", moved)
        return worth_of(HALF, ADD_REMOVE, FAILURE).least

    narrow = between(0.7, 0.7)
    assert 0 < between(0.7, 1.0) <= narrow < 0.9 * between(1.0, 1.0)


def test_a_line_is_below_every_convex_profile_between_the_bounds() -> None:
    """The profile that is a line in exp(e), at the lower end of the second node and the upper one of the third."""
    epsilons = (0.3, 0.7, 1.4)
    left, right, beyond = (0.9 - 0.2 * math.exp(epsilon) for epsilon in epsilons)
    nodes = (_Node(0.3, 0.0, 1.0), _Node(0.7, right, 0.9), _Node(1.4, 0.0, beyond))
    (_, least), *_ = _lines(nodes)
    assert left * (1.0 - 1e-12) <= least <= left


def test_only_a_gaussian_below_every_node_and_within_the_failure_is_proved() -> None:
    """The proof does not rest on what the search found."""
    d, amount = 1e-4, NANO // 4
    mu, epsilons = math.sqrt(amount / NANO), [0.05 * index for index in range(45)]
    exact = [delta_of_gaussian(mu, epsilon, upward=True) for epsilon in epsilons]
    assert exact[0] > exact[29] > d > exact[-1]
    nodes = [_Node(epsilon, 2.0 * delta, 2.0 * delta) for epsilon, delta in zip(epsilons, exact, strict=True)]
    assert _is_proved(nodes, amount, d)
    assert not _is_proved(nodes[:30], amount, d), "beyond the last node it is above the failure"
    nodes[20] = nodes[20]._replace(lower=0.99 * exact[20])
    assert not _is_proved(nodes, amount, d)


def test_what_a_list_may_be_from_its_steps_is_taken_off() -> None:
    composition, off, d = compose(HALF, ADD_REMOVE), 1e-6, FAILURE / ATTO
    near = replace(composition, discrepancy=Discrepancy(off))
    ((_, lower, upper),) = _nodes(composition, Direction.ADD, d, [0.4])
    ((_, least, most),) = _nodes(near, Direction.ADD, d, [0.4])
    assert lower - least >= off * (1.0 - d) * (1.0 - 1e-6)
    assert most - upper >= off * (1.0 - d) * (1.0 - 1e-6)


def test_full_batches_are_rounded_down() -> None:
    assert worth_of([Event(Gaussian(3.0))], ADD_REMOVE, 0).least / Fraction(NANO) <= Fraction(1, 9)
    events, kept = ((Event(Gaussian(3.0), count=count),) for count in (9, 4))
    paid = BUDGET.cost(events, ADD_REMOVE).amounts
    back = BUDGET.given_back(paid, events, kept, ADD_REMOVE)
    assert back is not None
    assert Fraction(paid[0] - back.amounts[0], NANO) >= Fraction(4, 9), "what is left pays for what was taken"


def test_full_batches_are_worth_what_they_cost_and_spend_nothing() -> None:
    found = worth_of([Event(Gaussian(2.0), FullBatch(), 3)], ADD_REMOVE, 0)
    assert (found.least, found.failure) == (pytest.approx(0.75 * NANO, abs=3), 0)
    assert worth_of(HALF, ADD_REMOVE, 0).least == 0, "a sampled loss is bounded on one side"


@pytest.mark.parametrize(
    "event",
    [
        Event(Gaussian(2.0), ShuffledEpochs(10), 100),
        Event(Gaussian(2.0), RandomAllocation(10, 1), 100),
        Event(TreeAggregation(2.0, 16, 0), FullBatch(), 3),
        Event(ZcDp(0.1), FullBatch(), 3),
    ],
    ids=["shuffled", "allocation", "tree", "stated"],
)
def test_steps_that_share_randomness_or_are_only_stated_are_worth_nothing(event: Event) -> None:
    assert tail_of([event], []) == ()
    assert tail_of([event, *WHOLE], []) == WHOLE


def test_the_net_charge_after_half_a_plan() -> None:
    """It is more than the charge of the half fixed in advance, and at most 1.06 times that."""
    paid = BUDGET.cost(WHOLE, ADD_REMOVE).amounts
    back = BUDGET.given_back(paid, WHOLE, HALF, ADD_REMOVE)
    assert back is not None
    half = BUDGET.cost(HALF, ADD_REMOVE).amounts
    assert 1.0 < (paid[0] - back.amounts[0]) / half[0] < 1.06
    assert back.amounts[1:] == (-5 * 10**10, 0)
    assert back.amounts[0] <= back.most[0]


def test_the_whole_plan_is_worth_less_than_it_costs() -> None:
    paid = BUDGET.cost(WHOLE, ADD_REMOVE).amounts
    back = BUDGET.given_back(paid, WHOLE, (), ADD_REMOVE)
    assert back is not None
    assert 0.9 * paid[0] < back.most[0] < paid[0]


def full_batches_in(budget: ApproximateGaussianDpFilter) -> tuple[Amounts, Amounts]:
    events, kept = ((Event(Gaussian(5.0), count=count),) for count in (10, 4))
    paid = budget.cost(events, ADD_REMOVE).amounts
    back = budget.given_back(paid, events, kept, ADD_REMOVE)
    assert back is not None
    return paid, back.amounts


def test_full_batches_are_given_back_exactly() -> None:
    assert full_batches_in(BUDGET) == ((400_000_000, 0, SATURATED), (240_000_000, 0, 0))
    without_reserve = ApproximateGaussianDpFilter(1.0, 1e-5, reserve_share=0.0)
    assert full_batches_in(without_reserve)[1] == (240_000_000, 0, 0)
    paid = without_reserve.cost(WHOLE, ADD_REMOVE).amounts
    assert without_reserve.given_back(paid, WHOLE, HALF, ADD_REMOVE) is None


def test_a_plan_with_a_pure_price_gets_nothing() -> None:
    """While pure epsilons decide, amounts must only grow."""
    assert tail_of([Event(Laplace(1.0), count=10)], []) == ()
    paid = BUDGET.cost(WHOLE, ADD_REMOVE).amounts
    assert BUDGET.given_back((*paid[:2], SATURATED - 1), WHOLE, HALF, ADD_REMOVE) is None


def test_a_plan_that_was_charged_less_than_it_costs_gets_nothing() -> None:
    amount, failure, pure = BUDGET.cost(WHOLE, ADD_REMOVE).amounts
    for less in ((amount - 1, failure, pure), (amount, failure - 1, pure)):
        assert BUDGET.given_back(less, WHOLE, HALF, ADD_REMOVE) is None
    assert BUDGET.given_back((amount + 1, failure + 1, pure), WHOLE, HALF, ADD_REMOVE) is not None


@pytest.mark.thorough
def test_large_batches_with_null_records_are_worth_less_than_they_cost() -> None:
    """They are paid for by their own pair, which lies below the Gaussians of distance 1 here, and given back by it."""
    events = (Event(Gaussian(2.0), WithoutReplacement(900, 1000), 4),)
    paid = BUDGET.cost(events, SPECIAL).amounts
    assert 0.9 * NANO < paid[0] < NANO
    back = BUDGET.given_back(paid, events, (Event(Gaussian(2.0), WithoutReplacement(900, 1000), 1),), SPECIAL)
    assert back is not None
    assert 0.4 * NANO < back.amounts[0] < 0.75 * paid[0]


def test_other_filters_give_nothing_back() -> None:
    for budget in (PureDpFilter(1.0), ZcdpFilter(1.0), GaussianDpFilter(1.0)):
        events = (Event(Laplace(1.0), count=10),)
        assert budget.given_back(budget.cost(events, ADD_REMOVE).amounts, events, (), ADD_REMOVE) is None


@pytest.mark.thorough
def test_a_tail_with_a_stated_step_beside_it_is_worth_what_is_known_of_it() -> None:
    events = (*WHOLE, Event(ZcDp(0.001)))
    paid = BUDGET.cost(events, ADD_REMOVE).amounts
    back = BUDGET.given_back(paid, events, HALF, ADD_REMOVE)
    alone = BUDGET.given_back(BUDGET.cost(WHOLE, ADD_REMOVE).amounts, WHOLE, HALF, ADD_REMOVE)
    assert back is not None
    assert back == alone


def test_the_failure_that_an_entry_says_is_taken() -> None:
    paid = BUDGET.cost(WHOLE, ADD_REMOVE).amounts
    backs = [BUDGET.given_back(paid, WHOLE, HALF, ADD_REMOVE, failure) for failure in (10**9, 10**11)]
    (least, spent), (most, more_spent) = [back.amounts[:2] for back in backs if back is not None]
    assert (spent, more_spent) == (-(10**9), -(10**11))
    assert least < most < 1.02 * least
