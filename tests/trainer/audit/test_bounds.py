"""Lower bounds from independent trials, against sums over every outcome."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue
from trainer.audit.bounds import (
    epsilon_from_guesses,
    epsilon_from_rates,
    lower_limit,
    mu_from_rates,
    rate_limits,
    upper_limit,
)

ERROR = 0.05


@pytest.mark.parametrize(("successes", "trials"), [(0, 7), (1, 7), (7, 7), (3, 1000), (5, 10**8)])
@pytest.mark.parametrize("error", [0.5, 0.05, 1e-9])
def test_limits_are_where_the_tail_has_the_error(successes: int, trials: int, error: float) -> None:
    low, high = lower_limit(successes, trials, error), upper_limit(successes, trials, error)
    assert 0.0 <= low < high <= 1.0
    if successes:
        assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(error, rel=1e-5)
    if successes < trials:
        assert stats.binom.cdf(successes, trials, high) == pytest.approx(error, rel=1e-5)


def chance_of_exceeding_by_guesses(trials: int, epsilon: float, delta: float, kinds: int, talk: float) -> float:
    """Probability that the bound is above epsilon, for the (epsilon, delta)-DP rule with the most right guesses.

    With probability delta the coin is revealed. Otherwise the attacker guesses with probability ``talk``, right with
    odds e^epsilon. Who says one kind alone is silent in half of the cases.
    """
    part = kinds / 2.0
    spoken = (1.0 - delta) * talk * part
    rate = math.exp(epsilon) / (1.0 + math.exp(epsilon))
    probabilities = [spoken * rate + delta * part, spoken * (1.0 - rate)]
    total = 0.0
    for right in range(trials + 1):
        for wrong in range(trials + 1 - right):
            if epsilon_from_guesses(trials, right + wrong, right, delta, 1.0 - ERROR, kinds) > epsilon:
                counts = [right, wrong, trials - right - wrong]
                total += stats.multinomial.pmf(counts, trials, [*probabilities, 1.0 - sum(probabilities)])
    return total


@pytest.mark.parametrize(
    ("epsilon", "delta", "kinds", "talk"),
    [(0.0, 0.0, 2, 1.0), (1.0, 0.0, 1, 0.5), (1.0, 0.1, 2, 0.3), (0.5, 0.02, 1, 0.6), (3.0, 0.3, 2, 1.0)],
)
def test_guesses_exceed_the_truth_in_at_most_one_case_of_twenty(
    epsilon: float, delta: float, kinds: int, talk: float
) -> None:
    assert chance_of_exceeding_by_guesses(40, epsilon, delta, kinds, talk) <= ERROR


def test_guesses_exceed_the_truth_nearly_as_often_as_they_may() -> None:
    """So the bound is no weaker than it must be: with many guesses and delta 0 the limit is nearly attained."""
    rate = 0.9
    epsilon = math.log(rate / (1.0 - rate))
    exceeding = [v for v in range(2001) if epsilon_from_guesses(2000, 2000, v, 0.0, 0.95, 2) > epsilon]
    assert 0.03 <= float(np.sum(stats.binom.pmf(exceeding, 2000, rate))) <= ERROR


def chance_of_exceeding_by_rates(members: int, others: int, tpr: float, fpr: float, delta: float) -> float:
    """Probability that the bound is above the smallest epsilon which allows both rates at delta."""
    epsilon = max(0.0, math.log((tpr - delta) / fpr), math.log((1.0 - fpr - delta) / (1.0 - tpr)))
    return sum(
        float(stats.binom.pmf(hits, members, tpr) * stats.binom.pmf(alarms, others, fpr))
        for hits, alarms in itertools.product(range(members + 1), range(others + 1))
        if epsilon_from_rates(hits, members, alarms, others, delta, 1.0 - ERROR) > epsilon
    )


@pytest.mark.parametrize(
    ("tpr", "fpr", "delta"), [(0.5, 0.5, 0.0), (0.9, 0.3, 0.01), (0.3, 0.02, 0.0), (0.98, 0.6, 0.1)]
)
def test_rates_exceed_the_truth_in_at_most_one_case_of_twenty(tpr: float, fpr: float, delta: float) -> None:
    assert chance_of_exceeding_by_rates(30, 45, tpr, fpr, delta) <= ERROR


@pytest.mark.parametrize(("mu", "threshold"), [(0.0, 0.0), (1.0, 0.5), (2.0, 1.8)])
def test_mu_exceeds_the_truth_in_at_most_one_case_of_twenty(mu: float, threshold: float) -> None:
    tpr, fpr = float(stats.norm.sf(threshold - mu)), float(stats.norm.sf(threshold))
    chance = sum(
        float(stats.binom.pmf(hits, 60, tpr) * stats.binom.pmf(alarms, 60, fpr))
        for hits, alarms in itertools.product(range(61), range(61))
        if mu_from_rates(hits, 60, alarms, 60, 1.0 - ERROR) > mu
    )
    assert chance <= ERROR


@pytest.mark.parametrize(("epsilon", "delta", "kinds"), [(1.0, 0.0, 1), (1.0, 0.1, 1), (1.0, 0.1, 2), (4.0, 1e-5, 2)])
def test_guesses_prove_everything_in_the_end(epsilon: float, delta: float, kinds: int) -> None:
    """With 10^8 trials of the rule with the most right guesses, as many as expected of each outcome."""
    trials, part = 10**8, kinds / 2.0
    spoken = 0.5 * (1.0 - delta) * part
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    right, wrong = round(trials * (spoken * rate + delta * part)), round(trials * spoken * (1.0 - rate))
    # Delta is needed in one direction only where one kind is silent: the truth is ln((A - kinds delta) / B).
    truth = math.log((2.0 * right / trials - kinds * delta) / (2.0 * wrong / trials))
    assert truth - 3e-3 < epsilon_from_guesses(trials, right + wrong, right, delta, 0.95, kinds) < truth


def test_rates_prove_everything_in_the_end() -> None:
    many = 5 * 10**7
    assert epsilon_from_rates(many // 4, many, many // 100, many, 0.05, 0.95) == pytest.approx(math.log(20), abs=5e-3)
    assert mu_from_rates(many // 4, many, many // 100, many, 0.95) == pytest.approx(1.65186, abs=3e-3)


def test_both_limits_of_a_rate_share_the_error() -> None:
    assert rate_limits(30, 100, 7, 90, 0.9) == pytest.approx((lower_limit(30, 100, 0.05), upper_limit(7, 90, 0.05)))


def test_the_two_directions_of_a_test_mirror_each_other() -> None:
    """Taking every member for one and some others too says as much as taking no other and some members."""
    assert epsilon_from_rates(1000, 1000, 600, 1000, 0.01, 0.95) == pytest.approx(
        epsilon_from_rates(400, 1000, 0, 1000, 0.01, 0.95), rel=1e-6
    )


def test_more_delta_proves_less() -> None:
    for bound in (
        [epsilon_from_guesses(10_000, 500, 490, d, 0.95, 2) for d in (0.0, 1e-5, 1e-3, 1e-2, 0.03, 0.9)],
        [epsilon_from_rates(500, 5000, 10, 5000, d, 0.95) for d in (0.0, 1e-5, 1e-3, 1e-2, 0.05, 0.9)],
    ):
        assert bound == sorted(bound, reverse=True)
        assert bound[0] > bound[-2] > bound[-1] == 0.0


def test_nothing_seen_proves_nothing() -> None:
    assert epsilon_from_guesses(100, 0, 0, 1e-5, 0.95, 2) == 0.0
    assert epsilon_from_guesses(0, 0, 0, 0.0, 0.95, 1) == 0.0
    assert epsilon_from_guesses(100, 100, 50, 0.0, 0.95, 2) == 0.0
    assert epsilon_from_rates(0, 0, 0, 0, 0.0, 0.95) == 0.0
    assert mu_from_rates(0, 0, 0, 0, 0.95) == 0.0


@pytest.mark.parametrize(
    "arguments",
    [(10, 11, 5, 0.0, 0.95, 2), (10, 5, 6, 0.0, 0.95, 2), (10, 5, 5, 1.0, 0.95, 2), (10, 5, 5, 0.0, 1.0, 2)],
)
def test_impossible_counts_are_refused(arguments: tuple[int, int, int, float, float, int]) -> None:
    with pytest.raises(InvalidValue):
        epsilon_from_guesses(*arguments)
