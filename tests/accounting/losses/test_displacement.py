"""A record in another one's place, or a null record that makes it empty: the pair, and all batches of small sets."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.composition import Composition
from accounting.composition.fourier import FourierInversion
from accounting.events import Event, Gaussian, WithoutReplacement
from accounting.losses.displacement import DisplacedCellsLoss, DisplacementLoss
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.without_replacement import SymmetrizedLoss
from accounting.relations import NeighboringRelation
from tests.accounting.losses import sampled_references as references

SPECIAL, REPLACE = NeighboringRelation.REPLACE_SPECIAL, NeighboringRelation.REPLACE_ONE
SIZES = pytest.mark.parametrize(("s", "r"), [(2.0, 0.25), (6.0, 0.03), (0.45, 1e-3), (1.0, 0.95), (30.0, 1e-6)])


@pytest.mark.one_in(60)
@pytest.mark.parametrize("epsilon", [-1.3, -0.01, 0.0, 1e-7, 0.4, 2.0])
@pytest.mark.parametrize("remove", [True, False])
@SIZES
def test_excess_is_the_integral_of_the_densities(s: float, r: float, remove: bool, epsilon: float) -> None:
    """The record's law against the null record's for eps >= 0, the null record's against nothing's for eps < 0."""
    common = references.gaussian(0.0, s)
    laws = [references.mixture(r, references.gaussian(place, s), common) for place in (0.0, 1.0, 2.0)]
    loss = DisplacementLoss(s, r)
    displaced = (epsilon >= 0.0) == remove
    above, below = (laws[2], laws[1]) if displaced else (laws[1], laws[0])
    with mp.workdps(25):
        corners = [0.0, 0.5, 1.0, 1.5, 2.0]
        stick = references.hockey_stick(above, below, abs(epsilon), corners, 3 + 16 * s)
        exact = stick * (mp.exp(epsilon) if epsilon < 0 else 1)
    value = float(loss.excess(np.array([epsilon]), remove=remove)[0])
    assert value == pytest.approx(float(exact), rel=2e-10, abs=1e-17)


@pytest.mark.one_in(1000)
@SIZES
def test_moments_are_those_of_the_profile(s: float, r: float) -> None:
    """log_moment is above M(x) = 1 + x (x+1) int (e^(x eps) d(eps) + e^(-(x+1) eps) d'(eps)), and close to it."""
    loss = DisplacementLoss(s, r)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    tilts = np.array([0.3, 2.0, 7.0])
    upper, lower = loss.log_moment(tilts), loss.least_log_moment(tilts)
    for tilt, most, least in zip(tilts, upper, lower, strict=True):
        exact = -math.inf
        for remove in (True, False):
            total = 0.0
            end = min(60.0, 2.0 * loss.support(-60.0 - 8.0 * tilt / min(s, 1.0) ** 2, remove=remove).upper)
            for low, high in itertools.pairwise(np.concatenate([[0.0], np.geomspace(1e-6 * end, end, 80)])):
                epsilons = 0.5 * (low + high) + 0.5 * (high - low) * nodes
                own = np.exp(tilt * epsilons) * loss.excess(epsilons, remove=remove)
                other = np.exp(-(tilt + 1) * epsilons) * loss.excess(epsilons, remove=not remove)
                total += 0.5 * (high - low) * float(weights @ (own + other))
            exact = max(exact, math.log1p(tilt * (tilt + 1) * total))
        assert least <= exact * (1 + 1e-9)
        assert exact * (1 - 1e-9) <= most
        assert most == pytest.approx(exact, rel=1e-7)


def test_it_dominates_what_it_must_and_not_more_than_replacement() -> None:
    """Above Poisson's pair and below the symmetrised pair of a replaced record, at either sign; it grows with r."""
    epsilons = np.linspace(-4.0, 6.0, 201)
    for s, r in ((2.0, 0.25), (0.5, 1e-3), (8.0, 0.02)):
        here = DisplacementLoss(s, r)
        for remove in (True, False):
            profile = here.excess(epsilons, remove=remove)
            poisson = PoissonGaussianLoss(s, r).excess(epsilons, remove=remove)
            replaced = SymmetrizedLoss(PoissonGaussianLoss(s / 2.0, r)).excess(epsilons, remove=remove)
            assert (poisson <= profile * (1 + 1e-12)).all()
            assert (profile <= replaced * (1 + 1e-12)).all()
            assert (profile <= DisplacementLoss(s, 1.1 * r).excess(epsilons, remove=remove) * (1 + 1e-12)).all()
            support = here.support(-40.0, remove=remove)
            assert here.excess(np.array([support.upper]), remove=remove)[0] <= support.upper_mass
            assert (profile <= GaussianLoss(here.unamplified_mu).excess(epsilons) * (1 + 1e-12)).all()
            assert here.unamplified_mu == 1.0 / s


def test_no_batches_of_small_data_sets_cost_more() -> None:
    """Every batch of a fixed size, contributions on a grid: both directions, both signs; and it is attained."""
    s = 1.3
    x = np.linspace(-13.0, 13.0, 2601)
    cell = float(x[1] - x[0])
    epsilons = np.array([-1.5, -0.4, -0.05, 0.0, 0.05, 0.3, 0.9, 1.6])
    for size, batch in ((3, 2), (4, 2), (4, 3), (5, 2)):

        def output(records: tuple[float, ...], batch: int = batch) -> np.ndarray:
            sums = [sum(chosen) for chosen in itertools.combinations(records, batch)]
            laws = [np.exp(-((x - total) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi)) for total in sums]
            return np.asarray(np.mean(laws, axis=0))

        worst = np.zeros((2, epsilons.size))
        for others in itertools.combinations_with_replacement((-1.0, -0.4, 0.0, 0.5, 1.0), size - 1):
            null = output((*others, 0.0))
            for mine in (1.0, -1.0, 0.6):
                laws = output((*others, mine)), null
                for way, (p, other) in enumerate((laws, laws[::-1])):
                    sticks = [float(np.maximum(p - math.exp(e) * other, 0.0).sum()) * cell for e in epsilons]
                    worst[way] = np.maximum(worst[way], sticks)
        loss = DisplacementLoss(s, batch / size)
        for way, remove in enumerate((True, False)):
            bound = loss.excess(epsilons, remove=remove) + np.maximum(0.0, -np.expm1(epsilons))
            assert (worst[way] <= bound + 1e-6).all()
            assert worst[way] == pytest.approx(bound, abs=1e-5)


def test_the_number_of_the_page() -> None:
    event = Event(Gaussian(8.0), WithoutReplacement(1024, 50_000), 10_000)
    value = epsilon_for_delta([event], SPECIAL, 1e-5).value
    assert value.upper == pytest.approx(1.0733673, abs=1e-6)
    assert value.lower == pytest.approx(0.99364, abs=2e-5)
    assert epsilon_for_delta([event], REPLACE, 1e-5).value.upper == pytest.approx(2.2977843, abs=1e-6)
    both = FourierInversion().epsilon(Composition(((DisplacementLoss(8.0, 1024 / 50_000), 10_000),)), 1e-5)
    assert both is not None
    assert both.width < 1e-8


@SIZES
def test_cells_are_seen_less_than_the_output(s: float, r: float) -> None:
    """Below A's profile in both directions, within a thousandth, and its masses are laws."""
    cells, whole = DisplacedCellsLoss(s, r), DisplacementLoss(s, r)
    for law in (cells.atoms, cells.atoms.swapped):
        assert float(np.exp(law.log_masses).sum()) == pytest.approx(1.0, abs=1e-12)
    epsilons = np.array([0.0, 0.01 * r, r, 0.3])
    seen, truth = cells.excess(epsilons, remove=True), whole.excess(epsilons, remove=True)
    assert (seen <= truth * (1.0 + 1e-10)).all()
    assert seen == pytest.approx(truth, rel=2e-3, abs=1e-12)


def test_one_step_is_exact_in_both_directions() -> None:
    event = Event(Gaussian(1.5), WithoutReplacement(3, 10))
    value = delta_for_epsilon([event], SPECIAL, 0.4).value
    profile = DisplacementLoss(1.5, 0.3).excess(np.array([0.4]), remove=True)[0]
    assert value.upper == pytest.approx(profile, rel=1e-10)
    assert value.lower == pytest.approx(profile, rel=1e-4)
