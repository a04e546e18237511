"""How many of some records a batch holds, and the bounds on groups against every batch of small data sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from accounting.composition.composition import compose
from accounting.events import Event, Gaussian, Laplace, WithoutReplacement, WithReplacement
from accounting.events.samplings import FixedSizeBatches
from accounting.losses.batch_hits import Hits, branches, hits_with_replacement, hits_without_replacement
from accounting.losses.enclosed import EnclosedLoss
from accounting.losses.group_batches import GroupBatchLoss
from accounting.losses.privacy_loss import PrivacyLoss
from accounting.relations import NeighboringRelation

SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE
Array = np.ndarray


def exactly(draws: int, records: int, size: int, *, replacement: bool) -> list[Fraction]:
    """The law of the number of hits."""
    k = min(size, records)
    if replacement:
        p = Fraction(k, records)
        return [math.comb(draws, h) * p**h * (1 - p) ** (draws - h) for h in range(draws + 1)]
    return [
        Fraction(math.comb(k, h) * math.comb(records - k, draws - h), math.comb(records, draws))
        for h in range(min(k, draws) + 1)
    ]


@pytest.mark.parametrize(
    ("draws", "records", "size"),
    [(1, 2, 2), (3, 5, 3), (5, 5, 2), (7, 9, 1), (30, 40, 25), (200, 1000, 100), (2, 3, 9)],
)
@pytest.mark.parametrize("replacement", [True, False])
def test_hits_have_their_law(draws: int, records: int, size: int, replacement: bool) -> None:
    hits = (hits_with_replacement if replacement else hits_without_replacement)(draws, records, size)
    law = exactly(draws, records, size, replacement=replacement)
    assert hits.most == max(h for h, chance in enumerate(law) if chance)
    assert hits.first == min(h for h, chance in enumerate(law) if chance)
    for h, weight in zip(hits.numbers.astype(int).tolist(), hits.weights, strict=True):
        assert weight == pytest.approx(float(law[h]), rel=1e-12)
    last = int(hits.numbers[-1])
    assert float(sum(law[last + 1 :])) <= hits.beyond <= 1e-60


@pytest.mark.parametrize("law", [hits_with_replacement, hits_without_replacement])
def test_tail_is_bounded(law: type) -> None:
    """Numbers of a billion records."""
    hits = law(10**6, 10**9, 1000)
    assert len(hits.weights) < 60
    h = int(hits.numbers[-1]) + 1
    # Of either law the first number without a weight is below this and not far from it.
    most = math.comb(1000, h) * 1e-3**h
    assert 1e-9 * most < hits.beyond <= 1e-60
    assert math.fsum(hits.weights) == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("distance", [0.01, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(
    ("draws", "records", "size"), [(10, 1000, 4), (100, 1000, 64), (3, 5, 3), (900, 1000, 500), (10**6, 10**9, 1000)]
)
def test_shares_make_the_law(draws: int, records: int, size: int, distance: float, bounded: bool) -> None:
    """So many hits or more are as likely as they are or more so, and what is left is no hit."""
    hits = hits_without_replacement(draws, records, size)
    found = branches(hits, distance, bounded=bounded)
    assert math.fsum(branch.share for branch in found) == pytest.approx(1.0, abs=1e-13)
    assert all(0.0 < branch.probability <= 1.0 for branch in found)
    numbers = [branch.hits for branch in found]
    assert numbers == sorted(set(numbers))
    chances = np.array([branch.share * branch.probability for branch in found])
    from_here = np.cumsum(chances[::-1])[::-1]
    law = list(zip(hits.numbers, hits.weights, strict=True))
    least = [math.fsum(w for h, w in law if h > low) for low in [0, *numbers[:-1]]]
    # Without a batch that misses them all there is no room for more than rounding.
    more = 1e-12 if hits.first == 0 and hits.weights[0] > 1e-9 else -1e-14
    assert np.all(from_here >= np.array(least) * (1.0 + more))
    assert np.all(from_here <= np.array(least) * (1.0 + 1e-9) + 1e-59)


def test_steps_that_show_little_lose_nothing() -> None:
    """Each branch moves the mean alike, so that knowing it says nothing where the noise is large."""
    hits = hits_without_replacement(10, 1000, 30)
    mean = sum(h * w for h, w in zip(hits.numbers, hits.weights, strict=True))
    moved = [branch.probability * branch.hits for branch in branches(hits, 1e-4)]
    assert moved == pytest.approx([mean] * len(moved), rel=1e-5)
    shares = np.array([branch.share for branch in branches(hits, 0.3)])
    assert shares[1:].sum() > sum(b.share for b in branches(hits, 1e-4)[1:]) + 1e-3


def enclosed(event: Event, relation: NeighboringRelation, size: int) -> tuple[PrivacyLoss, GroupBatchLoss]:
    [(loss, _)] = compose([event], relation).steps
    step = loss.for_group(size)
    assert step is not None
    assert isinstance(step.loss, EnclosedLoss)
    assert isinstance(step.loss.attained, GroupBatchLoss)
    return step.loss.dominating, step.loss.attained


def all_batches(sampling: FixedSizeBatches, values: Sequence[float]) -> list[float]:
    if isinstance(sampling, WithReplacement):
        return [sum(drawn) for drawn in itertools.product(values, repeat=sampling.batch_size)]
    return [sum(drawn) for drawn in itertools.combinations(values, sampling.batch_size)]


def output(sums: Sequence[float], noise: float, x: Array, *, laplace: bool) -> Array:
    distances = np.abs(x[:, None] - np.array(sums))
    if laplace:
        return np.asarray(np.exp(-distances / noise).mean(axis=1) / (2.0 * noise))
    return np.asarray(stats.norm.pdf(distances / noise).mean(axis=1) / noise)


@pytest.mark.parametrize(
    ("noise", "sampling", "size", "relation"),
    [
        (2.0, WithoutReplacement(2, 5), 2, REPLACE),
        (0.7, WithoutReplacement(2, 4), 2, REPLACE),
        (6.0, WithoutReplacement(3, 6), 3, REPLACE),
        (2.0, WithoutReplacement(3, 4), 2, REPLACE),
        (2.0, WithoutReplacement(2, 5), 2, SPECIAL),
        (1.0, WithoutReplacement(2, 4), 2, SPECIAL),
        (2.0, WithReplacement(2, 4), 2, REPLACE),
        (5.0, WithReplacement(3, 3), 1, REPLACE),
    ],
)
@pytest.mark.parametrize("laplace", [False, True])
@pytest.mark.one_in(8)
def test_no_pair_of_small_data_sets_is_above(
    noise: float, sampling: FixedSizeBatches, size: int, relation: NeighboringRelation, laplace: bool
) -> None:
    """Every batch counted, gradients on a grid, both orders of the two data sets; others that agree come close."""
    mechanism = Laplace(noise) if laplace else Gaussian(noise)
    [(loss, _)] = compose([Event(mechanism, sampling)], relation).steps
    above = loss if size == 1 else enclosed(Event(mechanism, sampling), relation, size)[0]
    x = np.linspace(-25.0, 25.0, 2001) * noise
    cell, epsilons = float(x[1] - x[0]), np.array([0.0, 0.1, 0.4, 1.0, 2.0])
    bounds = {remove: above.excess(epsilons, remove=remove) for remove in (True, False)}
    theirs_all = [(0.0,) * size] if relation is SPECIAL else [(-1.0,) * size, (-1.0, 0.5, -1.0)[:size], (0.0,) * size]
    nearest = {True: 0.0, False: 0.0}
    records = sampling.dataset_size - size
    several = itertools.combinations_with_replacement((-1.0, 0.0, 0.8, 1.0), records)
    for others in [*several, *((c,) * records for c in (-0.8, -0.5, 0.5))]:
        for mine in ((1.0,) * size, (1.0, -0.4, 1.0)[:size]):
            for theirs in theirs_all:
                p, q = (
                    output(all_batches(sampling, (*others, *group)), noise, x, laplace=laplace)
                    for group in (mine, theirs)
                )
                for remove, (first, second) in ((True, (p, q)), (False, (q, p))):
                    sticks = np.array([np.maximum(first - math.exp(e) * second, 0.0).sum() for e in epsilons]) * cell
                    # Laplace densities have kinks between the points of the grid.
                    assert np.all(sticks <= bounds[remove] * (1.0 + (5e-4 if laplace else 1e-6)) + 1e-9)
                    nearest[remove] = max(nearest[remove], float(sticks[1] / bounds[remove][1]))
    # With Laplace noise null records are charged as others.
    assert min(nearest.values()) > (0.4 if laplace and relation is SPECIAL else 0.9)


@pytest.mark.parametrize(
    ("noise", "sampling", "size"),
    [
        (2.0, WithoutReplacement(2, 6), 2),
        (9.0, WithoutReplacement(10, 1000), 12),
        (0.4, WithoutReplacement(3, 4), 2),
        (3.0, WithReplacement(3, 20), 2),
        pytest.param(30.0, WithoutReplacement(100, 1000), 70, marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize(("relation", "laplace"), [(REPLACE, False), (REPLACE, True), (SPECIAL, False)])
def test_attained_by_a_group(
    noise: float, sampling: FixedSizeBatches, size: int, relation: NeighboringRelation, laplace: bool
) -> None:
    """All others at -1 and a group of 1 against one of -1, or null ones: hardly below, never above."""
    if relation is SPECIAL and isinstance(sampling, WithReplacement):
        relation = REPLACE
    _, below = enclosed(Event(Laplace(noise) if laplace else Gaussian(noise), sampling), relation, size)
    law = (
        stats.binom(sampling.batch_size, size / sampling.dataset_size)
        if isinstance(sampling, WithReplacement)
        else (stats.hypergeom(sampling.dataset_size, size, sampling.batch_size))
    )
    hits = np.arange(min(size, sampling.batch_size) + 1 if isinstance(sampling, WithoutReplacement) else 4)
    weights = law.pmf(hits)
    epsilons = np.array([0.0, 0.1, 0.5, 1.5, 4.0])
    x = np.linspace(-14.0 * noise, 14.0 * noise + 2.0 * size, 200_001)
    if laplace:
        x = np.linspace(-60.0 * noise, 60.0 * noise + 2.0 * size, 400_001)

    def density(step: float) -> Array:
        noises = stats.laplace if laplace else stats.norm
        return np.asarray(sum(w * noises.pdf(x, step * h, noise) for h, w in zip(hits, weights, strict=True)))

    p, q = density(2.0), density(1.0 if relation is SPECIAL else 0.0)
    cell = float(x[1] - x[0])
    exact = np.array([np.maximum(p - math.exp(e) * q, 0.0).sum() * cell for e in epsilons])
    found = below.excess(epsilons, remove=True)
    assert np.all(found <= exact * (1.0 + 1e-5) + 1e-11)
    assert np.all(found >= exact * (1.0 - 2e-3) - 1e-11)
    if relation is REPLACE:
        assert below.excess(epsilons, remove=False) == pytest.approx(found, rel=1e-12)
        # The mirror image: as if the two data sets were exchanged, and no order of them costs more than the pair.
        backwards = np.array([np.maximum(q - math.exp(e) * p, 0.0).sum() * cell for e in epsilons])
        assert np.all(backwards <= exact + 1e-9)


def test_a_group_of_one_is_a_record() -> None:
    """The bound for groups of one is the pair of a record."""
    epsilons = np.array([-1.0, 0.0, 0.3, 2.0])
    for mechanism in (Gaussian(3.0), Laplace(9.0)):
        for relation in (REPLACE, SPECIAL):
            [(loss, _)] = compose([Event(mechanism, WithoutReplacement(7, 200))], relation).steps
            step = loss.for_group(1)
            assert step is not None
            for remove in (True, False):
                one = (loss.dominating.excess(epsilons, remove=remove), step.loss.excess(epsilons, remove=remove))
                assert one[1] == pytest.approx(one[0], rel=1e-9)


def test_a_group_of_everybody_is_in_every_batch() -> None:
    assert hits_without_replacement(3, 4, 9) == Hits(3, (1.0,), 3, 0.0)
    assert hits_with_replacement(3, 4, 4) == Hits(3, (1.0,), 3, 0.0)
    above, _ = enclosed(Event(Gaussian(6.0), WithoutReplacement(3, 4)), REPLACE, 4)
    epsilon = np.array([0.5])
    mu = 1.0
    exact = stats.norm.cdf(mu / 2 - 0.5 / mu) - math.exp(0.5) * stats.norm.cdf(-mu / 2 - 0.5 / mu)
    assert float(above.excess(epsilon, remove=True)[0]) == pytest.approx(exact, rel=1e-9)
