"""Allocations on lines: moments and transforms against 25 digits, cuts, parts, envelopes."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.fourier.allocation_step import AllocationStep, allocation_step
from tests.accounting.filters.costs.truths import allocated_moment

NOISE = 1.3


def step_of(bins: int, seen: int, *, remove: bool, log_mass: float = -60.0) -> tuple[AllocationStep, float]:
    return allocation_step(NOISE, bins, seen, 0.0, log_mass, remove=remove)


def mean_of_power(share: float, power: complex) -> complex:
    """E (1 - rho + rho (Y_1 + Y_2) / 2)^power, by trapezoids in two dimensions."""
    with mp.workdps(25):
        mu, spacing = 1 / mp.mpf(NOISE), mp.mpf(1) / 3
        places = [spacing * k for k in range(-33, 34)]
        weights = [mp.exp(-z * z / 2) * spacing / mp.sqrt(2 * mp.pi) for z in places]
        ratios = [mp.exp(mu * z - mu * mu / 2) for z in places]
        total = mp.mpc(0)
        for i, (a, w) in enumerate(zip(ratios, weights, strict=True)):
            for b, v in zip(ratios[i:], weights[i:], strict=True):
                mean = 1 - mp.mpf(share) + mp.mpf(share) * (a + b) / 2
                total += (1 if a == b else 2) * w * v * mp.power(mean, mp.mpc(power))
        return complex(total)


@pytest.mark.parametrize("bins", [2, 10, 150])
def test_moment_within_its_error(bins: int) -> None:
    """Removal at integer orders by the multinomial theorem; the cut takes next to nothing of low moments."""
    step, left_out = step_of(bins, bins, remove=True)
    table = step.table(np.array([1.0, 2.0, 4.0]))
    assert left_out < 1e-25
    for moment, error, tilt in zip(table.moments, table.errors, (1, 2, 4), strict=True):
        assert abs(float(moment) - float(allocated_moment(NOISE, bins, tilt))) <= error + 1e-9 * abs(float(moment))
        assert error < 1e-9


@pytest.mark.one_in(1000)
@pytest.mark.parametrize(("bins", "remove"), [(2, True), (2, False), (5, True), (5, False)])
def test_line_within_its_error(bins: int, remove: bool) -> None:
    """Of two steps, which are all or two of five."""
    step, _ = step_of(bins, 2, remove=remove)
    tilt, spacing = 1.5, 0.75
    line = step.line(tilt, 2.0)
    logs, inexact, rounding = line.log_ratios(2, 4, spacing)
    share = 2 / bins
    moment = mean_of_power(share, tilt + 1.0 if remove else -tilt)
    assert abs(line.log_moment - math.log(moment.real)) <= line.log_moment_error + 1e-12
    for k in (1, 3, 7):
        z = complex(tilt, k * spacing)
        truth = mean_of_power(share, z + 1.0 if remove else -z) / moment
        error = abs(np.exp(logs[k]) - truth) / abs(np.exp(logs[k]))
        assert error <= math.expm1(inexact[k] + rounding[k]) + 1e-12
        assert inexact[k] + rounding[k] < 1e-9


@pytest.mark.parametrize(("bins", "seen"), [(30, 30), (30, 12)])
@pytest.mark.parametrize("remove", [True, False])
def test_envelope_decreases_and_is_above(bins: int, seen: int, remove: bool) -> None:
    step, _ = step_of(bins, seen, remove=remove, log_mass=-40.0)
    line = step.line(3.0, 30.0)
    t = np.linspace(0.5, 60.0, 40)
    envelope, moduli = line.log_envelope(t), line.line.moduli(t)
    assert bool(np.all(np.diff(envelope) <= 0.0))
    # A modulus is a sum of terms near 1: below 1e-15 it is rounding, which differs from processor to processor.
    assert bool(np.all(moduli <= np.exp(envelope + 1e-9) + 1e-15))
    assert envelope[-1] < -3.0


def test_a_cut_leaves_out_what_it_says() -> None:
    """The mass that is missing from the cut law, and no more than was allowed."""
    whole, _ = step_of(20, 20, remove=True, log_mass=-50.0)
    for log_mass in (-8.0, -20.0):
        step, left_out = step_of(20, 20, remove=True, log_mass=log_mass)
        missing = float(np.exp(whole.log_masses).sum() - np.exp(step.log_masses).sum())
        assert 0.99 * missing - 1e-14 <= left_out <= math.exp(log_mass)
        assert left_out > 0.5 * math.exp(log_mass)


def test_only_removal_is_cut() -> None:
    step, left_out = step_of(20, 20, remove=False)
    assert math.isinf(step.top)
    assert left_out == 0.0


def test_a_line_that_goes_too_far_claims_nothing() -> None:
    """Beyond 2 pi over the lattice's step its sum repeats, and says nothing of the integral."""
    step, _ = step_of(20, 20, remove=True)
    line = step.line(1.0, 1.0)
    last = 2.2 * math.pi / step.step
    _, near, _ = line.log_ratios(2, 4, 0.02 * last)
    _, far, _ = line.log_ratios(2, 4, last / 8.0)
    assert float(near[1]) < 1e-9
    assert float(far.min()) > 1.0
