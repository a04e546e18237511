"""Densities of logarithms of sums of log-normal variables, against quadratures in 30 digits and their moments."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier import log_sums
from accounting.fourier.log_interpolation import interpolated
from accounting.fourier.log_sum_ends import log_below, lower_end, upper_end
from accounting.fourier.log_sums import LogSum, log_sum

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
@pytest.mark.one_in(3)
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


@pytest.mark.parametrize(("mu", "count"), [(1.0, 30), (0.1, 500), (2.0, 8), (1.25, 400)])
def test_ends_leave_out_what_they_say(mu: float, count: int) -> None:
    """By the density itself where it is known, and not by far: the lattice is not twice as long as it must be."""
    law = log_sum(mu, count)
    means, weights = np.exp(law.logs) / count, law.step * law.density * (1.0 + law.errors)
    assert float(weights[law.logs < law.lower].sum()) <= 10.0 * math.exp(law.log_below) + 1e-60
    end = upper_end(mu, count, law.log_above)
    assert float((weights * means)[law.logs > end].sum()) <= math.exp(law.log_above)
    for exponent in (-5.0, -40.0):
        low, high = lower_end(mu, count, exponent), upper_end(mu, count, exponent)
        assert 1e-12 * math.exp(exponent) < float(weights[law.logs < low].sum()) <= math.exp(exponent)
        assert 1e-5 * math.exp(exponent) < float((weights * means)[law.logs > high].sum()) <= math.exp(exponent)
        assert float(log_below(mu, count, np.array([low]))[0]) <= exponent + 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(("mu", "count"), [(1.0, 50), (0.3, 37), (1.25, 700)])
def test_shorter_lattices_have_the_same_density(mu: float, count: int) -> None:
    """Up to their errors; and they end where no more than a share of e^-40 is left out."""
    long, short = log_sum(mu, count), log_sum(mu, count, -40.0)
    start = short.first - long.first
    assert long.step == short.step
    assert short.density.size < 0.8 * long.density.size
    assert start >= 0
    inside = (short.logs > short.lower) & (short.logs < short.upper)
    there = slice(start, start + short.density.size)
    density, errors = long.density[there][inside], (long.errors[there] + short.errors)[inside]
    assert (np.abs(short.density[inside] - density) <= 1.0000001 * errors * density).all()
    means = np.exp(long.logs) / count
    beyond = long.logs > short.upper
    assert float((long.step * long.density * means)[beyond].sum()) <= math.exp(-40.0)


def test_a_depth_is_rounded_so_that_others_share_it() -> None:
    assert log_sum(1.0, 20, -37.0) is log_sum(1.0, 20, -40.0)
    assert log_sum(1.0, 20, -500.0) is log_sum(1.0, 20)


@pytest.mark.parametrize("mu", [0.05, 0.7, 1.25])
@pytest.mark.one_in(3)
def test_errors_hold_between_lattice_points_whose_nodes_are_apart(mu: float) -> None:
    """A density of two, from whose table that of more is made, against 30 digits at places that are nowhere special."""
    two = log_sum(mu, 2)
    random = np.random.default_rng(7)
    with mp.workdps(30):
        for stride in (1, 2, 4):
            law = LogSum(mu, 2, two.first, two.step, two.density, two.errors, two.lower, two.upper, -100.0, stride)
            places = random.uniform(law.lower + 40.0 * law.step, law.upper - 40.0 * law.step, 12)
            values, errors = interpolated(law, law.table, places)
            assert (errors < 1e-10).any()
            for place, value, error in zip(places.tolist(), values.tolist(), errors.tolist(), strict=True):
                truth = density_of_two(mp.mpf(mu), mp.mpf(place))
                assert abs(float(value - truth)) <= error * float(truth)


def test_nodes_that_are_apart_magnify_errors_less() -> None:
    """On a fine lattice: with 16 points from node to node every place is close to a node."""
    fine = log_sum(0.5, 2, as_fine_as=512)
    smallest = []
    for stride in (1, 4, 16):
        law = LogSum(
            0.5, 2, fine.first, fine.step, fine.density, fine.errors + 1e-9, fine.lower, fine.upper, -100.0, stride
        )
        wrong = law.table[3]
        smallest.append(float(wrong.max(axis=0).min()) / 1e-9)
    assert smallest[0] > 1.7
    assert all(1.0 <= each < 2.1 for each in smallest)


def test_a_wrong_density_of_a_half_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors are carried on: those of one variable that are a billionth are sixteen billionths, or more, of the sum."""
    plain, made = log_sum(0.7, 16), log_sums._one

    def worse(mu: float, node_step: float, stride: int, upper: float, log_above: float) -> LogSum:
        one = made(mu, node_step, stride, upper, log_above)
        return replace(one, errors=one.errors + 1e-9)

    monkeypatch.setattr(log_sums, "_one", worse)
    inexact = log_sums._log_sum.__wrapped__(0.7, 16, -100.0, 16)
    middle = int(np.argmax(plain.density))
    assert 16e-9 < inexact.errors[middle] < 1e-6
    assert plain.errors[middle] < 1e-11


@pytest.mark.parametrize(("count", "error"), [(1000, 5e-10), pytest.param(10_000, 5e-9, marks=pytest.mark.thorough)])
def test_errors_grow_little_more_than_the_number(count: int, error: float) -> None:
    law = log_sum(1.0, count, -40.0)
    assert float(law.errors[int(np.argmax(law.density))]) < error


def test_what_takes_too_long_is_not_begun() -> None:
    with pytest.raises(OverflowError, match="too many terms"):
        log_sum(1.0, 10**7)
