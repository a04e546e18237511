"""A group's pairs against 25-digit rules on the real line, and against direct sums where f is close to 1."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.group_pairs import GroupPair
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.losses.group_poisson import group_poisson_loss

#: Noise over one record's bound, probability and records.
GROUPS = ((2.0, 0.1, 3), (40.0, 0.3, 20))


def pair_of(kind: Pair, noise: float, q: float, records: int) -> GroupPair:
    loss = group_poisson_loss(noise, q, records, replaced=kind is Pair.REPLACE)
    assert loss is not None
    pair = loss.contour_step(0.0, remove=kind is not Pair.ADD).pair
    assert isinstance(pair, GroupPair)
    return pair


def true_f(x: mp.mpf, noise: float, q: float, records: int) -> mp.mpf:
    """At x in units of one record's bound."""
    s, p = mp.mpf(noise), mp.mpf(q)
    return mp.fsum(
        mp.binomial(records, h) * p**h * (1 - p) ** (records - h) * mp.exp((2 * h * x - h * h) / (2 * s * s))
        for h in range(records + 1)
    )


class RealLine:
    """M(c + it) by a trapezoid rule in 25 digits."""

    def __init__(self, kind: Pair, noise: float, q: float, records: int, tilt: float, largest_t: float) -> None:
        with mp.workdps(25):
            s = mp.mpf(noise)
            phase = min(1.0, 2.0 * records / noise)
            height = phase * noise**2 / records
            gain = 0.5 * (height / noise) ** 2 + 0.3 * (tilt + 1.0) * phase + phase * largest_t
            step = mp.mpf(2.0 * math.pi * height / (50.0 + gain))
            reach = 9.0 * noise + (tilt + 1.0) * records
            self.terms = []
            for k in range(-int(reach / step), int(reach / step) + 1):
                x = k * step
                here = mp.log(true_f(x, noise, q, records))
                other = mp.log(true_f(-x, noise, q, records)) if kind is Pair.REPLACE else mp.mpf(0)
                base = mp.mpf(0) if kind is Pair.ADD else here
                loss = -here if kind is Pair.ADD else here - other
                self.terms.append((step * mp.npdf(x, 0, s) * mp.exp(base + tilt * loss), loss))

    def moment(self, t: float) -> mp.mpc:
        with mp.workdps(25):
            return mp.fsum(weight * mp.expj(t * loss) for weight, loss in self.terms)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", list(Pair))
@pytest.mark.parametrize(("noise", "q", "records"), GROUPS)
def test_lines_and_tables_are_within_their_errors(kind: Pair, noise: float, q: float, records: int) -> None:
    tilt, largest = 2.5, 2.0 * noise / records
    truth = RealLine(kind, noise, q, records, tilt, largest)
    step = GaussianPairStep(pair_of(kind, noise, q, records), 44.0)
    table = replace(step, digits=70.0).table(np.array([0.01, tilt]))
    assert abs(mp.log(truth.moment(0.0).real) - table.moments[1]) <= table.errors[1] <= 1e-10
    line = step.line(tilt, noise / records)
    for t in (0.1 * largest, largest):
        logs, quadrature, rounding = line.log_ratios(1, 2, t)
        with mp.workdps(25):
            ratio = mp.exp(mp.mpc(logs[1]))
            error = abs(truth.moment(t) / mp.exp(mp.mpf(line.log_moment)) - ratio)
        allowed = float(abs(ratio)) * math.expm1(quadrature[1] + rounding[1]) + math.expm1(line.log_moment_error)
        assert error <= allowed
        assert error <= 1e-10
        envelope = float(line.log_envelope(np.array([t]))[0])
        assert math.log(abs(ratio)) <= envelope + 1e-9


@pytest.mark.parametrize(("noise", "q", "records"), [*GROUPS, (300.0, 1e-6, 40), (1e6, 1.0 - 1e-9, 2)])
def test_f_keeps_its_digits_near_one(noise: float, q: float, records: int) -> None:
    pair = pair_of(Pair.REMOVE, noise, q, records)
    places = np.linspace(-8.0, 8.0, 9) * pair.noise
    logs, _ = pair.exponents(places)
    loss = group_poisson_loss(noise, q, records, replaced=False)
    assert loss is not None
    steps = loss._log_f(places / pair.noise)[0]
    for place, log_f, same in zip(places, logs, steps, strict=True):
        with mp.workdps(25):
            truth = float(mp.log(true_f(mp.mpf(float(place)) * loss.most_hits, noise, q, records)))
        assert log_f == pytest.approx(truth, rel=1e-12, abs=0.0)
        assert same == pytest.approx(truth, rel=1e-12, abs=0.0)


