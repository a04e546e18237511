"""Theorem 11, Lemma 3 and Lemma 13: worked numbers, the search for beta, a second accountant and the engine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.relations import NeighboringRelation
from calibrators.wang_nonsmooth.feasible_noise import (
    Theorem11,
    least_epsilon_of_lemma_13,
    least_feasible_epsilon,
    subsampled_renyi,
)
from tests.calibrators.wang_nonsmooth.renyi import epsilon, renyi_divergence

#: n, T, epsilon; sigma^2/G^2 at the unconstrained beta, at the best feasible one, by the Renyi accountant; beta.
TABLE = [
    (10**3, 10**3, 1.0, 0.801, 54.6, 3.50, 0.0038),
    (10**4, 10**4, 1.0, 0.106, 26.2, 3.50, 0.00104),
    (10**4, 10**4, 4.0, 0.0071, 4.08, 1.13, 0.00048),
    (10**5, 10**5, 1.0, 0.0132, 21.3, 3.54, 0.00016),
    (10**6, 10**6, 0.5, 0.0062, 45.6, 6.79, 3.5e-5),
    (10**3, 10**6, 1.0, 801.0, None, 97.3, None),
    (10**4, 10**8, 2.0, 271.7, 271.7, 41.0, 0.513),
]
rows = pytest.mark.parametrize(("n", "T", "target", "formula", "best", "accountant", "beta"), TABLE)


def engine(n: int, steps: int, relative_variance: float, delta: float):
    event = Event(Gaussian(math.sqrt(relative_variance)), WithoutReplacement(1, n), steps)
    return epsilon_for_delta([event], NeighboringRelation.REPLACE_ONE, delta).value


def test_worked_numbers_of_sigma():
    theorem = Theorem11(10**3, 10**6, 4.0, 1e-6)
    for beta, order, variance in [(0.5, 7.907755279, 55.35428695), (0.5317419473, 8.376013332, 55.13209332)]:
        split = theorem.split(beta)
        assert split.order == pytest.approx(order, rel=1e-9)
        assert split.relative_variance == pytest.approx(variance, rel=1e-9)
        assert split.is_feasible
    theorem = Theorem11(10**4, 10**4, 1.0, 1e-8)
    for beta, order, variance, feasible in [
        (0.5, 37.84136149, 0.1059558122, False),
        (0.001, 19.43911986, 27.21476781, True),
        (0.001038338316, 19.43982752, 26.21087762, True),
        (0.001038338317, 19.43982752, 26.21087762, False),
    ]:
        split = theorem.split(beta)
        assert split.order == pytest.approx(order, rel=1e-9)
        assert split.relative_variance == pytest.approx(variance, rel=3e-9)
        assert split.is_feasible is feasible


@pytest.mark.one_in(3)
@rows
def test_the_table_of_the_noise_that_is_assumed_and_the_noise_that_is_needed(
    n, T, target, formula, best, accountant, beta
):
    delta = float(n) ** -2.0
    theorem = Theorem11(n, T, target, delta)
    assert theorem.split(theorem.unconstrained_beta).relative_variance == pytest.approx(formula, rel=0.01)
    found = theorem.least_noise()
    if best is None:
        assert found is None
        assert theorem.as_published() is None
        assert min(theorem.nearest_to_feasible().ratio_margin, theorem.nearest_to_feasible().order_margin) < 0.0
    else:
        assert found.relative_variance == pytest.approx(best, rel=0.005)
        assert found.beta == pytest.approx(beta, rel=0.02)
    # The Renyi accountant's noise is what its column says, and the engine proves a smaller epsilon for it.
    assert epsilon(n, T, delta, accountant) == pytest.approx(target, rel=0.004)
    assert engine(n, T, accountant, delta).upper < target * 1.001


def test_the_attack_on_the_noise_that_theorem_12_assumes():
    n, delta = 10**4, 1e-8
    theorem = Theorem11(n, n, 1.0, delta)
    variance = theorem.split(0.5).relative_variance
    assert not theorem.split(0.5).is_feasible
    shift = 2.0 / math.sqrt(variance)
    assert shift == pytest.approx(6.14, abs=0.005)
    miss = norm.cdf(5.5)
    false_positive = 1.0 - miss**n
    true_positive = 1.0 - ((1.0 - 1.0 / n) * miss + norm.cdf(5.5 - shift) / n) ** n
    assert true_positive >= 0.523
    assert false_positive <= 1.9e-4
    attack = math.log((true_positive - delta) / false_positive)
    assert attack >= 7.9
    assert engine(n, n, variance, delta).lower >= attack, "the engine knows at least as much as this attack"


def test_the_feasible_beta_nearest_to_one_half_is_taken_and_one_half_where_it_is_feasible():
    assert Theorem11(10**3, 10**6, 4.0, 1e-6).as_published().beta == 0.5
    small = Theorem11(10**4, 10**4, 1.0, 1e-8)
    assert small.as_published().beta == pytest.approx(0.001038338316, rel=1e-9)
    assert not small.split(small.as_published().beta * (1.0 + 1e-9)).is_feasible


@pytest.mark.parametrize("sizes", [(10**3, 10**6, 4.0, 1e-6), (200, 3000, 6.0, 1e-5), (10**4, 10**4, 4.0, 1e-8)])
def test_no_feasible_beta_has_less_noise_or_is_nearer_to_one_half(sizes):
    theorem = Theorem11(*sizes)
    least, nearest = theorem.least_noise(), theorem.as_published()
    random = np.random.default_rng(1)
    for beta in np.concatenate([10.0 ** random.uniform(-8, 0, 3000), random.uniform(0, 1, 1000)]):
        if (split := theorem.split(float(beta))).is_feasible:
            assert split.relative_variance >= least.relative_variance * (1.0 - 1e-12)
            assert abs(split.beta - 0.5) >= abs(nearest.beta - 0.5) - 1e-12


def test_the_unconstrained_beta_is_the_minimiser_and_above_one_half():
    for a in (1e-3, 0.5, 3.0, 1e4):
        theorem = Theorem11(10**3, 10**6, 1.0, math.exp(-a)) if a < 700 else Theorem11(10**3, 10**6, 1e-3, 1e-5)
        best = theorem.unconstrained_beta
        assert best > 0.5
        for beta in (0.99 * best, best + 0.01 * (1.0 - best)):
            assert theorem.split(beta).relative_variance > theorem.split(best).relative_variance


def test_worked_numbers_of_lemma_3_against_the_second_accountant():
    for order, fraction, ratio, claimed, accountant, largest in [
        (4.0, 1e-3, 1.0, 1.4e-05, 5.822563571e-06, 4.188221309),
        (10.0, 1e-4, 2.0, 8.75e-08, 1.968957422e-08, 14.19474783),
    ]:
        assert subsampled_renyi(order, fraction, ratio) == pytest.approx(claimed, rel=1e-12)
        assert renyi_divergence(order, fraction, ratio) == pytest.approx(accountant, rel=1e-6)
        assert subsampled_renyi(largest - 1e-8, fraction, ratio) is not None
        assert subsampled_renyi(largest + 1e-8, fraction, ratio) is None


def test_lemma_3_needs_the_least_ratio_of_noise_to_sensitivity():
    assert subsampled_renyi(1.01, 1e-6, math.sqrt(0.6699)) is None
    assert subsampled_renyi(1.01, 1e-6, math.sqrt(0.6701)) is not None


def test_lemma_3_holds_with_room_wherever_it_answers():
    random = np.random.default_rng(2)
    tried = 0
    while tried < 100:
        fraction, ratio = 10.0 ** random.uniform(-6, -1), 10.0 ** random.uniform(-0.08, 1.2)
        order = 1.0 + 10.0 ** random.uniform(-1, 2)
        if (claimed := subsampled_renyi(order, fraction, ratio)) is not None:
            tried += 1
            assert claimed >= 1.6 * renyi_divergence(order, fraction, ratio)


def test_outside_its_conditions_lemma_3_would_be_badly_false():
    assert subsampled_renyi(6.0, 0.02, 0.5) is None
    would_claim = 3.5 * 0.02**2 * 6.0 / 0.25
    assert would_claim == pytest.approx(0.0336)
    assert renyi_divergence(6.0, 0.02, 0.5) == pytest.approx(7.31, abs=0.005)


def test_worked_numbers_of_lemma_13():
    for n, value in [(18, 3.881144853), (44, 3.102024461), (1000, 1.538945618), (10**6, 0.2791047587)]:
        assert least_epsilon_of_lemma_13(n) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("n", "true"),
    [(18, 4.517), (30, 3.625), (43, 3.1290), (100, 2.248), (10**3, 0.934), (10**4, 0.379), (10**6, 0.0559)],
)
def test_lemma_13_is_false_up_to_43_records_and_far_from_necessary_beyond(n, true):
    least = least_feasible_epsilon(n, n, float(n) ** -2.0)
    assert least == pytest.approx(true, rel=2e-3)
    assert (least > least_epsilon_of_lemma_13(n)) is (n <= 43)


def test_a_batch_leaves_the_noise_on_the_mean_alone_and_tightens_the_second_condition():
    one, many = Theorem11(10**4, 10**6, 1.0, 1e-8), Theorem11(10**4, 10**6, 1.0, 1e-8, batch_size=50)
    assert many.split(0.3).relative_variance == one.split(0.3).relative_variance
    assert many.split(0.3).ratio_margin + 0.67 == pytest.approx(2500.0 * (one.split(0.3).ratio_margin + 0.67))
    # The divergence of a step by Lemma 3, composed: what sigma(beta) was made for.
    split = one.split(0.3)
    step = 3.5 * 1e-8 * split.order / (split.relative_variance / 4.0)
    assert 10**6 * step == pytest.approx(0.3 * 1.0, rel=1e-12)
    step = 3.5 * (50 / 1e4) ** 2 * split.order / (split.relative_variance / (2.0 / 50) ** 2)
    assert 10**6 * step == pytest.approx(0.3, rel=1e-12)
