"""The bound of one run, against exact sums and against mechanisms that use their delta as badly as they can."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from accounting.errors import InvalidValue
from trainer.audit.one_run import epsilon_from_one_run, p_value


def exact_p_value(m: int, r: int, v: int, odds: Fraction, delta: Fraction) -> Fraction:
    """The theorem in rational arithmetic, for epsilon = ln(odds)."""
    rate = odds / (1 + odds)
    mass = [math.comb(r, k) * rate**k * (1 - rate) ** (r - k) for k in range(r + 1)]
    worst = max((sum(mass[max(0, v - i) : v], Fraction(0)) / i for i in range(1, m + 1)), default=Fraction(0))
    return min(Fraction(1), sum(mass[v:], Fraction(0)) + 2 * m * delta * worst)


@pytest.mark.parametrize(("m", "r"), [(1, 1), (12, 12), (40, 9), (30, 0)])
@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 1000), Fraction(1, 7)])
@pytest.mark.parametrize("odds", [Fraction(1), Fraction(5, 2), Fraction(50)])
def test_p_values_are_the_theorems(m: int, r: int, delta: Fraction, odds: Fraction) -> None:
    for v in range(r + 1):
        expected = exact_p_value(m, r, v, odds, delta)
        assert p_value(m, r, v, math.log(odds), float(delta)) == pytest.approx(float(expected), rel=2e-9)


@pytest.mark.parametrize("revealed", [1, 5, 20])
def test_a_mechanism_that_reveals_many_canaries_at_once_stays_below_its_p_value(revealed: int) -> None:
    """Randomized responses about m canaries; with probability m delta / i it reveals i of them, drawn at random.

    Each canary is revealed with probability delta, so this is (epsilon, delta)-DP. Without the term for delta the
    probability would be exceeded.
    """
    m, epsilon, delta = 60, 1.0, 0.003
    rate, chance = 1.0 / (1.0 + math.exp(-epsilon)), m * delta / revealed
    wrong = 0
    for v in range(m + 1):
        usual = float(stats.binom.sf(v - 1, m, rate))
        honest = (1.0 - chance) * usual + chance * float(stats.binom.sf(v - revealed - 1, m - revealed, rate))
        assert honest <= p_value(m, m, v, epsilon, delta)
        wrong += honest > p_value(m, m, v, epsilon, 0.0)
    assert wrong > 5


def test_one_run_exceeds_the_truth_in_at_most_one_case_of_twenty_and_nearly_so() -> None:
    """Randomized responses, the worst pure mechanism: the exact law of the bound."""
    epsilon = 1.5
    rate = 1.0 / (1.0 + math.exp(-epsilon))
    exceeding = [v for v in range(501) if epsilon_from_one_run(800, 500, v, 0.0, 0.95) > epsilon]
    assert 0.02 <= float(np.sum(stats.binom.pmf(exceeding, 500, rate))) <= 0.05


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-3])
@pytest.mark.parametrize(("r", "v"), [(100, 100), (100, 93), (1000, 700), (3, 3)])
def test_the_bound_is_where_rejection_ends(r: int, v: int, delta: float) -> None:
    bound = epsilon_from_one_run(1000, r, v, delta, 0.95)
    error = 1.0 - 0.95
    if bound > 0.0:
        assert p_value(1000, r, v, bound, delta) <= error < p_value(1000, r, v, bound * (1.0 + 1e-6), delta)
    else:
        assert p_value(1000, r, v, 0.0, delta) > error


def test_all_guesses_right_gives_the_closed_form() -> None:
    rate = 0.05**0.01
    assert epsilon_from_one_run(100, 100, 100, 0.0, 0.95) == pytest.approx(math.log(rate / (1.0 - rate)), rel=1e-6)


def test_canaries_that_were_not_guessed_cost_through_delta_alone() -> None:
    assert epsilon_from_one_run(10**6, 100, 99, 0.0, 0.95) == epsilon_from_one_run(100, 100, 99, 0.0, 0.95)
    assert epsilon_from_one_run(10**4, 100, 99, 1e-6, 0.95) < epsilon_from_one_run(100, 100, 99, 1e-6, 0.95)


def test_impossible_guesses_are_refused() -> None:
    for m, r, v in ((10, 11, 5), (10, 5, 6)):
        with pytest.raises(InvalidValue):
            p_value(m, r, v, 1.0, 0.0)
