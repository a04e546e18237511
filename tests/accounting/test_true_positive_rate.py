"""The certified true positive rate: closed forms, attacks that reach less, and no attack that reaches more."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from accounting.accountant import delta_for_epsilon
from accounting.errors import InvalidValue
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp
from accounting.relations import NeighboringRelation
from accounting.true_positive_rate import tpr_for_fpr

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 100.0), st.integers(1, 1000), st.floats(1e-12, 0.999999))
def test_exact_for_full_batch(noise: float, count: int, fpr: float) -> None:
    answer = tpr_for_fpr([Event(Gaussian(noise), count=count)], ADD_REMOVE, fpr)
    truth = float(norm.sf(norm.isf(fpr) - math.sqrt(count) / noise))
    assert answer.value.lower <= truth * (1 + 1e-12)
    assert answer.value.upper >= truth * (1 - 1e-12)
    assert answer.value.width <= 1e-9 * truth


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("fpr", [1e-6, 0.05, 0.3, 0.9])
def test_randomised_response_has_two_lines(epsilon: float, fpr: float) -> None:
    answer = tpr_for_fpr([Event(PureDp(epsilon))], ADD_REMOVE, fpr)
    truth = min(math.exp(epsilon) * fpr, 1.0 - math.exp(-epsilon) * (1.0 - fpr))
    assert truth * (1 - 1e-12) <= answer.value.upper <= truth * (1 + 1e-12)
    assert answer.value.lower <= truth


@pytest.mark.parametrize("fpr", [1e-6, 0.01, 0.2, 0.5, 0.9])
def test_one_laplace_step_has_a_closed_form(fpr: float) -> None:
    """Dong, Roth & Su 2022: the trade-off function of one shift of size epsilon in the scale."""
    epsilon = 1.5
    answer = tpr_for_fpr([Event(Laplace(1.0 / epsilon))], ADD_REMOVE, fpr)
    if fpr < math.exp(-epsilon) / 2.0:
        truth = math.exp(epsilon) * fpr
    elif fpr <= 0.5:
        truth = 1.0 - math.exp(-epsilon) / (4.0 * fpr)
    else:
        truth = 1.0 - math.exp(-epsilon) * (1.0 - fpr)
    assert truth * (1 - 1e-12) <= answer.value.upper <= truth * (1 + 1e-5)
    assert answer.value.lower <= truth


@pytest.mark.one_in(3)
@pytest.mark.parametrize("fpr", [0.01, 0.3, 0.8])
def test_no_attack_is_better(fpr: float) -> None:
    """The likelihood ratio of one sampled step grows with the output, so its best tests are thresholds.

    The bound is symmetric in the two directions, so that the better attack may stay below it where they cross.
    """
    noise, probability = 0.7, 0.3
    events = [Event(Gaussian(noise), Poisson(probability))]
    value = tpr_for_fpr(events, ADD_REMOVE, fpr).value
    grid = np.linspace(-10.0, 12.0, 200_001)
    alone, with_record = norm.cdf(grid, 0, noise), norm.cdf(grid, 1, noise)
    mixture = (1 - probability) * alone + probability * with_record
    remove = float(np.interp(fpr, (1 - alone)[::-1], (1 - mixture)[::-1]))
    add = float(np.interp(fpr, mixture, alone))
    assert value.upper >= max(remove, add) - 1e-9
    assert value.upper <= max(remove, add) + 0.01
    known = [
        (epsilon, delta_for_epsilon(events, ADD_REMOVE, epsilon).value.upper) for epsilon in np.linspace(0, 5, 501)
    ]
    smallest = min(
        min(math.exp(epsilon) * fpr + delta, 1.0 - math.exp(-epsilon) * (1.0 - delta - fpr)) for epsilon, delta in known
    )
    assert value.lower <= smallest
    assert value.upper <= smallest + 1e-9


def test_a_rate_is_at_least_the_coins_and_at_most_one() -> None:
    tiny = tpr_for_fpr([Event(Gaussian(1e6), Poisson(1e-6))], ADD_REMOVE, 0.3).value
    assert 0.3 <= tiny.lower <= tiny.upper <= 0.3 + 1e-6
    assert tpr_for_fpr([Event(Laplace(1e-3), count=10)], ADD_REMOVE, 0.3).value.upper <= 1.0


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, math.nan, True])
def test_a_false_positive_rate_outside_its_range_is_refused(fpr: float) -> None:
    with pytest.raises(InvalidValue):
        tpr_for_fpr([Event(Gaussian(1.0))], ADD_REMOVE, fpr)


def test_the_smallest_rates_are_rounded_outward() -> None:
    smallest = 5e-324
    with mp.workdps(60):
        quantile = mp.findroot(lambda z: mp.log(mp.ncdf(z)) - mp.log(smallest), -38.5)
        exact = {Gaussian(10.0): mp.ncdf(quantile + mp.mpf("0.1")), PureDp(0.9): mp.exp(mp.mpf(0.9)) * smallest}
        for mechanism, rate in exact.items():
            value = tpr_for_fpr([Event(mechanism)], NeighboringRelation.ADD_OR_REMOVE_ONE, smallest).value
            assert value.lower <= rate <= value.upper <= 3 * rate
