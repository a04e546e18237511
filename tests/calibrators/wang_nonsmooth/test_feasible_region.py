"""Where Theorem 11 may be used: its region, as it is searched for, against its two conditions tried split by split."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from calibrators.wang_nonsmooth.feasible_noise import Theorem11, least_epsilon_of_lemma_13, least_feasible_epsilon

#: Splits to try, evenly in ln(beta / (1 - beta)), so that both ends are as finely covered as the middle.
ODDS = np.exp(np.linspace(-34.0, 34.0, 10_001))


def tried(n: int, T: int, epsilon: float, delta: float, b: int = 1) -> float | None:
    """The least sigma^2/G^2 among the splits with both conditions; None where no split has them.

    In the letters of the paper, from Lemma 3 for batches of b: its sensitivity Delta = 2G/b, its ratio p = b/n.
    """
    beta, rest = ODDS / (1.0 + ODDS), 1.0 / (1.0 + ODDS)
    lam = np.log(1.0 / delta) / (rest * epsilon) + 1.0
    sigma2 = 14.0 * T * lam / (beta * n**2 * epsilon)
    Delta, p = 2.0 / b, b / n
    sigma_bar2 = sigma2 / Delta**2
    condition_32 = sigma_bar2 >= 0.67
    condition_33 = lam - 1.0 <= 2.0 * sigma_bar2 / 3.0 * np.log(1.0 / (lam * p * (1.0 + sigma_bar2)))
    both = condition_32 & condition_33
    return float(sigma2[both].min()) if both.any() else None


def least_epsilon(n: int) -> float:
    """Of a scan from below in steps of 0.2 %, for T = n and delta = 1/n^2."""
    epsilon = 0.1 * least_epsilon_of_lemma_13(n)
    while tried(n, n, epsilon, float(n) ** -2.0) is None:
        epsilon *= 1.002
    return epsilon


def test_the_region_is_that_of_splits_tried_one_by_one() -> None:
    """The plane of Figure 1 beyond it, with other numbers of steps, deltas and batches: in or out, and the noise."""
    inside = outside = 0
    for n, steps, epsilon, delta, b in product(
        (18, 30, 100, 1000, 10**5), (0.1, 1.0, 30.0), (0.05, 0.3, 1.0, 2.5, 4.0, 9.0), (1e-3, 1e-9), (1, 3)
    ):
        T = max(1, round(steps * n))
        found, brute = Theorem11(n, T, epsilon, delta, b).least_noise(), tried(n, T, epsilon, delta, b)
        assert (found is None) is (brute is None), (n, T, epsilon, delta, b)
        if found is None or brute is None:
            outside += 1
            continue
        inside += 1
        assert brute * (1.0 - 1.5e-2) <= found.relative_variance <= brute * (1.0 + 1e-12), (n, T, epsilon, delta, b)
    assert min(inside, outside) >= 60, "both sides are looked at"


@pytest.mark.parametrize("n", [18, 44, 10**4])
def test_the_border_of_figure_1_is_where_the_first_split_is_feasible(n: int) -> None:
    assert least_feasible_epsilon(n, n, float(n) ** -2.0) == pytest.approx(least_epsilon(n), rel=2.1e-3)


def test_above_lemma_13s_curve_some_split_is_feasible_from_44_records_on_and_not_below() -> None:
    """Multiples of its epsilon: the lemma is of all of them."""
    for n in (18, 25, 31, 43):
        just_above = least_epsilon_of_lemma_13(n) * 1.001
        assert tried(n, n, just_above, float(n) ** -2.0) is None
        assert Theorem11(n, n, just_above, float(n) ** -2.0).least_noise() is None
    for n in (44, 60, 100, 219, 1000, 10**5, 10**7):
        for multiple in (1.0, 1.01, 1.5, 3.0, 10.0):
            epsilon = multiple * least_epsilon_of_lemma_13(n)
            found = Theorem11(n, n, epsilon, float(n) ** -2.0).least_noise()
            assert found is not None
            assert found.is_feasible
    assert math.isclose(least_epsilon_of_lemma_13(18), 3.881144853, rel_tol=1e-9)
