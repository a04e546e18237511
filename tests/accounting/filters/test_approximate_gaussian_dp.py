"""The filter of approximate Gaussian DP: its promise against everyone who plays, its caps, and what amounts mean."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from operator import sub
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.canonical import canonical_bytes
from accounting.composition.gaussian_dp import delta_of_gaussian
from accounting.errors import InvalidValue
from accounting.events import (
    ApproximateDp,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RandomizedResponse,
    RenyiDp,
    ZcDp,
)
from accounting.filters import ApproximateGaussianDpFilter, PureDpFilter, RenyiFilter, filter_from_json
from accounting.filters.costs import Cost
from accounting.filters.gaussian_cover import failure_of
from accounting.tuning import TruncatedNegativeBinomial, tuning_cost
from accounting.units import ATTO, NANO, SATURATED, Amounts
from tests.accounting.filters.adversaries import Plan, Step, best_attack, binned_gaussian, response
from tests.accounting.filters.budgets import ADD_REMOVE, REPLACE, SPECIAL
from tests.accounting.references import gaussian_delta

#: Much delta and few steps, so that a mistake shows in a game that can be played to its end.
GAME = ApproximateGaussianDpFilter(2.0, 0.1, reserve_share=0.4, failure_share=0.1)
MU_SQUARED, FAILURE = GAME.caps[0] / NANO, GAME.caps[1] / ATTO
#: Three of these fill mu squared.
NOISE = math.sqrt(3.0 / MU_SQUARED) * (1.0 + 1e-9)
EDGES = tuple(0.5 + NOISE * place for place in (-1.6, -0.9, -0.4, 0.0, 0.4, 0.8, 1.2, 1.7, 2.3))
BOTH = pytest.mark.parametrize("remove", [True, False], ids=["remove", "add"])


def gaussian_limit(amounts: Amounts) -> bool:
    return amounts[0] <= GAME.caps[0] and amounts[1] <= GAME.caps[1]


@cache
def price(*events: Event) -> Amounts:
    return GAME.cost(events, ADD_REMOVE).amounts


def full_batch(remove: bool) -> Plan:
    return Plan(price(Event(Gaussian(NOISE))), (binned_gaussian(NOISE, 1.0, EDGES, remove=remove),))


def sampled(remove: bool) -> Plan:
    step = binned_gaussian(1.0, 0.25, (-1.0, 0.5, 1.5, 2.5), remove=remove)
    return Plan(price(Event(Gaussian(1.0), Poisson(0.25), 2)), (step, step))


def responses(epsilon: float, count: int) -> Plan:
    return Plan(price(Event(PureDp(epsilon), count=count)), (response(epsilon),) * count)


def failing(epsilon: float, delta: float) -> Plan:
    return Plan(price(Event(ApproximateDp(epsilon, delta))), (response(epsilon, delta),))


#: Made in the test, not when tests are collected: a sampled plan's price takes a second.
MENUS: dict[str, Callable[[bool], list[Plan]]] = {
    "two plans in flight": lambda remove: [sampled(remove), responses(0.6, 3)],
    "failures seen": lambda remove: [full_batch(remove), failing(0.0, 0.0399), failing(0.3, 0.01)],
    "both currencies": lambda remove: [responses(0.5, 1), responses(0.9, 2), sampled(remove)],
}


@pytest.mark.one_in(3)
@BOTH
@pytest.mark.parametrize("name", MENUS)
def test_nobody_attains_more_than_the_limit(name: str, remove: bool) -> None:
    """Adaptive, interleaved, abandoned: at every epsilon for the Gaussian limit, at the budget's for both."""
    menu = MENUS[name](remove)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 3.0):
        promised = FAILURE + (1.0 - FAILURE) * delta_of_gaussian(math.sqrt(MU_SQUARED), epsilon, upward=True)
        assert best_attack(menu, gaussian_limit, epsilon, 6) <= promised
    assert best_attack(menu, GAME.admits, GAME.epsilon, 6) <= GAME.delta


