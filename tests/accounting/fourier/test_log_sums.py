"""Densities of logarithms of sums of log-normal variables, against quadratures in 30 digits and their moments."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier import log_sums
from accounting.fourier.log_sums import LOG_ABOVE, LOG_BELOW, LogSum, log_below, log_sum

soak = pytest.mark.soak


def density_of_one(mu: mp.mpf, place: mp.mpf) -> mp.mpf:
    return mp.exp(-((place + mu * mu / 2) ** 2) / (2 * mu * mu)) / (mu * mp.sqrt(2 * mp.pi))


def density_of_two(mu: mp.mpf, place: mp.mpf) -> mp.mpf:
    """A trapezoid rule in 30 digits over the share of the first."""
    spacing = min(mu, mp.mpf(1)) / 5
    total, k = mp.mpf(0), 0
    while True:
        v = k * spacing
        near, far = mp.log1p(mp.exp(-v)), mp.log1p(mp.exp(v))
        term = density_of_one(mu, place - near) * density_of_one(mu, place - far)
        total += term if k == 0 else 2 * term
        if term < total * mp.mpf(10) ** -22:
            return total * spacing
        k += 1


def density_of_three(mu: mp.mpf, place: mp.mpf) -> mp.mpf:
    spacing = min(mu, mp.mpf(1)) / 5
    total = mp.mpf(0)
    for sign in (-1, 1):
        k = 0 if sign > 0 else 1
        quiet = 0
        while quiet < 3:
            v = sign * k * spacing
            one, two = place - mp.log1p(mp.exp(-v)), place - mp.log1p(mp.exp(v))
            term = density_of_one(mu, one) * density_of_two(mu, two)
            total += term
            quiet = quiet + 1 if term < total * mp.mpf(10) ** -20 else 0
            k += 1
    return total * spacing


@pytest.mark.parametrize("mu", [0.02, 0.4, 1.25, pytest.param(5.0, marks=soak)])
def test_density_within_its_errors_of_two(mu: float) -> None:
    """From the far left, where it is 1e-30, to the far right."""
    with mp.workdps(30):
        law = log_sum(mu, 2)
        good = np.flatnonzero((law.density > 1e-30) & (law.logs < law.upper))
        for i in good[:: max(1, good.size // 12)].tolist():
            truth = density_of_two(mp.mpf(mu), mp.mpf(float(law.logs[i])))
            assert abs(float(law.density[i] / truth - 1)) <= law.errors[i] < 1e-11


@pytest.mark.thorough
@pytest.mark.parametrize("mu", [0.8, pytest.param(0.05, marks=soak), pytest.param(2.0, marks=soak)])
def test_density_within_its_errors_of_three(mu: float) -> None:
    """Interpolated densities of two went into it."""
    with mp.workdps(30):
        law = log_sum(mu, 3)
        good = np.flatnonzero((law.density > 1e-25) & (law.logs < law.upper))
        for i in good[:: max(1, good.size // 2)].tolist():
            truth = density_of_three(mp.mpf(mu), mp.mpf(float(law.logs[i])))
            assert abs(float(law.density[i] / truth - 1)) <= law.errors[i] < 1e-11


@pytest.mark.parametrize(("mu", "count"), [(1.0, 100), (0.25, 17), (2.5, 64), pytest.param(1.25, 1000, marks=soak)])
def test_mass_and_moments(mu: float, count: int) -> None:
    """The second moment weighs the right tail, the mean of 1 / x the left one."""
    law = log_sum(mu, count)
    means, weights = np.exp(law.logs) / count, law.step * law.density
    allowed = 1.1 * float(weights @ (law.errors * (law.errors < 0.1))) + 1e-15
    assert abs(float(weights.sum()) - 1.0) < allowed < 1e-7
    assert abs(float(weights @ means) - 1.0) < 10.0 * allowed
    second = 1.0 + math.expm1(mu * mu) / count
    assert abs(float(weights @ means**2) / second - 1.0) < 1e-8
    assert float(weights @ (1.0 / means)) <= math.exp(0.5 * mu * mu * (1.0 + 1.0 / count))


@pytest.mark.parametrize(("mu", "count"), [(1.0, 30), (0.1, 500), (2.0, 8)])
def test_ends_leave_out_what_they_say(mu: float, count: int) -> None:
    """By the density itself where it is known, and not by far: the lattice is not twice as long as it must be."""
    law = log_sum(mu, count)
    means, weights = np.exp(law.logs) / count, law.step * law.density * (1.0 + law.errors)
    assert float(weights[law.logs < law.lower].sum()) <= 10.0 * math.exp(LOG_BELOW) + 1e-60
    end = log_sums._upper_end(mu, count, LOG_ABOVE)
    assert float((weights * means)[law.logs > end].sum()) <= math.exp(LOG_ABOVE)
    for exponent in (-5.0, -40.0):
        low, high = log_sums._lower_end(mu, count, exponent), log_sums._upper_end(mu, count, exponent)
        assert 1e-12 * math.exp(exponent) < float(weights[law.logs < low].sum()) <= math.exp(exponent)
        assert float((weights * means)[law.logs > high].sum()) <= math.exp(exponent)
        assert float(log_below(mu, count, np.array([low]))[0]) <= exponent + 1e-6


def test_a_wrong_density_of_a_half_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are carried on: those of a half that are a millionth are about two millionths in the whole."""
    plain, made = log_sum(0.7, 16), log_sums._one

    def worse(mu: float, step: float, upper: float) -> LogSum:
        one = made(mu, step, upper)
        return LogSum(mu, 1, one.first, step, one.density, one.errors + 1e-9, one.lower, one.upper)

    monkeypatch.setattr(log_sums, "_one", worse)
    inexact = log_sum.__wrapped__(0.7, 16)
    middle = int(np.argmax(plain.density))
    assert 16e-9 < inexact.errors[middle] < 1e-6
    assert plain.errors[middle] < 1e-11


def test_what_takes_too_long_is_not_begun() -> None:
    with pytest.raises(OverflowError, match="too many terms"):
        log_sum(1.0, 10**6)
