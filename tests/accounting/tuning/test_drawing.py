"""Drawing the number of trials: the law given the cap, and what the cap costs."""

from __future__ import annotations

import math
import random
from collections import Counter
from itertools import accumulate, pairwise

import numpy as np
import pytest

from accounting.errors import Unsupported
from accounting.guarantees import RenyiDpGuarantee
from accounting.tuning.drawing import (
    CUT,
    MAX_TRIALS,
    capped_epsilon,
    capped_moments,
    delta_before_cap,
    draw_trials,
    most_trials,
    trials_quantile,
)
from accounting.tuning.trials import PoissonTrials, RandomTrials, TruncatedNegativeBinomial
from tests.accounting.tuning.test_trials import LAWS, probabilities


def shares(law: RandomTrials) -> np.ndarray:
    """P(K = 0), P(K = 1) and so on, from draws at every place where the answer may change."""
    totals: list[int] = []

    def first(total: int) -> int:
        totals.append(total)
        return 0

    draw_trials(law, first)
    [total] = totals
    ends = []
    for number in range(most_trials(law) + 1):
        low, high = (ends[-1] if ends else 0), total
        while low < high:  # the first place of a larger number
            middle = (low + high) // 2
            drawn = draw_trials(law, lambda _, place=middle: place)  # type: ignore[misc]
            low, high = (middle + 1, high) if drawn <= number else (low, middle)
        ends.append(low)
    assert ends[-1] == total
    return np.array([(end - begin) / total for begin, end in pairwise([0, *ends])])


@pytest.mark.parametrize(
    "law", [TruncatedNegativeBinomial(1, 0.5), TruncatedNegativeBinomial(-0.5, 0.6), PoissonTrials(3)]
)
def test_law_given_the_cap(law: RandomTrials) -> None:
    drawn = shares(law)
    _, expected = probabilities(law)
    np.testing.assert_allclose(drawn, expected[: drawn.size], rtol=1e-8, atol=1e-15)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_are_spread_as_the_law_says(law: RandomTrials) -> None:
    numbers, expected = probabilities(law)
    below = random.Random(20220).randrange
    draws = 4000
    counts = Counter(draw_trials(law, below) for _ in range(draws))
    distribution = list(accumulate(expected))
    reached = list(accumulate(counts[int(number)] / draws for number in numbers))
    # Kolmogorov's distance is above this with probability 1e-6.
    assert max(abs(a - b) for a, b in zip(distribution, reached, strict=True)) < math.sqrt(math.log(2e6) / (2 * draws))


@pytest.mark.parametrize("law", [*LAWS, TruncatedNegativeBinomial(100, 0.3), PoissonTrials(400)], ids=str)
def test_the_density_of_the_selection_stays_within_the_cut(law: RandomTrials) -> None:
    """f' of the capped law over f' of the law itself, in closed form, wherever it is taken."""
    cap = most_trials(law)
    numbers = np.arange(1, cap + 1)
    points = np.concatenate([np.linspace(0.0, 1.0, 41), 1.0 - np.geomspace(1e-6, 0.1, 20)])
    if isinstance(law, PoissonTrials):
        log_law = math.log(law.mean) - law.mean * (1.0 - points)
        log_first = math.log(law.mean) - law.mean
        log_ratios = np.log(law.mean / (numbers[:-1] + 1.0))
    else:
        odds = (1.0 - law.gamma) / law.gamma
        log_law = math.log(law.expected_trials) - (law.eta + 1.0) * np.log1p(odds * (1.0 - points))
        log_first = math.log(law.expected_trials) + (law.eta + 1.0) * math.log(law.gamma)
        with np.errstate(divide="ignore"):
            log_ratios = np.log((1.0 - law.gamma) * (numbers[:-1] + law.eta) / (numbers[:-1] + 1.0))
    log_weights = log_first + np.concatenate([[0.0], np.cumsum(log_ratios)]) + np.log(numbers)
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(numbers == 1, 0.0, (numbers - 1) * np.log(points)[:, None])
    log_capped = np.logaddexp.reduce(log_weights + powers, axis=1)
    short = 1.0 - np.exp(log_capped - log_law)
    assert np.all(short <= CUT + 1e-11), short.max()
    assert np.all(short >= -1e-11)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_smaller_cap_would_do(law: RandomTrials) -> None:
    numbers, expected = probabilities(law)
    cap = most_trials(law)
    tail = float(np.sum((numbers * expected)[cap:]))
    if cap > 1:
        assert tail > 0.1 * CUT * expected[1]


def test_a_law_that_goes_too_far_is_refused() -> None:
    with pytest.raises(Unsupported, match=str(MAX_TRIALS)) as refused:
        most_trials(TruncatedNegativeBinomial(0.0, 1e-5))
    assert (refused.value.code, refused.value.pointer) == ("too_many_trials", ("trials",))


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("probability", [0.5, 0.999])
def test_the_quantile_is_the_smallest_number_that_is_enough(law: RandomTrials, probability: float) -> None:
    _, expected = probabilities(law)
    number = trials_quantile(law, probability)
    assert np.sum(expected[: number + 1]) >= probability - 1e-9
    assert np.sum(expected[:number]) < probability + 1e-9


def test_the_cap_is_charged() -> None:
    orders, epsilons = (1.5, 2.0, 32.0), (0.1, 0.2, 1.0)
    capped = capped_moments(RenyiDpGuarantee(orders, epsilons))
    for order, before, after in zip(orders, epsilons, capped.epsilons, strict=True):
        # e^((a - 1) D) grows by (1 - t)^(1 - 2 a), to the first order of t.
        growth = (2.0 * order - 1.0) / (order - 1.0) * CUT
        assert before + 0.99 * growth < after < before + 1.01 * growth + 1e-14
    assert 1.0 + 1.99 * CUT < capped_epsilon(1.0) < 1.0 + 2.01 * CUT
    assert delta_before_cap(1e-5) < 1e-5 * (1.0 - CUT)