@BOTH
def test_the_promise_is_nearly_attained_and_is_not_without_the_failing_part(remove: bool) -> None:
    menu = MENUS["failures seen"](remove)
    for epsilon in (0.5, 2.0, 3.0):
        attained = best_attack(menu, gaussian_limit, epsilon, 4)
        alone = delta_of_gaussian(math.sqrt(MU_SQUARED), epsilon, upward=True)
        assert alone < attained <= FAILURE + (1.0 - FAILURE) * alone
        assert attained > 0.75 * (FAILURE + (1.0 - FAILURE) * alone)


def test_a_price_at_one_epsilon_alone_is_caught() -> None:
    """Randomised response below the budget's epsilon has no delta there, and would be free."""
    free = [Plan((0, 0, SATURATED), (response(0.9),))]
    assert best_attack(free, gaussian_limit, GAME.epsilon, 6) > 1.5 * GAME.delta


def test_a_plan_that_is_charged_in_its_cheaper_currency_alone_is_caught() -> None:
    """Both limits full at once are one too many: every plan is charged in both."""
    full, pure = full_batch(True), responses(0.5, 1)
    menu = [Plan((*full.price[:2], 0), full.steps), Plan((0, 0, pure.price[2]), pure.steps)]

    def admits(amounts: Amounts) -> bool:
        return gaussian_limit(amounts) and amounts[2] <= GAME.caps[2]

    assert best_attack(menu, admits, GAME.epsilon, 7) > 1.5 * GAME.delta
    assert best_attack([full, pure], GAME.admits, GAME.epsilon, 7) <= GAME.delta


# -- a Monte Carlo adversary ------------------------------------------------------------------------------------------

RUNS = 20_000
#: Sampling probability and noise of the plans of the adversary, in steps of three.
CHOICES = ((0.2, 1.5), (0.3, 2.0), (0.6, 4.0), (1.0, 8.0))


def attained_by_chance(budget: ApproximateGaussianDpFilter, prices: list[Amounts], remove: bool) -> tuple[float, float]:
    """Return the mean hockey stick at the budget's epsilon, and its standard error.

    After a likelihood ratio that rose the adversary takes rare and loud steps, after one that fell common and quiet
    ones; what does not fit is replaced by what does, and it stops when epsilon is passed by two.
    """
    rng = np.random.default_rng(26)
    loss, change, used = np.zeros(RUNS), np.zeros(RUNS), np.zeros((RUNS, 2), dtype=np.int64)
    going = np.ones(RUNS, dtype=bool)
    for _ in range(200):
        wanted = np.digitize(-change, (-0.2, 0.0, 0.2))
        chosen = np.full(RUNS, -1)
        for index in (3, 2, 1, 0):
            fits = (used[:, 0] + prices[index][0] <= budget.caps[0]) & (used[:, 1] + prices[index][1] <= budget.caps[1])
            chosen = np.where(fits & ((chosen < 0) | (wanted == index)), index, chosen)
        going &= (chosen >= 0) & (loss < budget.epsilon + 2.0)
        if not going.any():
            break
        change = np.zeros(RUNS)
        for index, (q, noise) in enumerate(CHOICES):
            here = np.flatnonzero(going & (chosen == index))
            used[here] += prices[index][:2]
            for _ in range(3):
                hit = (rng.random(len(here)) < q) & remove
                output = hit + noise * rng.standard_normal(len(here))
                ratio = np.log1p(q * np.expm1((2.0 * output - 1.0) / (2.0 * noise**2)))
                change[here] += ratio if remove else -ratio
        loss += change
    stick = np.where(loss > budget.epsilon, -np.expm1(budget.epsilon - loss), 0.0)
    return float(stick.mean()), float(stick.std() / math.sqrt(RUNS))


