"""The subsampled Gaussian pairs against long precision."""

from __future__ import annotations

import cmath
import math
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.pairs import EVERYTHING, Band, GaussianPair, Pair, log_growth_of, window_of
from accounting.fourier.tails import log_tail
from tests.accounting.fourier.truths import band_share, log_f, log_integral

EVERY_PAIR = pytest.mark.parametrize("kind", list(Pair))
#: Noise and probability, both to their extremes.
NUMBERS = ((1.0, 0.1), (0.05, 1e-8), (0.3, 0.999), (0.5, 1.0 - 1e-9), (4.0, 0.01), (1e3, 1e-5), (1e3, 0.9), (0.6, 1e-3))
EVERY_NUMBER = pytest.mark.parametrize(("s", "q"), NUMBERS)


def continued_log_f(x: mp.mpc, s: float, q: float) -> mp.mpc:
    """The branch that is real on the axis: |arg f| stays below pi in the strip, so the principal one."""
    return mp.log(1 + mp.mpf(q) * mp.expm1((x - mp.mpf(1) / 2) / mp.mpf(s) ** 2))


def places(s: float) -> np.ndarray:
    return np.array([-9.0 * s, -2.0 * s, -0.1 * s, 0.0, 0.5, 0.5 + 1e-3 * s, 0.7 * s, 3.0 * s, 1.0 + 12.0 * s])


@EVERY_PAIR
@EVERY_NUMBER
def test_exponents_are_log_density_and_loss(kind: Pair, s: float, q: float) -> None:
    """Relatively accurate even where f is within 1e-8 of 1."""
    x = places(s)
    base, loss = GaussianPair(kind, s, q).exponents(x)
    for at, found_base, found_loss in zip(x, base, loss, strict=True):
        with mp.workdps(50):
            here, other = log_f(mp.mpf(at), s, q), log_f(mp.mpf(-at), s, q)
            true_base = mp.mpf(0) if kind is Pair.ADD else here
            true_loss = {Pair.REMOVE: here, Pair.ADD: -here, Pair.REPLACE: here - other}[kind]
            # (x - 1/2) / s^2 is itself rounded, near 1/2 relatively to 1 / s^2.
            argument = abs((at - 0.5) / s**2) + (abs((at + 0.5) / s**2) if kind is Pair.REPLACE else 0.0)
            slack = 4e-16 * (abs(here) + abs(other) + q * (argument + 2.0 / s**2))
            steep = 4e-16 * argument * min(1.0, float(q * mp.exp(min(argument, 600.0))))
            assert abs(found_base - true_base) <= slack + steep
            assert abs(found_loss - true_loss) <= slack + steep


@pytest.mark.one_in(3)
@EVERY_PAIR
@EVERY_NUMBER
@pytest.mark.parametrize("angle", [0.05, 0.8, 1.5, 2.9])
def test_shifted_exponents_continue_the_real_ones(kind: Pair, s: float, q: float, angle: float) -> None:
    """On u + i angle s^2 (ADD: minus); arguments nonnegative, so that e^(itL) decays for t > 0."""
    u = places(s)
    parts = GaussianPair(kind, s, q).shifted_exponents(u, angle)
    assert np.all(parts[3] >= 0.0)
    sign = -1 if kind is Pair.ADD else 1
    for k, at in enumerate(u):
        with mp.workdps(50):
            x = mp.mpc(at, sign * mp.mpf(angle) * mp.mpf(s) ** 2)
            here, other = continued_log_f(x, s, q), continued_log_f(-x, s, q)
            base = mp.mpc(0) if kind is Pair.ADD else here
            loss = {Pair.REMOVE: here, Pair.ADD: -here, Pair.REPLACE: here - other}[kind]
            slack = 1e-14 * (1.0 + abs(at) / s**2 + 1.0 / s**2)
            assert abs(complex(base) - complex(parts[0][k], parts[1][k])) <= slack
            assert abs(complex(loss) - complex(parts[2][k], parts[3][k])) <= slack


@EVERY_PAIR
@EVERY_NUMBER
def test_log_growth_bounds_the_modulus_on_every_line(kind: Pair, s: float, q: float) -> None:
    """|density e^(tilt L)| at angle s^2 over its value on the real line."""
    pair = GaussianPair(kind, s, q)
    u = np.linspace(-13.0 * s, 1.0 + 13.0 * s, 4001)
    base, loss = pair.exponents(u)
    for angle in (0.1, 0.7, 1.4) if kind is not Pair.REMOVE else (0.1, 1.4, 3.0):
        for tilt in (0.01, 1.0, 40.0):
            base_r, _, loss_r, _ = pair.shifted_exponents(u, angle)
            growth = float((base_r + tilt * loss_r - base - tilt * loss).max())
            assert growth <= log_growth_of(pair.law, angle, tilt) + 1e-12 * (1.0 + tilt) * (1.0 + 14.0 / s)
    # Not vacuous: where q e^a = 1 - q the bound for the powers of 1/f is attained.
    if kind is Pair.ADD and 0.01 <= q <= 0.9 and s >= 0.3:
        middle = np.array([0.5 + s * s * math.log((1.0 - q) / q)])
        _, _, shifted, _ = pair.shifted_exponents(middle, 1.0)
        attained = 5.0 * float(shifted[0] - pair.exponents(middle)[1][0])
        assert attained == pytest.approx(log_growth_of(pair.law, 1.0, 5.0), rel=1e-6)


