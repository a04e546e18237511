"""Specs on which the contour integrals, or the closed forms beside them, were once outside their own bounds."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon
from accounting.composition.composition import compose
from accounting.composition.fourier import FourierInversion
from accounting.events import Event, Gaussian, Poisson
from accounting.fourier.pairs import GaussianPair, Pair
from accounting.fourier.quadrature import GaussianPairStep
from accounting.relations import NeighboringRelation


def _log_f(x: mp.mpf | mp.mpc, s: float, q: float) -> mp.mpc:
    return mp.log(1 - mp.mpf(q) + mp.mpf(q) * mp.exp((x - mp.mpf("0.5")) / mp.mpf(s) ** 2))


def _add_moment(s: float, q: float, z: mp.mpc) -> mp.mpc:
    """E f^-z in long precision, on a line below the axis."""
    shift, spacing = mp.mpc(0, -0.3 * s * s), mp.mpf(s) ** 2 / 60
    reach = int((14 * s + 1) / float(spacing))
    points = [k * spacing + shift for k in range(-reach, reach + 1)]
    total = mp.fsum(mp.exp(-x * x / (2 * mp.mpf(s) ** 2) - z * _log_f(x, s, q)) for x in points)
    return total * spacing / (s * mp.sqrt(2 * mp.pi))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("q", [0.9999815063928041, 0.9999999999999801])
def test_moments_keep_their_digits_where_hardly_anything_is_left_out_of_the_sample(q):
    s, tilt, t = 0.2680622635, 0.2831521286, 0.3548006491
    step = GaussianPairStep(GaussianPair(Pair.ADD, s, q), 58.0)
    table, line = step.table(np.array([tilt])), step.line(tilt, t)
    logs, quadrature, rounding = line.log_ratios(1, 2, t)
    with mp.workdps(30):
        there = _add_moment(s, q, mp.mpc(tilt))
        moment = float(mp.log(there.real))
        ratio = complex(_add_moment(s, q, mp.mpc(tilt, t)) / there)
    # What a double holds of the truths is allowed for.
    assert abs(table.moments[0] - moment) <= table.errors[0] + 4e-16 * abs(moment)
    found = complex(np.exp(logs[1]))
    assert abs(found - ratio) <= abs(found) * math.expm1(quadrature[1] + rounding[1]) + 4e-16


@pytest.mark.parametrize("exponent", [-735, -738, -741])
def test_subnormal_deltas_are_bounded_from_above(exponent):
    with mp.workdps(40):

        def profile(epsilon: mp.mpf) -> mp.mpf:
            x = mp.log((mp.exp(epsilon) - mp.mpf("0.5")) / mp.mpf("0.5")) + mp.mpf("0.5")
            return (mp.ncdf(-x) + mp.ncdf(1 - x)) / 2 - mp.exp(epsilon) * mp.ncdf(-x)

        low, high = mp.mpf(1), mp.mpf(100)
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if mp.log(profile(middle)) > exponent else (low, middle)
        epsilon = float(low)
        truth = profile(mp.mpf(epsilon))
        composition = compose([Event(Gaussian(1.0), Poisson(0.5))], NeighboringRelation.ADD_OR_REMOVE_ONE)
        with np.errstate(all="ignore"):
            bounds = FourierInversion().delta(composition, epsilon)
        assert bounds is not None
        assert mp.mpf(bounds.lower) <= truth <= mp.mpf(bounds.upper)


@pytest.mark.parametrize(
    ("s", "q", "epsilon"),
    [
        (693.7505569990417, 2.24234616146012e-07, 2.2742454687174757e-08),
        (217.094412861094, 6.124589218862341e-07, 1.4897231459705528e-07),
        (409.97459031560294, 5.813322441949887e-07, 9.95100493469116e-08),
    ],
)
def test_one_step_far_in_its_tail_is_within_its_interval(s, q, epsilon):
    answer = delta_for_epsilon([Event(Gaussian(s), Poisson(q))], NeighboringRelation.REPLACE_ONE, epsilon)
    with mp.workdps(60):
        noise, share, ratio = mp.mpf(s), mp.mpf(q), mp.exp(mp.mpf(epsilon))
        # e^(x/s^2) solves q b y^2 - (1 - q)(e^eps - 1) y - e^eps q b = 0 at the threshold.
        b, linear = share * mp.exp(-1 / (2 * noise**2)), (1 - share) * (ratio - 1)
        x = noise**2 * mp.log((linear + mp.sqrt(linear**2 + 4 * b * b * ratio)) / (2 * b))

        def beyond(mean: int) -> mp.mpf:
            return mp.erfc((x - mean) / (noise * mp.sqrt(2))) / 2

        first = (1 - share) * beyond(0) + share * beyond(1)
        truth = first - ratio * ((1 - share) * beyond(0) + share * beyond(-1))
        assert mp.mpf(answer.value.lower) <= truth <= mp.mpf(answer.value.upper)