@pytest.mark.parametrize(("noise", "q", "records"), GROUPS)
def test_on_a_shifted_line_f_lies_between_its_bounds(noise: float, q: float, records: int) -> None:
    """|f| falls from its value on the real line by a cosine at most, and its argument grows up to a quarter turn."""
    pair = pair_of(Pair.REMOVE, noise, q, records)
    places = np.linspace(-9.0, 9.0 + 1.0 / pair.noise, 60) * pair.noise
    real, _ = pair.exponents(places)
    before = np.zeros_like(places)
    for angle in (0.2, 0.8, 1.5, 3.0):
        modulus, argument, _, _ = pair.shifted_exponents(places, angle)
        assert bool(np.all(modulus <= real + 1e-12))
        assert bool(np.all(modulus >= real + math.log(math.cos(0.5 * angle)) - 1e-12))
        assert bool(np.all(argument >= before - 1e-12)) or angle > 0.5 * math.pi
        assert bool(np.all(argument >= 0.0))
        before = argument


def test_one_record_is_the_pair_of_one_record() -> None:
    one = GaussianPairStep(pair_of(Pair.REPLACE, 1.5, 0.2, 1), 44.0)
    single = GaussianPairStep(GaussianPair(Pair.REPLACE, 1.5, 0.2), 44.0)
    tilts = np.array([0.1, 1.0, 7.0])
    assert one.table(tilts).moments == pytest.approx(single.table(tilts).moments, rel=1e-12)
    assert one.largest_tilt(10, 1.0) == pytest.approx(single.largest_tilt(10, 1.0))
    for loss in (0.01, 1.0, 12.0):
        assert one.pair.place_of_loss(loss) == pytest.approx(single.pair.place_of_loss(loss))
    assert one.pair.mass_beyond(3.0, 0.4) == pytest.approx(single.pair.mass_beyond(3.0, 0.4))


def test_the_largest_loss_of_add_is_that_of_no_hit() -> None:
    step = GaussianPairStep(pair_of(Pair.ADD, 2.0, 0.1, 3), 44.0)
    assert step.largest_loss == pytest.approx(-3.0 * math.log1p(-0.1), rel=1e-14)


@pytest.mark.parametrize("kind", list(Pair))
def test_a_group_that_is_nearly_always_hit_keeps_its_digits(kind: Pair) -> None:
    """A full batch but for 1e-12; a hundred million steps multiply what is wrong with one."""
    step, tilt, t = GaussianPairStep(pair_of(kind, 1e6, 1.0 - 1e-12, 2), 60.0), 300.0, 70.0
    mu = (4.0 if kind is Pair.REPLACE else 2.0) / 1e6
    moment = 0.5 * mu * mu * tilt * (tilt + 1.0)
    assert step.table(np.array([tilt])).moments[0] == pytest.approx(moment, rel=1e-10, abs=0.0)
    logs, _, _ = step.line(tilt, t).log_ratios(1, 2, t)
    assert logs[1].real == pytest.approx(-0.5 * (mu * t) ** 2, rel=1e-8, abs=0.0)
    assert logs[1].imag == pytest.approx(mu * mu * t * (tilt + 0.5), rel=1e-10, abs=0.0)


def test_inexact_weights_are_in_the_error_of_a_small_moment() -> None:
    """Two hundred weights, each made of the one before."""
    step, tilt = GaussianPairStep(pair_of(Pair.ADD, 200.0, 0.5, 200), 60.0), 0.3
    table = step.table(np.array([tilt]))
    wrong = 8.0 * 2.0**-53 * -200.0 * math.log(0.5) * table.moments[0]
    assert table.errors[0] >= wrong


def test_a_hit_that_is_all_but_impossible_is_told_apart() -> None:
    loss = group_poisson_loss(1.0, 1e-55, 33, replaced=False)
    assert loss is not None
    assert loss.most_hits == 1
