"""Compares the lower bounds of random sets of steps with all outcomes of few steps, and with the likelihood ratio."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest

from accounting.accountant import delta_of_composition
from accounting.composition.composition import Composition
from accounting.losses.set_statistic import SetStatisticLoss, _added, _cells_of, _Law, _power


@pytest.mark.parametrize(("bins", "chosen"), [(3, 1), (4, 2), (5, 4)])
def test_the_law_of_the_sum_is_the_same_whichever_set_is_chosen(bins: int, chosen: int) -> None:
    """Enumerated: every tuple of cells, and every set of steps."""
    edges = np.array([-0.4, 0.3, 0.9, 1.7])
    without, taking_part = _cells_of(edges).masses, _cells_of(edges - 1.3).masses
    sums = np.zeros((2, bins * edges.size + 1))
    sets = list(combinations(range(bins), chosen))
    for cells in product(range(edges.size + 1), repeat=bins):
        sums[1, sum(cells)] += math.prod(without[cell] for cell in cells)
        for some in sets:
            masses = [(taking_part if step in some else without)[cell] for step, cell in enumerate(cells)]
            sums[0, sum(cells)] += math.prod(masses) / len(sets)
    rest = _power(_Law(0, without, 0.0), bins - chosen)
    for row, law in zip(sums, (taking_part, without), strict=True):
        assert _added(rest, _power(_Law(0, law, 0.0), chosen)).masses == pytest.approx(row, rel=1e-13)


@pytest.mark.parametrize(
    ("noise", "bins", "chosen"), [(1.0, 22, 5), (0.3, 10, 9), (8.0, 300, 150), (0.2, 6, 2), (0.7, 2, 1), (1.0, 300, 8)]
)
@pytest.mark.one_in(3)
def test_both_laws_are_probabilities(noise: float, bins: int, chosen: int) -> None:
    """What is left out is next to nothing, and losses increase."""
    atoms = SetStatisticLoss(noise, bins, chosen).atoms
    assert math.fsum(np.exp(atoms.log_masses)) == pytest.approx(1.0, abs=1e-10)
    assert math.fsum(np.exp(atoms.swapped.log_masses)) == pytest.approx(1.0, abs=1e-10)
    assert (np.diff(atoms.losses) > 0.0).all()


@pytest.mark.parametrize("count", [2, 7, 1000])
@pytest.mark.one_in(3)
def test_errors_add_up_over_convolutions(count: int) -> None:
    """Against laws of which every mass is too large by one relative error, convolved in 64 bits of mantissa."""
    masses = np.exp(-0.5 * np.linspace(-4.0, 4.0, 41) ** 2)
    masses /= masses.sum()
    wrong = _power(_Law(0, masses * (1.0 + 1e-12), 1e-12), count)
    exact = np.ones(1, np.longdouble)
    for _ in range(count):
        exact = np.convolve(exact, masses.astype(np.longdouble))
    there = exact[wrong.first : wrong.first + wrong.masses.size]
    known = there > 1e-70
    error = float(np.abs(wrong.masses[known] / there[known] - 1.0).max())
    assert 0.9e-12 * count < error < wrong.error < 30e-12 * count


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("noise", "bins", "chosen"), [(1.0, 9, 3), (0.6, 6, 4), (2.0, 12, 5)])
def test_attained_by_the_sets(noise: float, bins: int, chosen: int, remove: bool) -> None:
    """The profile is below that of the mixture over all sets, and close to it; five standard errors of samples."""
    rng, draws, mu = np.random.default_rng(11), 40_000, 1.0 / noise
    z = rng.standard_normal((draws, bins))
    if remove:
        z[:, :chosen] += mu
    steps = mu * z - 0.5 * mu * mu
    elementary = np.zeros((chosen + 1, draws))
    elementary[0] = 1.0
    for place in range(bins):
        elementary[1:] += np.exp(steps[:, place]) * elementary[:-1]
    ratio = elementary[chosen] / math.comb(bins, chosen)
    epsilons = np.array([0.05, 0.2, 0.6])
    attained = SetStatisticLoss(noise, bins, chosen).excess(epsilons, remove=remove)
    for epsilon, delta in zip(epsilons.tolist(), attained.tolist(), strict=True):
        terms = np.maximum(1.0 - math.exp(epsilon) / (ratio if remove else 1.0 / ratio), 0.0)
        error = 5.0 * terms.std() / math.sqrt(draws)
        assert delta <= terms.mean() + error
        assert delta >= 0.9 * terms.mean() - error


def test_less_accurate_masses_widen_what_contours_say() -> None:
    """Masses that are wrong by a relative 1e-11 are no exact atoms, and the interval says so."""
    loss = SetStatisticLoss(1.0, 22, 5)
    step = loss.contour_step(0.0, remove=True)
    assert step.error == loss.error > 1e-12
    assert step.line(2.0, 1.0).rounding > loss.error
    assert step.table(np.array([2.0])).errors[0] > 5.0 * loss.error
    twice = delta_of_composition(Composition(((loss, 2),)), 6.0).value
    assert 0.0 < twice.lower <= twice.upper