@EVERY_PAIR
@EVERY_NUMBER
def test_slope_is_the_derivative_of_the_loss(kind: Pair, s: float, q: float) -> None:
    pair = GaussianPair(kind, s, q)
    x = places(s)[1:-1]
    with mp.workdps(60):
        for at, found in ((at, pair.slope(float(at))) for at in x):

            def loss(y: mp.mpf) -> mp.mpf:
                return log_f(y, s, q) - (log_f(-y, s, q) if kind is Pair.REPLACE else 0)

            assert found == pytest.approx(float(mp.diff(loss, mp.mpf(float(at)))), rel=1e-10 * (1.0 + 14.0 / s**2))


@EVERY_PAIR
@pytest.mark.parametrize(("s", "q"), [(1.0, 0.1), (0.4, 1e-6), (0.3, 0.99), (0.5, 1.0 - 1e-9), (50.0, 0.01)])
def test_log_tail_bounds_what_the_window_leaves_out(kind: Pair, s: float, q: float) -> None:
    """Against the integral itself, for windows from far too narrow to generous, with a band and without."""
    pair = GaussianPair(kind, s, q)
    tilts = np.array([0.1, 2.0, 15.0])
    # The share in `log_integral` is the product of both ends, which is below the band's own.
    share = (0.2 * s, 1.0 + 1.5 * s, 0.25 * s)
    for given in (None,) if kind is Pair.ADD else (None, share):
        for left, right in ((-0.5 * s, 1.0 + s), (-3.0 * s, 1.0 + 2.5 * s), (-6.0 * s, 16.0 + 5.0 * s)):
            bounds = log_tail(pair.law, left, right, tilts, EVERYTHING if given is None else Band(*given).ends)
            for tilt, bound in zip(tilts, bounds, strict=True):
                far = 2.0 * tilt + 2.0 + 40.0 * s
                for outside in ((-far, left), (right, right + far)):
                    # Well below the distances that matter: the rule's own error.
                    assert log_integral(kind.value, s, q, float(tilt), outside, given) <= bound + 1e-8


@EVERY_PAIR
@EVERY_NUMBER
def test_the_window_leaves_nothing_to_speak_of(kind: Pair, s: float, q: float) -> None:
    pair = GaussianPair(kind, s, q)
    for tilt in (0.0, 1.0, 10.0):
        if tilt < 50.0 * s:
            window = window_of(pair.law, tilt, 10.4)
            inside = log_integral(kind.value, s, q, tilt, window, None)
            assert log_tail(pair.law, *window, np.array([tilt]), EVERYTHING)[0] < inside - 44.0


def test_bands_that_follow_each_other_add_up() -> None:
    """On the real line and beside it; relatively accurate in the tails of a share."""
    width, ends = 0.3, (-math.inf, -1.0, 0.4, 2.5, math.inf)
    bands = [Band(low, high, width) for low, high in pairwise(ends)]
    x = np.linspace(-9.0, 11.0, 801)
    shares = np.array([np.exp(band.log_share(x)) for band in bands])
    assert np.abs(shares.sum(axis=0) - 1.0).max() < 1e-14
    for shift in (0.05, 0.3, 0.4):
        shifted = np.array([np.exp(band.shifted_log_share(x, shift)) for band in bands])
        assert np.abs(shifted.sum(axis=0) - 1.0).max() < 1e-12
    for band in bands:
        for at in (-6.0, -1.2, 0.1, 1.3, 4.0, 7.0):
            with mp.workdps(400):
                ends_ = tuple(mp.mpf(end) if math.isfinite(end) else mp.mpf(math.copysign(math.inf, end))
                              for end in (band.low, band.high))  # fmt: skip
                truth = mp.log(band_share(mp.mpf(at), (ends_[0], ends_[1], mp.mpf(width))))
            assert float(band.log_share(np.array([at]))[0]) == pytest.approx(float(truth), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("band", [Band(-math.inf, 1.0, 0.3), Band(-0.5, 0.7, 0.3), Band(0.2, math.inf, 0.3)])
def test_a_shifted_share_is_continued_and_grows_as_told(band: Band) -> None:
    """At most e^(shift^2 / 2 w^2), and the values of Phi((high - x) / w) - Phi((low - x) / w) at complex x."""
    u = np.array([-4.0, -1.0, 0.05, 0.3, 0.69, 1.4, 5.0])
    for shift in (0.0, 0.1, 0.39):
        found = band.shifted_log_share(u, shift)
        growth = 0.5 * (shift / band.width) ** 2
        assert np.all(found.real <= band.log_share(u) + growth + 1e-12)
        for at, value in zip(u, found, strict=True):
            with mp.workdps(160):
                x = mp.mpc(float(at), shift)

                def below(end: float, x: mp.mpc = x) -> mp.mpc:
                    if math.isinf(end):
                        return mp.mpf(1 if end > 0 else 0)
                    return mp.erfc(-(end - x) / (band.width * mp.sqrt(2))) / 2

                truth = mp.log(below(band.high) - below(band.low))
                difference = complex(mp.mpc(value) - truth)
            # The logarithm's branch is of no consequence: only its exponential is used.
            assert abs(cmath.exp(difference) - 1.0) < 1e-12


@pytest.mark.parametrize("kind", [Pair.REMOVE, Pair.REPLACE])
@EVERY_NUMBER
def test_place_of_loss_is_where_the_loss_is(kind: Pair, s: float, q: float) -> None:
    pair = GaussianPair(kind, s, q)
    for loss in (1e-6, 0.01, 0.7, 5.0, 60.0):
        x = pair.place_of_loss(loss)
        found = float(pair.exponents(np.array([x]))[1][0])
        step = 4.0 * (math.ulp(abs(x) + s) + 41.0 * s * 2.0**-60) * pair.slope(x)
        # The bisection's interval and the rounding of the loss itself.
        assert abs(found - loss) <= 4.0 * step + 1e-12 * loss + 1e-15 / s**2
