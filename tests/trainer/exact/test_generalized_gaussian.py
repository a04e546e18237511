"""Generalised Gaussian noise: its law, the numbers that it is made of against mpmath, and going on from a state."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, cast

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from accounting.errors import InvalidValue
from trainer.exact.generalized_gaussian import GeneralizedGaussianNoise, spread_of
from trainer.exact.mixing import Mixing, Multiplier, mixing
from trainer.exact.ratios import OUTSIDE, Ratio
from trainer.exact.ziggurat import Sources
from trainer.streams import random_streams

LAWS = [(1, 3.0), (1, 60.0), (2, 2.0000001), (3, 2.5), (40, 4.0), (1000, 12.7), (10**10, 46.0)]
FINE = 2.0**30


def drawn(count: int, dimension: int, order: float, scale: float = FINE, seed: int = 1) -> np.ndarray:
    noise = GeneralizedGaussianNoise(random_streams(seed).noise)
    return np.stack([noise.rounded(dimension, order, scale) for _ in range(count)])


def high(number: Fraction) -> Any:
    return mpmath.mpf(number.numerator) / number.denominator


def log_b(law: Mixing, x: Any) -> Any:
    """ln B(x) - ln B(0), from the definition of B."""
    a = high(law.alpha)
    top = -a * mpmath.log(a) - (1 - a) * mpmath.log(1 - a)
    return mpmath.log(mpmath.sin(x) / (mpmath.sin(a * x) ** a * mpmath.sin((1 - a) * x) ** (1 - a))) - top


def log_gamma(law: Mixing, x: Any) -> Any:
    """Logarithm of the gamma density at m + x over that at its mode m."""
    m = high(law.shape)
    return m * mpmath.log((m + x) / m) - x


@pytest.mark.parametrize(("dimension", "order"), [(1, 2.0), (1, 7.0), (3, 2.0), (2, 3.0), (5, 12.7), (40, 4.0)])
@pytest.mark.one_in(3)
def test_radius_and_entries_have_their_laws(dimension: int, order: float) -> None:
    """The squared norm is chi-squared of d degrees, and independent of the direction.

    A direction's largest share of the norm is compared with that of independent entries of density exp(-|g|^r).
    """
    z = drawn(1500, dimension, order) / FINE
    square = np.linalg.norm(z, order, axis=1) ** 2
    assert stats.kstest(square, stats.chi2(dimension).cdf).pvalue > 1e-3
    if order == 2.0 or dimension == 1:
        assert stats.kstest(z[:, 0], "norm").pvalue > 1e-3
    assert stats.ks_2samp(z[:750, 0], -z[750:, dimension - 1]).pvalue > 1e-3
    if dimension > 1:
        g = np.random.default_rng(2).standard_gamma(1.0 / order, (1500, dimension)) ** (1.0 / order)
        shares = [np.max(np.abs(v), axis=1) / np.linalg.norm(v, order, axis=1) for v in (z, g)]
        assert stats.ks_2samp(*shares).pvalue > 1e-3
        assert stats.spearmanr(square, shares[0]).pvalue > 1e-3


@pytest.mark.parametrize(("order", "scale"), [(2.0, 1.0), (3.0, 1.0), (3.0, 5.25), (60.0, 2.5)])
@pytest.mark.one_in(12)
def test_one_entry_is_a_rounded_normal_number(order: float, scale: float) -> None:
    """In one dimension every norm is the absolute value. Probabilities are those of whole numbers."""
    z = drawn(2000, 1, order, scale)[:, 0]
    whole = np.arange(-40, 41)
    expected = 2000 * (stats.norm.cdf((whole + 0.5) / scale) - stats.norm.cdf((whole - 0.5) / scale))
    common = expected >= 8
    counts = np.array([np.count_nonzero(z == k) for k in whole[common]])
    rest = 2000 - expected[common].sum()
    assert stats.chisquare([*counts, 2000 - counts.sum()], [*expected[common], rest]).pvalue > 1e-3


@pytest.mark.thorough
def test_noise_has_the_law_of_a_rounded_vector() -> None:
    """In the plane: numbers of pairs of whole numbers against the density's integral over the squares round to them."""
    r, scale, most, finer = 3.0, 1.5, 4, 40
    z = drawn(3000, 2, r, scale)
    places = (np.arange(-(2 * most + 1) * finer // 2, (2 * most + 1) * finer // 2) + 0.5) / finer / scale
    x, y = np.meshgrid(places, places, indexing="ij")
    mass = np.exp(-0.5 * (np.abs(x) ** r + np.abs(y) ** r) ** (2.0 / r)) / (finer * scale) ** 2
    # The density's integral: 2 pi times the area of the ball over pi.
    total = 2.0 * (2.0 * special.gamma(1.0 + 1.0 / r)) ** 2 / special.gamma(1.0 + 2.0 / r)
    cells = mass.reshape(2 * most + 1, finer, 2 * most + 1, finer).sum(axis=(1, 3)) / total
    edges = np.arange(-most, most + 2) - 0.5
    counts, expected = np.histogram2d(z[:, 0], z[:, 1], bins=(edges, edges))[0].ravel(), 3000 * cells.ravel()
    common = expected >= 8
    observed = [*counts[common], 3000 - counts[common].sum()]
    assert stats.chisquare(observed, [*expected[common], 3000 - expected[common].sum()]).pvalue > 1e-3


def test_low_bits_are_uniform() -> None:
    z = drawn(20, 5000, 3.0, 0.9 * 2.0**33).ravel()
    assert np.all(z == np.rint(z))
    for bits in (1, 5, 10):
        counts = np.bincount(np.mod(z, 2.0**bits).astype(np.int64), minlength=1 << bits)
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(("dimension", "order"), LAWS)
@pytest.mark.one_in(6)
def test_the_common_factor_has_its_law(dimension: int, order: float) -> None:
    """Times the norm of independent entries, whose power has a gamma law, it is the root of a chi-squared number."""
    stream, law = random_streams(7).noise, mixing(dimension, order)
    factors = np.array([float(law.drawn(stream).bounds(80)[0]) for _ in range(400)])
    norms = np.random.default_rng(1).standard_gamma(dimension / order, 400) ** (1.0 / order)
    assert stats.kstest((factors * norms) ** 2, stats.chi2(dimension).cdf).pvalue > 1e-3
    assert factors.max() <= spread_of(dimension, order)


@pytest.mark.parametrize(("dimension", "order"), LAWS)
@pytest.mark.one_in(9)
def test_rectangles_cover_what_is_accepted(dimension: int, order: float) -> None:
    """No x h(x)^(1/2) is beyond the ends, whose density is somewhere nearly as large."""
    law = mixing(dimension, order)
    with mpmath.workprec(200):
        end = high(law.angle_end)
        places = [mpmath.pi * k / 4000 for k in range(1, 4000)] + [end * k / 500 for k in range(1, 1500)]
        reached = max(x * mpmath.exp(law.dimension * log_b(law, x) / 4) for x in places if x < mpmath.pi)
        assert 0.4 * end < reached <= end
        left, right = (high(end) for end in law.gamma_ends)
        m, spread = high(law.shape), 6 * mpmath.sqrt(1 + high(law.shape)) + 20
        places = [-m + (m + spread) * k / 20000 for k in range(1, 20000) if m < 1000]
        places += [spread * k / 2000 for k in range(-2000, 2000) if k != 0 and spread * k / 2000 > -m]
        values = [x * mpmath.exp(log_gamma(law, x) / 2) for x in places]
        assert 0.98 * right < max(values) <= right
        assert left <= min(values)
        assert m < 1 or min(values) < 0.98 * left


class GivenWords:
    """A stream of chosen words, and then of zeros."""

    def __init__(self, *words: int) -> None:
        self._words, self.read = list(words), 0

    def words(self, size: int) -> np.ndarray:
        found = (self._words + [0] * (self.read + size))[self.read : self.read + size]
        self.read += size
        return np.array(found, dtype=np.uint64)


@pytest.mark.parametrize("part", ["angle", "gamma"])
@pytest.mark.parametrize("offset", [-3, -1, 1, 3])
@pytest.mark.parametrize(("dimension", "order"), [(1, 3.0), (40, 4.0), (1000, 12.7)])
def test_points_at_the_edge_are_decided_by_more_bits(dimension: int, order: float, offset: int, part: str) -> None:
    """Heights a few 2^-190 above or below the edge at a given x/y: the third words decide."""
    law = mixing(dimension, order)
    ends, log = {
        "angle": ((Fraction(0), law.angle_end), law.angle_log_density),
        "gamma": (law.gamma_ends, law.gamma_log_density),
    }[part]
    with mpmath.workprec(400):
        x = mpmath.mpf("0.8") * mpmath.sqrt(1 + high(law.shape)) if part == "gamma" else high(law.angle_end) * 0.7
        half = log_gamma(law, x) / 2 if part == "gamma" else law.dimension * log_b(law, x) / 4
        y = mpmath.exp(half)
        place = (x * y - high(ends[0])) / high(ends[1] - ends[0])
        across, up = int(place * mpmath.mpf(2) ** 320), int(y * mpmath.mpf(2) ** 192) + offset

    def words(number: int, bits: int) -> list[int]:
        return [number >> (bits - 64 * (i + 1)) & (2**64 - 1) for i in range(bits // 64)]

    given = [word for pair in zip(words(across, 320), words(up << 128, 320), strict=True) for word in pair]
    stream = GivenWords(*given)
    ratio = Ratio(cast(Any, stream), ends, log)
    assert ratio.is_accepted() == (offset < 0)
    assert stream.read >= 6


@pytest.mark.parametrize(("dimension", "order"), LAWS)
def test_decisions_and_factors_equal_those_of_mpmath(dimension: int, order: float) -> None:
    """For points that are drawn; of the factor, bounds of any precision contain the same number."""
    stream, law = random_streams(8).noise, mixing(dimension, order)
    for ends, log in (
        ((Fraction(0), law.angle_end), law.angle_log_density),
        (law.gamma_ends, law.gamma_log_density),
    ):
        is_angle = log == law.angle_log_density
        for _ in range(30):
            ratio = Ratio(stream, ends, log)
            found = ratio.is_accepted()
            with mpmath.workprec(400):
                x, y = high(ratio.bounds[0]), high(ratio._height()[0])
                outside = not 0 < x < mpmath.pi if is_angle else x <= -high(law.shape)
                if outside:
                    assert not found
                else:
                    exact = law.dimension * log_b(law, x) / 2 if is_angle else log_gamma(law, x)
                    assert found == (2 * mpmath.log(y) < exact)
    multiplier: Multiplier = law.drawn(stream)
    first, second = multiplier.bounds(80), multiplier.bounds(250)
    with mpmath.workprec(500):
        a, m = high(law.alpha), high(law.shape)
        for corner in (0, 1):  # bounds of M at 250 bits are narrower than what the corners differ by
            angle, gamma = high(multiplier._angle.bounds[corner]), m + high(multiplier._gamma.bounds[corner])
            b = mpmath.sin(angle) / (mpmath.sin(a * angle) ** a * mpmath.sin((1 - a) * angle) ** (1 - a))
            exact = mpmath.sqrt(2 * b * gamma ** (1 - a))
            assert high(second[0]) <= exact <= high(second[1])
    assert first[0] <= second[0] < second[1] <= first[1]
    assert (second[1] - second[0]) * 2**250 < second[0]
    assert multiplier.bounds(100) == second


def test_the_first_bits_decide_nothing_that_more_bits_would_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """With much coarser arithmetic, and with much finer, so that other steps decide, points are accepted alike."""
    law, found = mixing(40, 4.0), []
    for less in (0, 110, -200):
        monkeypatch.setattr(Ratio, "precision", property(lambda self, less=less: self._bits + 32 - less))
        stream, accepted = random_streams(9).noise, []
        for _ in range(60):
            words = stream.words(4).tolist()
            for ends, log in (
                ((Fraction(0), law.angle_end), law.angle_log_density),
                (law.gamma_ends, law.gamma_log_density),
            ):
                accepted.append(Ratio(cast(Any, GivenWords(*words)), ends, log).is_accepted())
        found.append(accepted)
    assert found[0] == found[1] == found[2]


def test_refined_factors_round_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vector is the same whether its factor is known to 2^-80 at first, or to 2^-300."""
    bounds, scale = Multiplier.bounds, 2.0**38
    expected = drawn(1, 4000, 3.0, scale)
    monkeypatch.setattr(Multiplier, "bounds", lambda self, bits: bounds(self, max(bits, 300)))
    assert np.array_equal(drawn(1, 4000, 3.0, scale), expected)


@pytest.mark.parametrize("dimension", [1, 7, 3000])
def test_restored_noise_goes_on(dimension: int) -> None:
    noise = GeneralizedGaussianNoise(random_streams(3).noise)
    for order, scale in ((3.0, 5.0), (2.0, 1e6), (12.7, 2.0**35)):
        noise.rounded(dimension, order, scale)
        state = noise.state()
        expected = [noise.rounded(dimension, order, scale) for _ in range(3)]
        again = GeneralizedGaussianNoise(random_streams(99).noise)
        again.restore(state)
        for vector in expected:
            np.testing.assert_array_equal(again.rounded(dimension, order, scale), vector)


def test_parts_of_the_stream_are_apart() -> None:
    noise = GeneralizedGaussianNoise(random_streams(1).noise)
    sources = noise._sources
    parts = (sources.candidates, sources.places, sources.more, noise._mixing)
    assert len({int(word) for part in parts for word in part.words(8)}) == 32


def test_the_laws_are_those_of_the_formulas() -> None:
    """m = d (r - 2) / (2 r); beyond pi, nothing is accepted."""
    law = mixing(40, 4.0)
    assert (law.alpha, law.shape) == (Fraction(1, 2), 10)
    assert law.angle_log_density((Fraction(3142, 1000), Fraction(3142, 1000)), 160) == OUTSIDE
    assert law.angle_log_density((Fraction(4), Fraction(5)), 160) == OUTSIDE
    assert law.angle_log_density((Fraction(3), Fraction(22, 7)), 160) is None
    assert law.gamma_log_density((Fraction(-12), Fraction(-11)), 160) == OUTSIDE
    assert law.gamma_log_density((Fraction(-11), Fraction(-9)), 160) is None


def test_bounds_of_a_ratio_contain_all_completions() -> None:
    """Whatever the sign of x."""
    for word in (5, 2**63 - 2**40, 2**64 - 9):
        ratio = Ratio(cast(Any, GivenWords(word, 2**62)), (Fraction(-1), Fraction(1)), lambda x, bits: x)
        assert ratio.refresh()
        step = Fraction(1, 2**128)
        corners = [
            (2 * (Fraction(word, 2**64) + a * step) - 1) / (Fraction(1, 4) + b * step) for a in (0, 1) for b in (0, 1)
        ]
        assert ratio.bounds[0] <= min(corners) <= max(corners) <= ratio.bounds[1]
        assert ratio.bounds[1] - ratio.bounds[0] < 2**-120


def test_work_is_public() -> None:
    """How many words the entries take does not depend on the key, and so not on the common factor."""
    went = set()
    for seed in range(6):
        noise = GeneralizedGaussianNoise(random_streams(seed).noise)
        sources = noise._sources
        counted = [Counted(sources.candidates), Counted(sources.places)]
        noise._sources = Sources(cast(Any, counted[0]), cast(Any, counted[1]), sources.more)
        noise.rounded(5000, 3.0, 2.0**44)
        went.add(tuple(stream.read for stream in counted))
    assert len(went) == 1


class Counted:
    """A stream that counts the words that are read from it."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.read = stream, 0

    def words(self, size: int) -> np.ndarray:
        self.read += size
        found: np.ndarray = self._stream.words(size)
        return found


@pytest.mark.parametrize(("dimension", "order"), [(1, 2.5), (100, 12.7), (5000, 20.0)])
def test_the_planned_spread_is_rarely_exceeded(dimension: int, order: float) -> None:
    """M^2 <= 2 B(0) G^(1 - alpha), with G above its allowance with probability 2^-100 at most."""
    law = mixing(dimension, order)
    with mpmath.workprec(200):
        a, shape = high(law.alpha), 1 + high(law.shape)
        top = a ** (-a) * (1 - a) ** (a - 1)
        largest = (mpmath.mpf(spread_of(dimension, order)) ** 2 / 2 / top) ** (1 / (1 - a))
        assert mpmath.gammainc(shape, largest) < mpmath.gamma(shape) * mpmath.mpf(2) ** -100


def test_no_scale_is_no_noise_and_other_orders_are_refused() -> None:
    noise = GeneralizedGaussianNoise(random_streams(1).noise)
    assert not noise.rounded(5, 3.0, 0.0).any()
    for order in (1.9, 129.0, math.inf):
        with pytest.raises(InvalidValue, match="from 2 to 128"):
            noise.rounded(5, order, 1.0)
        with pytest.raises(InvalidValue, match="from 2 to 128"):
            spread_of(5, order)
