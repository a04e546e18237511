"""The tail of a binomial law between its ends, against sums in 50 digits."""

from __future__ import annotations

import math
import random

import mpmath as mp
import pytest

from accounting.losses.binomial_tail import binomial_mass, binomial_tail


@mp.workdps(50)
def tail_and_rest(n: int, q: float, least: int) -> tuple[mp.mpf, mp.mpf]:
    """P(X >= least) and P(X < least), the one beyond the mean by its masses."""
    p = mp.mpf(q)
    upward = least >= n * p
    k = least if upward else least - 1
    term = mp.exp(
        mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1) + k * mp.log(p) + (n - k) * mp.log1p(-p)
    )
    total = mp.mpf(0)
    while 0 <= k <= n and term > total * mp.mpf(10) ** -25:
        total += term
        term *= mp.mpf(n - k) / (k + 1) * p / (1 - p) if upward else mp.mpf(k) / (n - k + 1) * (1 - p) / p
        k += 1 if upward else -1
    return (total, 1 - total) if upward else (1 - total, total)


def test_ends_contain_the_tail_and_are_close() -> None:
    draw = random.Random(5)
    checked = 0
    while checked < 30:
        n = int(10 ** draw.uniform(0.0, 13.0))
        q = 10 ** draw.uniform(-12.0, -0.01) if draw.random() < 0.8 else 1.0 - 10 ** draw.uniform(-8.0, -1.0)
        deviation = math.sqrt(n * q * (1.0 - q))
        least = int(n * q + deviation * draw.uniform(-12.0, 12.0)) + draw.randrange(-1, 3)
        if deviation > 1000.0 or not 0 < least <= n:
            continue
        checked += 1
        ends, (tail, rest) = binomial_tail(n, q, least), tail_and_rest(n, q, least)
        assert ends.lower <= tail <= ends.upper
        assert ends.rest_lower <= rest <= ends.rest_upper
        lower, upper = (ends.lower, ends.upper) if least >= n * q else (ends.rest_lower, ends.rest_upper)
        assert upper <= lower * (1.0 + 1e-8) + 1e-300


@pytest.mark.parametrize(
    ("n", "q", "least", "blocks"),
    [
        (10**13, 0.5, 5_000_003_162_277, True),
        (10**12, 0.3, 299_999_600_000, True),
        (10**11, 0.005, 500_050_000, False),
    ],
)
def test_blocks_of_very_many_masses_are_close_to_a_normal_law(n: int, q: float, least: int, blocks: bool) -> None:
    """With Edgeworth's first term and the correction for continuity, both of which are known to about 1e-9 here."""
    ends = binomial_tail(n, q, least)
    deviation = math.sqrt(n * q * (1.0 - q))
    assert (13.0 * deviation > 400_000) == blocks
    z = (least - 0.5 - n * q) / deviation
    skewness = (1.0 - 2.0 * q) / deviation
    expected = float(mp.ncdf(-z) + skewness / 6.0 * (z * z - 1.0) * mp.npdf(z))
    assert expected == pytest.approx(ends.lower, rel=1e-7)
    assert ends.lower <= ends.upper <= ends.lower * (1.0 + 1e-8)


@pytest.mark.parametrize(("n", "q", "least"), [(10, 0.3, 8), (10, 0.3, 10), (3, 0.5, 1), (200, 0.5, 131), (5, 0.9, 2)])
def test_small_tails_are_those_counted_out(n: int, q: float, least: int) -> None:
    exact = math.fsum(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(least, n + 1))
    ends = binomial_tail(n, q, least)
    assert ends.lower * (1.0 - 1e-13) <= exact <= ends.upper * (1.0 + 1e-13)
    assert ends.upper <= ends.lower * (1.0 + 1e-10)


def test_tails_at_the_ends() -> None:
    # Those of the page.
    assert binomial_tail(100_000, 0.01, 1201).upper == pytest.approx(3.2e-10, rel=0.02)
    assert binomial_tail(100_000, 0.01, 1251).upper < 1e-14
    for nothing in (binomial_tail(100, 0.3, 101), binomial_tail(100, 1.0, 101), binomial_tail(0, 0.3, 1)):
        assert (nothing.lower, nothing.upper, nothing.rest_lower, nothing.rest_upper) == (0.0, 0.0, 1.0, 1.0)
    for certain in (binomial_tail(100, 1.0, 100), binomial_tail(100, 0.5, 0), binomial_tail(0, 0.5, 0)):
        assert (certain.lower, certain.upper, certain.rest_upper) == (1.0, 1.0, 0.0)
    assert 0.0 < binomial_tail(10**9, 1e-6, 10**6).upper < 1e-300
    assert 1e-302 < binomial_tail(10**6, 1e-3, 2326).lower < 1e-250


@pytest.mark.parametrize(
    ("n", "q", "place"), [(1, 0.3, 0), (1, 0.3, 1), (40, 0.2, 11), (10**6, 1e-3, 970), (10**13, 0.5, 5 * 10**12)]
)
def test_a_single_mass_is_between_its_ends(n: int, q: float, place: int) -> None:
    with mp.workdps(40):
        log_mass = mp.loggamma(n + 1) - mp.loggamma(place + 1) - mp.loggamma(n - place + 1)
        exact = float(mp.exp(log_mass + place * mp.log(q) + (n - place) * mp.log(1 - mp.mpf(q))))
    lower, upper = binomial_mass(n, q, place)
    assert lower <= exact <= upper <= lower * (1.0 + 1e-9)
