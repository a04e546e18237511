"""Theorem 8 and its certified part: worked numbers, and the two laws of the proof, checked exactly."""

from __future__ import annotations

import math

import pytest
from scipy.stats import binom

from calibrators.lowy_razaviyayn.lower_bounds import (
    convex_lower_bound,
    convex_lower_rate,
    failed_conditions,
    strongly_convex_lower_bound,
    strongly_convex_lower_rate,
)
from calibrators.lowy_razaviyayn.moments import moment_bound_of_coordinates


def test_the_worked_rates():
    assert convex_lower_rate(2.0, 3.0, 2.0, 50, 10_000, 0.5) == pytest.approx(0.2497366596, rel=1e-9)
    assert strongly_convex_lower_rate(2.0, 3.0, 1.0, 50, 10_000, 0.5) == pytest.approx(0.0099, rel=1e-12)


def test_the_worked_certified_bounds():
    assert convex_lower_bound(2.0, 3.0, 1.0, 10_000, 0.5) == pytest.approx(0.015, rel=1e-12)
    assert convex_lower_bound(2.0, 3.0, 1.0, 10_000, 1e9) == pytest.approx(0.006123724357, rel=1e-9)
    # The catalogue's 512 and 32 are 96 and 16 here, by (w - m)^2 + (w + m)^2 >= 2 m^2.
    assert strongly_convex_lower_bound(2.0, 3.0, 1.0, 9.0, 10_000, 1e9) == pytest.approx(1.7578125e-06 * 512 / 96)
    assert strongly_convex_lower_bound(2.0, 3.0, 1.0, 9.0, 10_000, 0.5) == pytest.approx(9.0 / 16.0 * 1e-4)


def test_the_worked_moment_bound_of_coordinates():
    assert moment_bound_of_coordinates(2.0 ** (1.0 / 3.0), 3.0, 9) == pytest.approx(7.559526299, rel=1e-9)


def test_conditions_of_the_rate_are_named():
    assert failed_conditions(40, 40.0) == ()
    assert failed_conditions(39, 40.0) == ("d >= 40 (d is 39)", "rho <= d (rho is 40)")


@pytest.mark.parametrize("records", [1, 2, 7, 30, 1000])
def test_the_public_two_laws_cannot_be_told_apart(records):
    """Total variation of n signs with mean +-1/sqrt(6 n), exactly: at most 1/2."""
    chance = 0.5 * (1.0 + 1.0 / math.sqrt(6.0 * records))
    heads = range(records + 1)
    one, other = binom.pmf(heads, records, chance), binom.pmf(heads, records, 1.0 - chance)
    assert 0.5 * abs(one - other).sum() <= 0.5


@pytest.mark.parametrize("k", [2.0, 3.0, 7.5])
@pytest.mark.parametrize("q", [1.0, 0.1, 1e-4])
def test_the_sparse_law_of_the_proof_obeys_the_moment_bound(k, q):
    """f = mu/2 (w - x)^2 on [-h, h], h = r/(2 mu), x = h q^(-1/k) with probability q: E|grad|^k <= r^k, mean inside."""
    mu, r = 2.0, 3.0
    h = r / (2.0 * mu)
    x = h * q ** (-1.0 / k)
    for w in (-h, -0.3 * h, 0.0, h):
        moment = (1.0 - q) * abs(mu * w) ** k + q * abs(mu * (w - x)) ** k
        assert moment <= r**k * (1.0 + 1e-12)
    assert q * x <= h * (1.0 + 1e-12)


def test_privacy_makes_a_certified_bound_larger_and_a_short_domain_smaller():
    private = strongly_convex_lower_bound(2.0, 3.0, 1.0, 9.0, 10_000, 1e-3)
    assert private > strongly_convex_lower_bound(2.0, 3.0, 1.0, 9.0, 10_000, 1.0)
    short = strongly_convex_lower_bound(2.0, 3.0, 1.0, 0.3, 10_000, 1e-3)
    assert short == pytest.approx(private / 100.0)
