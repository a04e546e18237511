"""Several allocations by convolution: against 30 digits, Laplace inversions, contours and a shifted lattice."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.allocations import AllocationConvolution
from accounting.composition.composition import compose
from accounting.composition.fourier import FourierInversion
from accounting.events import Blocks, Event, Gaussian, RandomAllocation
from accounting.fourier.allocation_profile import AllocationProfile, allocation_profile
from accounting.fourier.log_interpolation import HALF
from accounting.fourier.log_sums import log_sum
from accounting.relations import NeighboringRelation

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def profile_of(noise: float, bins: int, count: int, *, remove: bool) -> AllocationProfile:
    profile = allocation_profile(log_sum(1.0 / noise, bins), count, remove=remove)
    assert profile is not None
    return profile


def exact_delta(noise: float, epsilon: float, *, remove: bool) -> float:
    """Compute delta of one allocation to two bins: a closed form for one bin is integrated over the other."""
    with mp.workdps(30):
        mu, g = 1 / mp.mpf(noise), mp.e ** mp.mpf(epsilon)
        strike = 2 * g if remove else 2 / g

        def inside(z: mp.mpf) -> mp.mpf:
            left = strike - mp.e ** (mu * z - mu * mu / 2)
            if left <= 0:
                return mp.npdf(z) * (1 - left if remove else 0)
            d = (-mp.log(left) - mu * mu / 2) / mu
            call = mp.ncdf(d + mu) - left * mp.ncdf(d)
            return mp.npdf(z) * (call if remove else left * mp.ncdf(-d) - mp.ncdf(-d - mu))

        edge = (mp.log(strike) + mu * mu / 2) / mu
        steps = [-14, -9, -6, -4, -2, -1, -0.5, -0.2, -0.1, -0.05, -0.02, -0.01, -0.001, 0]
        above = [0.001, 0.01, 0.1, 0.5, 1, 2, 4, 8, 14]
        nodes = [edge + step for step in (*steps, *(above if remove else []))]
        return float(mp.quad(inside, nodes) * (mp.mpf(0.5) if remove else g / 2))


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("noise", "epsilon"), [(1.0, 0.5), (2.0, 1.2), (0.8, 3.0)])
@pytest.mark.one_in(6)
def test_delta_within_its_bounds(noise: float, epsilon: float, remove: bool) -> None:
    profile = profile_of(noise, 2, 1, remove=remove)
    bounds, exact = profile.delta_bounds(epsilon), exact_delta(noise, epsilon, remove=remove)
    assert bounds.lower <= exact * (1.0 + 1e-15)
    assert exact * (1.0 - 1e-15) <= bounds.upper
    assert bounds.width < 1e-12 * exact


@pytest.mark.parametrize(
    ("noise", "bins", "delta", "removed", "added"),
    [
        (1.0, 100, 1e-5, 0.6209396723, 0.4219534733),
        (2.0, 10, 1e-5, 0.6220592381, 0.5864209511),
        (1.0, 1000, 1e-6, 0.1717286858, 0.1494309548),
    ],
)
def test_one_allocation_against_laplace_inversion(
    noise: float, bins: int, delta: float, removed: float, added: float
) -> None:
    for remove, epsilon in ((True, removed), (False, added)):
        profile = profile_of(noise, bins, 1, remove=remove)
        assert profile.delta_bounds(epsilon - 1e-8).lower > delta > profile.delta_bounds(epsilon + 1e-8).upper


@pytest.mark.parametrize("count", [2, 3, 7])
def test_compositions_agree_with_contours(count: int) -> None:
    """Two ways from one density, and what they have in common is narrower than either."""
    composition = compose([Event(Gaussian(1.0), RandomAllocation(20, 1), 20 * count)], ADD_REMOVE)
    for delta in (1e-3, 1e-7):
        one, other = (way.epsilon(composition, delta) for way in (AllocationConvolution(), FourierInversion()))
        assert one is not None
        assert other is not None
        assert max(one.lower, other.lower) <= min(one.upper, other.upper)
        assert one.width < 1e-9
    here, there = (way.delta(composition, 0.7) for way in (AllocationConvolution(), FourierInversion()))
    assert here is not None
    assert there is not None
    assert max(here.lower, there.lower) <= min(here.upper, there.upper)


def test_two_allocations_are_the_convolution_of_one() -> None:
    """By the profile alone: delta_2(eps) is the mean of delta_1(eps - L) over L."""
    noise, bins, epsilon = 1.5, 5, 0.8
    one, two = (profile_of(noise, bins, count, remove=True) for count in (1, 2))
    law = one.law
    step = law.step
    masses = law.density * step
    deltas = np.array([_delta_of_any_sign(one, noise, bins, epsilon - float(loss)) for loss in law.logs[::8]])
    summed = float(deltas @ masses[::8]) * 8.0
    bounds = two.delta_bounds(epsilon)
    assert summed == pytest.approx(bounds.estimate, rel=1e-6)


def _delta_of_any_sign(profile: AllocationProfile, noise: float, bins: int, epsilon: float) -> float:
    if epsilon >= 0.0:
        return profile.estimate(epsilon)[0]
    other = profile_of(noise, bins, 1, remove=False)
    return 1.0 - math.exp(epsilon) * (1.0 - other.estimate(-epsilon)[0])


@pytest.mark.parametrize(("noise", "bins", "epochs", "width"), [(0.8, 1000, 1, 1e-8), (1.0, 300, 100, 1e-7)])
def test_little_noise_and_many_bins_are_narrow(noise: float, bins: int, epochs: int, width: float) -> None:
    event = Event(Gaussian(noise), RandomAllocation(bins, 1), bins * epochs)
    answer = epsilon_for_delta([event], ADD_REMOVE, 1e-6)
    assert answer.method == "allocation_convolution"
    assert 0.0 < answer.value.width < width
    delta = delta_for_epsilon([event], ADD_REMOVE, answer.value.upper)
    assert delta.value.lower <= 1e-6 * (1.0 + 1e-9)
    assert delta.value.upper == pytest.approx(1e-6, rel=1e-5)


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("noise", "bins", "count"), [(1.0, 100, 2), (2.0, 6, 12)])
def test_no_mass_at_the_end_of_a_lattice_is_left_out(noise: float, bins: int, count: int, remove: bool) -> None:
    """Of deltas that are as small as what is cut: the law's own lattice, summed up to its end, is below the bound."""
    profile = profile_of(noise, bins, count, remove=remove)
    law = profile.law
    epsilon = float(law.logs[-HALF - 2])
    beyond = law.logs > epsilon
    shares = -np.expm1(epsilon - law.logs[beyond])
    summed = law.step * float(law.density[beyond] @ shares)
    found = profile.delta_bounds(epsilon)
    assert 0.0 < summed <= found.upper


def test_a_delta_that_is_never_reached_costs_no_epsilon() -> None:
    composition = compose([Event(Gaussian(50.0), RandomAllocation(50, 1), 50)], ADD_REMOVE)
    bounds = AllocationConvolution().epsilon(composition, 0.4)
    assert bounds is not None
    assert bounds.upper == 0.0


@pytest.mark.parametrize(
    "event",
    [Event(Gaussian(1.0), RandomAllocation(10, 1), 15), Event(Gaussian(1.0), Blocks(7, 2), 7), Event(Gaussian(1.0))],
)
def test_other_lists_are_left_to_contours(event: Event) -> None:
    assert AllocationConvolution().epsilon(compose([event], ADD_REMOVE), 1e-5) is None