@BOTH
def test_an_adversary_that_chooses_plans_by_the_last_likelihood_ratio_attains_no_more_than_delta(remove: bool) -> None:
    budget = ApproximateGaussianDpFilter(1.5, 0.2)
    plans = [(Event(Gaussian(noise), Poisson(q), 3),) for q, noise in CHOICES]
    prices = [budget.cost(plan, ADD_REMOVE).amounts for plan in plans]
    mean, error = attained_by_chance(budget, prices, remove)
    assert 0.5 * budget.delta < mean <= budget.delta + 4.0 * error
    halved = [tuple(amount // 2 for amount in price) for price in prices]
    assert attained_by_chance(budget, halved, remove)[0] > 1.2 * budget.delta


# -- caps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "delta", "share", "reserve"),
    [
        (1.0, 1e-5, 0.1, 0.01),
        (3.0, 1e-6, 0.3, 0.0),
        (0.001, 1e-5, 0.1, 0.01),
        (0.1, 1e-15, 0.1, 0.01),
        (8.0, 0.5, 0.5, 0.3),
        (1e5, 1e-9, 0.1, 0.2),
    ],
)
@mp.workdps(60)
def test_the_caps_are_the_largest_with_which_delta_is_kept(
    epsilon: float, delta: float, share: float, reserve: float
) -> None:
    budget = ApproximateGaussianDpFilter(epsilon, delta, reserve, failure_share=share)
    amount, failure, pure = budget.caps
    rate = Fraction(repr(budget.delta_per_mu_squared))

    def attained(nano: int) -> mp.mpf:
        kept = math.floor(Fraction(repr(reserve)) * Fraction(repr(delta)) * ATTO)
        d = mp.mpf(math.floor(nano * rate * (ATTO // NANO)) + kept) / ATTO
        return d + (1 - d) * gaussian_delta(mp.sqrt(mp.mpf(nano) / NANO), epsilon)

    assert attained(amount) <= mp.mpf(repr(delta))
    assert attained(amount + 1 + math.ceil(amount * 1e-9)) > mp.mpf(repr(delta))
    kept = math.floor(Fraction(repr(reserve)) * Fraction(repr(delta)) * ATTO)
    assert failure == math.floor(amount * rate * (ATTO // NANO)) + kept
    assert pure == math.floor(Fraction(repr(epsilon)) * NANO)
    # Of the share that was asked for, but for the rounding of the rate to six digits, and for whole units.
    assert abs(failure - kept - share * delta * ATTO) <= 5e-2 * share * delta * ATTO + 2


def test_room_is_that_of_either_limit() -> None:
    budget = ApproximateGaussianDpFilter(1.0, 1e-5)
    amount, failure, pure = budget.caps
    assert budget.admits((amount, failure, SATURATED))
    assert not budget.admits((amount + 1, failure, pure + 1))
    assert not budget.admits((amount, failure + 1, pure + 1))
    assert budget.admits((SATURATED, SATURATED, pure))
    assert budget.admits((amount + 1, 0, pure))
    assert not budget.admits((SATURATED, 0, SATURATED))


def test_a_rate_is_kept_and_limits_may_change() -> None:
    parent = ApproximateGaussianDpFilter(1.0, 1e-5, failure_share=0.3)
    child = parent.with_limit({"epsilon": 4.0, "delta": "1e-6", "reserve_share": 0.2})
    assert child.price_terms == parent.price_terms == ("delta_per_mu_squared", (parent.delta_per_mu_squared,))
    assert (child.epsilon, child.delta, child.reserve_share) == (4.0, 1e-6, 0.2)
    child.check_child_of(parent)
    events = [Event(Gaussian(1.0), Poisson(0.01), 300), Event(ApproximateDp(0.01, 1e-9))]
    assert child.cost(events, ADD_REMOVE) == parent.cost(events, ADD_REMOVE)
    for other in ({"delta_per_mu_squared": 1e-5}, {"failure_share": 0.1}, {"kind": "gaussian_dp"}):
        with pytest.raises(InvalidValue) as refused:
            parent.with_limit(other)
        assert refused.value.pointer == (next(iter(other)),)
    with pytest.raises(InvalidValue, match="delta_per_mu_squared must be"):
        ApproximateGaussianDpFilter(1.0, 1e-5).check_child_of(parent)


def test_a_description_may_leave_the_rate_to_a_share_and_what_is_written_keeps_it() -> None:
    given = {"kind": "approximate_gaussian_dp", "epsilon": 2.0, "delta": 1e-5, "failure_share": 0.3}
    budget = filter_from_json(given)
    assert budget == ApproximateGaussianDpFilter(2.0, 1e-5, failure_share=0.3)
    assert budget != ApproximateGaussianDpFilter(2.0, 1e-5)
    written = json.loads(canonical_bytes(budget.to_json()))
    assert "failure_share" not in written
    read = filter_from_json(written)
    assert (read, read.caps, hash(read)) == (budget, budget.caps, hash(budget))


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": 1e-6}, "epsilon"),
        ({"delta": 9e-16}, "delta"),
        ({"delta": 0.6}, "delta"),
        ({"reserve_share": 0.91}, "reserve_share"),
        ({"reserve_share": -0.1}, "reserve_share"),
        ({"failure_share": 0.0}, "failure_share"),
        ({"failure_share": 0.5, "reserve_share": 0.5}, "failure_share"),
        ({"delta_per_mu_squared": 0.0}, "delta_per_mu_squared"),
        ({"delta_per_mu_squared": math.nan}, "delta_per_mu_squared"),
    ],
)
def test_what_cannot_be_a_budget_is_pointed_at(fields: dict[str, float], pointer: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        ApproximateGaussianDpFilter(**{"epsilon": 1.0, "delta": 1e-5, **fields})  # type: ignore[arg-type]  # by name
    assert refused.value.pointer == (pointer,)


# -- prices -----------------------------------------------------------------------------------------------------------

BUDGET = ApproximateGaussianDpFilter(1.0, 1e-5)


def test_gaussians_of_full_batches_have_no_failures_and_add_up_without_rounding() -> None:
    events = [Event(Gaussian(4.0), count=10**6), Event(Gaussian(0.5))]
    assert BUDGET.cost(events, REPLACE).amounts == (4 * (62_500 * NANO + 4 * NANO), 0, SATURATED)
    assert BUDGET.least_cost(events, REPLACE) == (4 * (62_500 * NANO + 4 * NANO), 0, SATURATED)


def test_what_has_a_pure_epsilon_is_charged_that_too() -> None:
    events = [Event(PureDp(0.1), count=5), Event(RandomizedResponse(2, 0.9))]
    assert BUDGET.cost(events, SPECIAL).amounts[2] == PureDpFilter(1.0).cost(events, SPECIAL).amounts[0]
    for other in (Event(Gaussian(9.0)), Event(ApproximateDp(0.1, 1e-9)), Event(ZcDp(0.01))):
        assert BUDGET.cost([*events, other], SPECIAL).amounts[2] == SATURATED


def test_stated_deltas_are_failures() -> None:
    """1 - (1 - d_0)(1 - d), d_0 their sum, rounded up."""
    without = BUDGET.cost([Event(PureDp(0.01), count=7), Event(Gaussian(9.0), Poisson(0.1), 50)], SPECIAL).amounts
    stated = BUDGET.cost([Event(ApproximateDp(0.01, 1e-7), count=7), Event(Gaussian(9.0), Poisson(0.1), 50)], SPECIAL)
    together = 1 - (1 - Fraction(7, 10**7)) * (1 - Fraction(without[1], ATTO))
    assert stated.amounts == (without[0], math.ceil(together * ATTO), SATURATED)
    assert BUDGET.cost([Event(ApproximateDp(0.0, 3e-19))], SPECIAL).amounts == (0, 1, SATURATED)
    assert BUDGET.cost([Event(ApproximateDp(0.1, 0.6), count=2)], SPECIAL).amounts[1] == ATTO


@pytest.mark.parametrize(
    ("event", "amounts"),
    [
        (Event(PureDp(0.0)), (0, 0, 0)),
        (Event(PureDp(1e-300)), (1, 0, 1)),
        (Event(PureDp(1e6), count=10**8), (SATURATED,) * 3),
        (Event(Gaussian(1e-3), count=10**8), (SATURATED,) * 3),
        (Event(Gaussian(0.05), Poisson(0.5), 10**8), (SATURATED,) * 3),
        (Event(Gaussian(1e6)), (1, 0, SATURATED)),
        (Event(Gaussian(1e3), Poisson(1e-8)), (1, 14190, SATURATED)),
    ],
    ids=repr,
)
def test_prices_at_the_edges(event: Event, amounts: Amounts) -> None:
    found = BUDGET.cost([event], ADD_REMOVE).amounts
    assert found[0] == amounts[0]
    assert abs(found[1] - amounts[1]) <= 0.001 * amounts[1]
    assert found[2] == amounts[2]
    assert all(map(int.__le__, BUDGET.least_cost([event], ADD_REMOVE), found))


@pytest.mark.thorough
def test_a_price_in_a_budget_of_the_smallest_delta_fails_with_a_unit_at_least() -> None:
    """d is rounded down to 1e-18, and a loss without a bound needs some of it."""
    budget = ApproximateGaussianDpFilter(1.0, 1e-15)
    amount, failure, _ = budget.cost([Event(Gaussian(20.0), Poisson(0.01))], ADD_REMOVE).amounts
    assert failure == 1
    assert amount <= 2 * ATTO // NANO / Fraction(repr(budget.delta_per_mu_squared)) / NANO


def test_a_guarantee_that_nothing_is_known_to_attain_has_one_unit_as_its_lower_end() -> None:
    event = Event(RenyiDp((2.0, 4.0), (0.25, 0.5)))
    assert BUDGET.cost([event], ADD_REMOVE).amounts[0] > 10**8
    assert BUDGET.least_cost([event], ADD_REMOVE)[0] == 1


def known(epsilon: float | None) -> float:
    return math.inf if epsilon is None else epsilon


# -- what amounts mean as an epsilon ----------------------------------------------------------------------------------

ALONE = {
    "poisson": Event(Gaussian(2.0), Poisson(0.02), 500),
    "full batch": Event(Gaussian(5.0)),
    "responses": Event(PureDp(0.05), count=60),
    "one laplace": Event(Laplace(2.0)),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_plan_alone_costs_its_tight_epsilon_and_little_more(name: str) -> None:
    event = ALONE[name]
    amounts = BUDGET.cost([event], ADD_REMOVE).amounts
    for delta in (1e-3, 1e-5, 1e-6):
        tight = epsilon_for_delta([event], ADD_REMOVE, delta).value
        found = BUDGET.epsilon_at(amounts, delta)
        assert found is not None
        assert tight.lower <= found
        assert delta != 1e-5 or found <= tight.upper * 1.06


def test_an_epsilon_falls_with_delta_and_grows_with_every_amount() -> None:
    amount, failure, _ = BUDGET.caps
    for amounts in ((amount, failure, SATURATED), (amount // 7, failure, SATURATED), (amount // 2, 0, 9 * 10**8)):
        found = [known(BUDGET.epsilon_at(amounts, delta)) for delta in np.geomspace(1e-9, 0.5, 40)]
        assert all(b <= a * (1 + 1e-11) for a, b in pairwise(found))
        assert found[0] == (0.9 if amounts[2] < SATURATED else math.inf)
    for along in ((amount, 0), (0, 30 * failure), (amount, failure)):
        grown = [known(BUDGET.epsilon_at((along[0] * k // 20, along[1] * k // 20, SATURATED), 1e-5)) for k in range(21)]
        assert all(b >= a * (1 - 1e-11) for a, b in pairwise(grown))
        assert grown[0] == 0.0 < grown[-1]


@pytest.mark.parametrize("epsilon", [0.003, 0.7, 1.0, 3.3, 40.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_a_full_budget_costs_its_epsilon_and_no_more(epsilon: float, delta: float) -> None:
    budget = ApproximateGaussianDpFilter(epsilon, delta)
    amount, failure, pure = budget.caps
    by_gaussian = budget.epsilon_at((amount, failure, SATURATED), delta)
    assert by_gaussian is not None
    assert 0.995 * epsilon <= by_gaussian <= epsilon * (1 + 1e-12)
    assert (budget.limit_epsilon_at(delta) or math.inf) <= epsilon * (1 + 1e-12)
    assert budget.epsilon_at((SATURATED, SATURATED, pure), delta) == pytest.approx(epsilon, abs=1e-9)
    assert float(str(budget.describe(budget.caps)["epsilon"])) <= epsilon
    assert budget.describe_remaining(budget.zero)["epsilon"] == budget.describe_limit()["epsilon"]


def test_what_is_within_an_epsilon_at_another_delta_is_within_one_box() -> None:
    """So it is a limit: amounts whose numbers are within epsilon never come to a pair of amounts beyond it.

    At the largest mu squared and the largest failures within it, taken together, the promise holds.
    """
    delta, epsilon = 1e-4, 0.6
    within = [share for share in np.linspace(0.0, 3.0, 400) if known(epsilon_of(share, 0.0, delta)) <= epsilon]
    fails = [share for share in np.linspace(0.0, 30.0, 400) if known(epsilon_of(0.0, share, delta)) <= epsilon]
    assert 0.1 < max(within) < 3.0
    assert 1.0 < max(fails) < 30.0
    assert known(epsilon_of(max(within), max(fails), delta)) <= epsilon
    mu = math.sqrt(BUDGET.caps[0] * max(within) / NANO)
    d = BUDGET.caps[1] * max(fails) / ATTO
    assert 0.9 * delta < d + (1 - d) * float(gaussian_delta(mu, epsilon)) <= delta


def test_amounts_of_one_box_have_one_epsilon() -> None:
    """What is not used of a box that was fixed beforehand does not count as left."""
    amount, delta = 30_000_000, 1e-4
    goes_with_it = failure_of(amount, Fraction(repr(BUDGET.delta_per_mu_squared))) + 5 * 10**12
    inside = [BUDGET.epsilon_at((amount, failure, SATURATED), delta) for failure in (0, 10**12, goes_with_it)]
    assert inside[0] == inside[1] == inside[2]
    outside = BUDGET.epsilon_at((amount, goes_with_it + 10**9, SATURATED), delta)
    assert known(outside) > known(inside[0])


def epsilon_of(amount_share: float, failure_share: float, delta: float) -> float | None:
    amount, failure, _ = BUDGET.caps
    return BUDGET.epsilon_at((int(amount * amount_share), int(failure * failure_share), SATURATED), delta)


def test_steps_that_are_given_show_the_law_of_the_game() -> None:
    """The pairs of the games are pairs: both laws sum to one."""
    steps: list[Step] = [response(0.4, 0.01), binned_gaussian(1.0, 0.25, (-1.0, 0.5), remove=True)]
    for step in steps:
        assert math.fsum(p for p, _ in step) == pytest.approx(1.0)
        assert math.fsum(p * math.exp(-loss) for p, loss in step) <= 1.0 + 1e-12


def test_the_count_that_fits_is_found_with_few_exact_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A denied request waits for it, and one exact price may take seconds."""
    priced: list[int] = []
    cost = ApproximateGaussianDpFilter.cost

    def counted(budget: ApproximateGaussianDpFilter, events: Sequence[Event], *given: Any) -> Cost:
        priced.append(sum(event.count for event in events))
        return cost(budget, events, *given)

    monkeypatch.setattr(ApproximateGaussianDpFilter, "cost", counted)
    events = [Event(Gaussian(4.69), Poisson(0.05), 2000)]
    found = BUDGET.largest_count_that_fits(events, ADD_REMOVE, BUDGET.zero)
    assert {found, found + 1} <= set(priced)
    assert len(priced) <= 6
    one_more = [Event(Gaussian(4.69), Poisson(0.05), found + 1)]
    assert not BUDGET.admits(cost(BUDGET, one_more, ADD_REMOVE).amounts)


# -- tails that are given up ------------------------------------------------------------------------------------------

PAIR_OF_STEPS, ONE_STEP = ((Event(Gaussian(1.0), Poisson(0.25), count),) for count in (2, 1))


def spent() -> int:
    """Failures that are spent for the plan's tail; there is as much as that and what the plan costs."""
    return price(*PAIR_OF_STEPS)[1] // 100


def attained_after(back: Amounts, remove: bool, epsilon: float) -> float:
    """Return what is attained over what is promised, where a full batch may take the place of the second step."""
    step = binned_gaussian(1.0, 0.25, [-2.5 + 6.5 * place / 23 for place in range(24)], remove=remove)
    paid = price(*PAIR_OF_STEPS)
    full = (paid[0], paid[1] + spent())
    noise = math.sqrt(NANO / back[0])
    edges = [0.5 + noise * (-3.0 + 6.0 * place / 11) for place in range(12)]
    other = Plan((back[0], 0, SATURATED), (binned_gaussian(noise, 1.0, edges, remove=remove),))
    menu = [Plan(paid, (step, step), {1: back}), other]
    attained = best_attack(menu, lambda used: used[0] <= full[0] and used[1] <= full[1], epsilon, 3)
    d = full[1] / ATTO
    return attained / (d + (1.0 - d) * delta_of_gaussian(math.sqrt(full[0] / NANO), epsilon, upward=True))


@BOTH
def test_nobody_attains_more_by_giving_tails_up(remove: bool) -> None:
    back = GAME.given_back(price(*PAIR_OF_STEPS), PAIR_OF_STEPS, ONE_STEP, ADD_REMOVE, spent())
    assert back is not None
    assert max(attained_after(back.amounts, remove, epsilon) for epsilon in (0.0, 0.5, 1.0, 1.3, 2.0, 3.0)) <= 1.0


def test_giving_back_what_the_prefix_would_not_have_cost_is_caught() -> None:
    less = tuple(whole - prefix for whole, prefix in zip(price(*PAIR_OF_STEPS)[:2], price(*ONE_STEP)[:2], strict=True))
    assert attained_after((less[0], 0, 0), True, 1.3) > 1.01


# -- what the page says -----------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs/concepts/gaussian_filter.md").read_text()
#: Of "| noise, q, steps, delta | mu squared | epsilon |".
AFTER_HALF = [
    [float(number) for number in row.strip("| ").replace("|", ",").split(",")]
    for row in PAGE.partition("| mu squared | epsilon |\n|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
]


def of_own_size(
    events: Sequence[Event], delta: float, *, pure: bool = True, **terms: float
) -> tuple[ApproximateGaussianDpFilter, float]:
    """Return the budget that has room for these events alone, and its epsilon."""
    # A pure step as a Gaussian has no room in a budget of its own epsilon.
    epsilon = epsilon_for_delta(events, ADD_REMOVE, delta).value.upper * (1.0 if pure else 4.0)
    for _ in range(8):
        budget = ApproximateGaussianDpFilter(epsilon, delta, **terms)
        amounts = budget.cost(events, ADD_REMOVE).amounts
        found = budget.epsilon_at(amounts if pure else (*amounts[:2], SATURATED), delta)
        assert found is not None
        epsilon = found
    return budget, epsilon


def test_the_page_has_its_table_of_half_plans() -> None:
    assert [len(row) for row in AFTER_HALF] == [6] * 6


@pytest.mark.one_in(3)
@pytest.mark.parametrize("row", AFTER_HALF, ids=str)
def test_half_a_plan_is_charged_what_the_page_says(row: list[float]) -> None:
    noise, q, steps, delta, mu_squared, epsilon = row
    whole, half = ([Event(Gaussian(noise), Poisson(q), int(count))] for count in (steps, steps // 2))
    budget, _ = of_own_size(whole, delta)
    paid, fixed = (budget.cost(events, ADD_REMOVE).amounts for events in (whole, half))
    back = budget.given_back(paid, whole, half, ADD_REMOVE)
    assert back is not None
    assert -back.amounts[1] == pytest.approx(5e-3 * delta * ATTO)
    net = tuple(map(sub, paid, back.amounts))
    assert net[0] / fixed[0] == pytest.approx(mu_squared, abs=2e-3)
    over = [budget.epsilon_at((amounts[0], 0, SATURATED), delta) for amounts in (net, fixed)]
    assert over[0] is not None
    assert over[1] is not None
    assert over[0] / over[1] == pytest.approx(epsilon, abs=2e-3)


@pytest.mark.parametrize(("event", "epsilon", "times"), [(Laplace(1.0), 1.0, 4.6), (PureDp(5.0), 5.0, 6.5)])
def test_pure_steps_would_cost_several_times_their_epsilon_without_the_pure_limit(
    event: Laplace | PureDp, epsilon: float, times: float
) -> None:
    assert f"{times} times" in PAGE
    _, charged = of_own_size([Event(event)], 1e-5, pure=False)
    assert charged / epsilon == pytest.approx(times, abs=0.06)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("noise", "q", "steps"), [(4.69, 0.05, 600), (1.08939, 0.02, 5000), (4.0, 0.01, 10_000)])
def test_the_reserve_takes_two_or_three_thousandths(noise: float, q: float, steps: int) -> None:
    assert "the first three plans of the table above 0.2 to 0.3 percent less" in " ".join(PAGE.split())
    events = [Event(Gaussian(noise), Poisson(q), steps)]
    small, large = (of_own_size(events, 1e-5, reserve_share=share)[1] for share in (0.01, 0.05))
    assert 0.002 < large / small - 1.0 < 0.0035


def test_the_best_of_several_runs_is_cheaper_in_a_renyi_budget() -> None:
    """Its moments are flat at small orders, so that its cover is far above them."""
    assert "costs 3.9 times its tight epsilon here, and 1.2 times in a `renyi_dp` budget" in " ".join(PAGE.split())
    renyi = RenyiFilter(4.0, 1e-5)
    run = (Event(Gaussian(20.0), count=20),)
    found = tuning_cost(run, ADD_REMOVE, TruncatedNegativeBinomial(1, 1 / 3), 1e-5, orders=list(renyi.orders))
    assert found.moments is not None
    best = Event(RenyiDp(renyi.orders, tuple(found.moments.epsilons)))
    tight = found.epsilon.value.upper
    for budget, times in ((ApproximateGaussianDpFilter(4.0, 1e-5), 3.9), (renyi, 1.2)):
        charged = budget.epsilon_at(budget.cost([best], ADD_REMOVE).amounts, 1e-5)
        assert charged is not None
        assert charged / tight == pytest.approx(times, abs=0.1)


@pytest.mark.parametrize(("share", "stated"), [(0.01, 0.95), (0.05, 0.71)])
def test_after_half_a_plan_a_larger_reserve_shows_more_of_what_came_back(share: float, stated: float) -> None:
    assert f"{stated}" in PAGE
    whole, half = ([Event(Gaussian(4.69), Poisson(0.05), count)] for count in (600, 300))
    budget = ApproximateGaussianDpFilter(1.02, 1e-5, reserve_share=share)
    paid = budget.cost(whole, ADD_REMOVE).amounts
    back = budget.given_back(paid, whole, half, ADD_REMOVE)
    assert back is not None
    net = budget.epsilon_at(tuple(map(sub, paid, back.amounts)), 1e-5)
    assert net == pytest.approx(stated, abs=0.01)
