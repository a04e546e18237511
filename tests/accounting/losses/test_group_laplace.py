"""Groups in Poisson batches with Laplace noise: the mixture by quadrature, and contributions that do not agree."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

from accounting.events import Event, Laplace, Poisson
from accounting.groups import group_delta_for_epsilon, group_epsilon_for_delta
from accounting.losses.group_laplace import GroupLaplaceLoss
from accounting.relations import NeighboringRelation

ADD_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
Point = tuple[float, float]


def densities(noise: float, q: float, group: list[Point], z: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The density of two coordinates of the noisy sum of the group's contributions, over every sample of it."""
    total = np.zeros(np.broadcast_shapes(z[0].shape, z[1].shape))
    for chosen in itertools.product((0, 1), repeat=len(group)):
        hits = sum(chosen)
        shift = [sum(c * u[axis] for c, u in zip(chosen, group, strict=True)) for axis in (0, 1)]
        terms = [np.exp(-np.abs(z[axis] - shift[axis]) / noise) / (2 * noise) for axis in (0, 1)]
        total = total + q**hits * (1 - q) ** (len(group) - hits) * terms[0] * terms[1]
    return total


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(
    "group",
    [
        [(1.0, 0.0), (0.0, 1.0)],
        [(1.0, 0.0), (-1.0, 0.0)],
        [(0.5, 0.5), (1.0, 0.0)],
        [(1.0, 0.0), (0.0, 1.0), (0.5, -0.5)],
    ],
)
def test_contributions_that_do_not_agree_cost_no_more(group: list[Point], replaced: bool) -> None:
    noise, q = 1.5, 0.4
    axis = np.linspace(-32.0, 32.0, 1281)
    z, cell = (axis[:, None], axis[None, :]), (axis[1] - axis[0]) ** 2
    p = densities(noise, q, group, z)
    other = densities(noise, q, [(-u, v) for u, v in group], z) if replaced else densities(noise, q, [], z)
    relation = REPLACE if replaced else ADD_REMOVE
    for epsilon in (0.0, 0.3, 0.8):
        found = group_delta_for_epsilon([Event(Laplace(noise), Poisson(q))], relation, epsilon, len(group)).value
        for first, second in ((p, other), (other, p)):
            attained = float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum()) * cell
            assert attained <= found.upper * (1.0 + 1e-3)


@pytest.mark.parametrize(
    ("noise", "q", "size", "replaced"), [(4.0, 0.01, 4, False), (2.0, 0.3, 3, True), (0.5, 0.05, 5, False)]
)
def test_profiles_enclose_the_mixture_and_are_close(noise: float, q: float, size: int, replaced: bool) -> None:
    """Records that agree, by a fine sum."""
    z = np.linspace(-size - 40 * noise, size + 40 * noise, 1_000_001)
    weights = stats.binom.pmf(np.arange(size + 1), size, q)

    def density(sign: int) -> np.ndarray:
        return sum(w * np.exp(-np.abs(z - sign * h) / noise) for h, w in enumerate(weights)) / (2 * noise)

    p, other = density(1), density(-1) if replaced else np.exp(-np.abs(z) / noise) / (2 * noise)
    above, below = (GroupLaplaceLoss(1 / noise, q, size, replaced, upward) for upward in (True, False))
    for loss in (above, below):
        masses = np.exp(loss.atoms.log_masses)
        assert masses.sum() == pytest.approx(1.0, abs=1e-12)
        assert (masses * np.exp(-loss.atoms.losses)).sum() == pytest.approx(1.0, abs=1e-12)
    for epsilon in (0.0, 0.02, 0.1):
        for remove, (first, second) in ((True, (p, other)), (False, (other, p))):
            exact = float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum()) * (z[1] - z[0])
            lower, upper = (float(loss.excess(np.array([epsilon]), remove=remove)[0]) for loss in (below, above))
            assert lower <= upper * (1.0 + 1e-12)
            assert lower <= exact * (1.0 + 1e-6) + 1e-12
            assert exact * (1.0 - 1e-6) - 1e-12 <= upper <= lower * (1.0 + 1e-5) + 1e-12


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize(
    ("noise", "q", "size", "count"),
    [(7.0, 1e-5, 2, 10**8), (37.0, 1e-15, 2, 3), (0.6, 0.9, 3, 1), (0.02, 1e-300, 10, 1)],
)
def test_the_largest_loss_is_rounded_up_however_rare_records_are(
    noise: float, q: float, size: int, count: int, replaced: bool
) -> None:
    with mp.workdps(400):
        top, bottom = (mp.log1p(q * mp.expm1(sign / mp.mpf(noise))) for sign in (1, -1))
        largest = size * count * (top - bottom if replaced else top)
        relation = REPLACE if replaced else ADD_REMOVE
        value = group_epsilon_for_delta([Event(Laplace(noise), Poisson(q), count)], relation, 0.0, size).value
        assert value.lower <= largest <= value.upper <= largest * (1 + 1e-12)


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("q", [1e-4, 1e-9, 1e-15])
def test_rare_records_are_enclosed_as_closely_as_frequent_ones(q: float, replaced: bool) -> None:
    """One of two records is in the batch, and nearly never both; the loss is then q times what it is for q = 1."""
    noise, shares = 2.0, (0.01, 0.5, 0.99)
    bounds = [GroupLaplaceLoss(1 / noise, each, 2, replaced, upward) for each in (q, 1e-20) for upward in (False, True)]
    for share in shares:
        found = [float(loss.excess(np.array([share * loss.pure_epsilon]))[0]) for loss in bounds]
        assert found[0] <= found[1] <= found[0] * (1.0 + 1e-3)
        assert found[1] / q == pytest.approx(found[3] / 1e-20, rel=100.0 * q + 1e-9)


@pytest.mark.thorough
def test_a_large_group_is_narrow_and_costs_what_its_records_together_may() -> None:
    event = Event(Laplace(20.0), Poisson(0.01), 100)
    value = group_epsilon_for_delta([event], ADD_REMOVE, 1e-6, 64).value
    assert value.upper - value.lower <= 1e-4 * value.upper
    assert 1.3425 < value.lower < value.upper < 1.3426
    smaller = group_epsilon_for_delta([event], ADD_REMOVE, 1e-6, 32).value
    assert smaller.upper < value.lower
    replaced = group_epsilon_for_delta([event], REPLACE, 1e-6, 64).value
    assert value.upper < replaced.lower <= replaced.upper < replaced.lower * (1 + 1e-3)
