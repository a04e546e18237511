"""Randomised response and Laplace noise on full batches: elementary laws, binomial sums."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.composition.composition import compose
from accounting.composition.fourier import FourierInversion
from accounting.events import Event, Gaussian, Laplace, PureDp
from accounting.losses.laplace import LaplaceLoss
from accounting.losses.stated import RandomizedResponseLoss
from accounting.relations import NeighboringRelation
from tests.accounting.fourier import ratio_checks, ratio_truths
from tests.accounting.references import gaussian_delta

SIZES = (1.0, 0.01, 8.0)


def closed_form(size: float, z: mp.mpc) -> mp.mpc:
    """M(z) of Laplace noise (Mironov 2017, Proposition 6)."""
    lam = mp.mpf(size)
    return ((z + 1) * mp.exp(lam * z) + z * mp.exp(-lam * (z + 1))) / (2 * z + 1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("size", SIZES)
def test_laplace_moment_within_its_error(size: float) -> None:
    step = LaplaceLoss(size).contour_step(ratio_checks.LOG_COUNT, remove=True)
    law = ratio_truths.laplace(size, 1.0, "remove", panels=32)
    for tilt in (0.3, 5.0):
        assert abs(law.moment(tilt) - closed_form(size, mp.mpf(tilt))) < 1e-14 * abs(law.moment(tilt))
    ratio_checks.check_table(step, law, [1e-3, 0.3, 5.0, 40.0])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tilt", [0.2, 4.0, 60.0])
def test_laplace_line_within_its_error(size: float, tilt: float) -> None:
    """The closed form serves any t: from where nothing turns to where the ends alone are left."""
    step = LaplaceLoss(size).contour_step(ratio_checks.LOG_COUNT, remove=True)
    line = step.line(tilt, 1.0)
    assert line.losses.imag.min() >= 0.0
    for t in np.array([1e-3, 0.3, 7.0, 300.0, 1e5]) / size:
        logs, quadrature, rounding = line.log_ratios(1, 2, float(t))
        with mp.workdps(30):
            truth = closed_form(size, mp.mpc(tilt, t)) / closed_form(size, mp.mpf(tilt))
            error = float(abs(truth - mp.exp(mp.mpc(logs[1]))))
        # Turning by t l rounds the phase itself.
        assert error <= math.expm1(quadrature[1] + rounding[1]) + 4e-16 * t * size, t
        assert error <= 1e-11 + 4e-16 * t * size


@pytest.mark.parametrize("size", SIZES)
def test_laplace_envelope_is_above_and_falls(size: float) -> None:
    step = LaplaceLoss(size).contour_step(ratio_checks.LOG_COUNT, remove=True)
    for tilt in (0.2, 4.0):
        ratio_checks.check_envelope(step, tilt, 60.0 / size)


@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_randomised_response_is_two_atoms(size: float) -> None:
    """moment_within_its_error, line_within_its_error."""
    step = RandomizedResponseLoss(size).contour_step(ratio_checks.LOG_COUNT, remove=True)
    with mp.workdps(30):
        likely = 1 / (1 + mp.exp(-mp.mpf(size)))
        law = ratio_truths.Law((likely, 1 - likely), (mp.mpf(size), -mp.mpf(size)))
    table = step.table(np.array([0.0, 1e-9, 0.4, 9.0]))
    for tilt, moment, error in zip(table.tilts, table.moments, table.errors, strict=True):
        assert abs(mp.log(law.moment(float(tilt)).real) - mp.mpf(moment)) <= error + 1e-25
    for tilt in (0.1, 3.0):
        line = step.line(tilt, 1.0)
        for t in (0.01, 1.0, 50.0):
            error, allowed = ratio_truths.distance(line, law, tilt, t)
            assert error <= allowed <= 1e-11 * max(1.0, size) ** 2
        assert (np.abs(line.log_envelope(np.array([0.0, 1.0, 1e9]))) < 1e-13).all()


def response_delta(size: float, count: int, epsilon: float, mu: float = 0.0) -> mp.mpf:
    """The binomial sum; with a Gaussian of mean mu^2/2 beside it, each term is that one's profile."""
    with mp.workdps(40):
        p = 1 / (1 + mp.exp(-mp.mpf(size)))
        total = mp.mpf(0)
        for k in range(count + 1):
            weight = mp.binomial(count, k) * p**k * (1 - p) ** (count - k)
            rest = mp.mpf(epsilon) - size * (2 * k - count)
            total += weight * (gaussian_delta(mu, rest) if mu else max(mp.mpf(0), 1 - mp.exp(rest)))
        return total


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("size", "count", "epsilon", "mu"),
    [(0.1, 100, 4.3, 0.0), (0.01, 10_000, 3.3, 0.0), (0.5, 12, 3.1, 0.0), (0.1, 100, 4.5, 0.3), (2.0, 3, 5.0, 0.8)],
)
def test_compositions_of_randomised_response_are_binomial_sums(
    size: float, count: int, epsilon: float, mu: float
) -> None:
    events = [Event(PureDp(size), count=count)] + ([Event(Gaussian(1.0 / mu))] if mu else [])
    composition = compose(events, NeighboringRelation.ADD_OR_REMOVE_ONE)
    bounds = FourierInversion().delta(composition, epsilon)
    assert bounds is not None
    truth = response_delta(size, count, epsilon, mu)
    assert mp.mpf(bounds.lower) <= truth <= mp.mpf(bounds.upper)
    assert bounds.width <= (1e-8 if mu else 1e-4) * truth


#: (noise, steps, epsilon) and delta from `tests.high_precision`, to 12 digits.
KNOWN = (
    (1.0, 1, 0.4, 0.259181779318),
    (1.5, 2, 0.9, 0.107571857547),
    (5.0, 10, 1.3, 0.00544275065776),
    (10.0, 30, 2.55, 4.8167635974e-08),
    (10.0, 12, 1.15, 1.37763959908e-05),
)


@pytest.mark.parametrize(("noise", "steps", "epsilon", "delta"), KNOWN)
def test_laplace_references_are_inside(noise: float, steps: int, epsilon: float, delta: float) -> None:
    composition = compose([Event(Laplace(noise), count=steps)], NeighboringRelation.ADD_OR_REMOVE_ONE)
    bounds = FourierInversion().delta(composition, epsilon)
    assert bounds is not None
    assert bounds.lower <= delta * (1.0 + 1e-11)
    assert delta * (1.0 - 1e-11) <= bounds.upper
    assert bounds.width <= 1e-5 * delta


def test_many_laplace_steps_need_no_window() -> None:
    """For delta = 1e-5 at 100 steps of sensitivity 1 and scale 1."""
    composition = compose([Event(Laplace(1.0), count=100)], NeighboringRelation.ADD_OR_REMOVE_ONE)
    bounds = FourierInversion().epsilon(composition, 1e-5)
    assert bounds is not None
    assert bounds.method == "fourier_inversion"
    assert bounds.width <= 1e-8
    assert bounds.lower <= 68.252951055 <= bounds.upper
