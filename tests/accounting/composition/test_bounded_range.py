"""Steps of bounded range: the recursion against a fine search, closed forms, and adaptive choices by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from accounting.accountant import delta_for_epsilon, epsilon_for_delta
from accounting.composition.bounded_range import METHOD, together
from accounting.composition.composition import Composition
from accounting.enclosure import enclosure
from accounting.events import Event, Exponential, Gaussian, Laplace, Poisson, ReportNoisyMax
from accounting.intervals import Interval
from accounting.losses import bounded_range_steps
from accounting.losses.bounded_range_steps import AttainedBlockLoss, BlockLoss, Kinds, TwoLossesLoss, fits
from accounting.losses.exponential import BoundedRangeLoss, BoundedRangePairLoss
from accounting.relations import NeighboringRelation
from tests.accounting.discrete_referee import bounded_range_delta

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE


def delta_of(size: float, steps: int, epsilon: float) -> Interval:
    return delta_for_epsilon([Event(Exponential(size), count=steps)], ADD_REMOVE, epsilon).value


def epsilon_of(size: float, steps: int, delta: float) -> Interval:
    return epsilon_for_delta([Event(Exponential(size), count=steps)], ADD_REMOVE, delta).value


def largest_delta(size: float, steps: int, x: float) -> float:
    """D_k(x) by a search over t at every node, without a lattice; of one step in closed form."""
    if steps == 1:
        if abs(x) >= size:
            return max(0.0, -math.expm1(x))
        return math.expm1(0.5 * (x - size)) ** 2 / -math.expm1(-size)

    def mean(t: float) -> float:
        likely = (math.exp(size) - math.exp(t)) / math.expm1(size)
        return likely * largest_delta(size, steps - 1, x - t) + (1.0 - likely) * largest_delta(
            size, steps - 1, x - t + size
        )

    best = 0.0
    for start in np.linspace(0.0, size, 5)[:-1]:
        bounds = (float(start), float(start) + size / 4)
        best = max(best, -minimize_scalar(lambda t: -mean(t), bounds=bounds, method="bounded").fun)
    return best


@pytest.mark.parametrize(("size", "steps"), [(0.3, 2), (8.0, 2), (0.7, 3)])
def test_delta_is_the_largest_of_all_adaptive_choices(size: float, steps: int) -> None:
    for share in (0.05, 0.7):
        epsilon = share * size * steps
        truth = largest_delta(size, steps, epsilon)
        bounds = delta_of(size, steps, epsilon)
        assert bounds.lower <= truth * (1.0 + 1e-7)
        assert truth <= bounds.upper * (1.0 + 1e-7)
        assert bounds.width <= 2e-3 * truth
        back = epsilon_of(size, steps, truth)
        assert back.lower <= epsilon * (1.0 + 1e-6)
        assert epsilon <= back.upper * (1.0 + 1e-6)
        assert back.width <= 1e-4 * size


def test_a_choice_that_depends_on_what_was_seen_costs_more() -> None:
    """More than every t that is fixed in advance, and the answer says so."""
    size, steps, epsilon = 0.5, 6, 1.5
    fixed = bounded_range_delta(size, steps, epsilon)
    answer = delta_for_epsilon([Event(Exponential(size), count=steps)], ADD_REMOVE, epsilon)
    assert 1.05 * fixed < answer.value.lower <= answer.value.upper
    assert answer.value.width < 1e-3 * answer.value.upper
    assert answer.method == METHOD


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("size", "steps", "delta"), [(0.1, 20, 1e-6), (0.02, 60, 1e-3), (1e-6, 8, 1e-7), (30.0, 5, 0.1)]
)
def test_epsilon_and_delta_are_each_others_inverse(size: float, steps: int, delta: float) -> None:
    bounds = epsilon_of(size, steps, delta)
    assert bounds.lower <= bounds.upper <= size * steps
    assert delta_of(size, steps, bounds.upper).lower <= delta * (1.0 + 1e-6)
    assert delta_of(size, steps, bounds.lower).upper >= delta * (1.0 - 1e-6)
    assert bounds.width <= 1e-3 * max(1.0, bounds.upper)


def test_a_coarser_lattice_is_wider_and_still_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, x = ((0.6, 5),), np.array([1.1])

    def ends() -> tuple[float, float]:
        losses = AttainedBlockLoss(kinds), BlockLoss(kinds)
        lower, upper = (float(loss.find_atoms().profile(x)[0]) for loss in losses)
        return lower, upper

    fine, widths = ends(), []
    for parts in (12, 24, 48):
        monkeypatch.setattr(bounded_range_steps, "_FINEST", parts)
        lower, upper = ends()
        assert lower <= fine[1]
        assert fine[0] <= upper
        widths.append(upper - lower)
    # Of second order in the lattice's step.
    assert widths[2] < 0.35 * widths[1] < 0.35 * 0.35 * widths[0] * 1.2


@pytest.mark.parametrize("kinds", [((0.1, 100),), ((1.5, 3),), ((0.1, 7), (0.37, 2))])
def test_pairs_of_a_block_are_pairs_and_one_is_above_the_other(kinds: Kinds) -> None:
    above, below = BlockLoss(kinds).atoms, AttainedBlockLoss(kinds).atoms
    for atoms in (above, below):
        assert np.all(np.diff(atoms.losses) > 0.0)
        assert np.exp(atoms.log_masses).sum() == pytest.approx(1.0, abs=2e-9)
        assert np.exp(atoms.log_masses - atoms.losses).sum() == pytest.approx(1.0, abs=2e-9)
    x = np.linspace(0.0, sum(size * count for size, count in kinds), 400)
    assert np.all(below.profile(x) <= above.profile(x) * (1.0 + 1e-12))


@pytest.mark.thorough
def test_the_lower_end_never_rises_with_delta() -> None:
    """Nor that of delta with epsilon."""
    lowers = [epsilon_of(0.1, 100, delta).lower for delta in np.geomspace(1e-9, 1e-2, 60)]
    assert np.all(np.diff(lowers) < 0.0)
    lowers = [delta_of(0.1, 100, epsilon).lower for epsilon in np.linspace(0.0, 3.0, 60)]
    assert np.all(np.diff(lowers) < 0.0)


def gaussian_delta(mu: float, x: float) -> float:
    return float(stats.norm.cdf(mu / 2 - x / mu) - math.exp(x) * stats.norm.cdf(-mu / 2 - x / mu))


def largest_over_t(size: float, rest: Callable[[float], float], x: float) -> float:
    """(A D)(x)."""

    def mean(t: float) -> float:
        likely = (math.exp(size) - math.exp(t)) / math.expm1(size)
        return likely * rest(x - t) + (1.0 - likely) * rest(x - t + size)

    best = 0.0
    for start in np.linspace(0.0, size, 5)[:-1]:
        found = minimize_scalar(lambda t: -mean(t), bounds=(float(start), float(start) + size / 4), method="bounded")
        best = max(best, -found.fun)
    return best


@pytest.mark.parametrize(("noise", "size", "steps", "x"), [(1.0, 1.0, 1, 2.0), (5.0, 0.5, 1, 0.4), (2.0, 0.4, 2, 0.9)])
def test_beside_a_gaussian_the_largest_choice_follows_its_output(
    noise: float, size: float, steps: int, x: float
) -> None:
    """Choices before the Gaussian step cost less; both by quadrature and a search over t at every node."""
    mu = 1.0 / noise
    nodes = np.linspace(-8.0, 8.0, 1601 if steps == 1 else 201)
    losses, masses = mu * mu / 2 + mu * nodes, stats.norm.pdf(nodes) * (nodes[1] - nodes[0])
    after = sum(m * largest_delta(size, steps, x - loss) for m, loss in zip(masses, losses, strict=True))
    before = largest_over_t(size, lambda y: gaussian_delta(mu, y), x) if steps == 1 else 0.0
    value = delta_for_epsilon([Event(Exponential(size), count=steps), Event(Gaussian(noise))], ADD_REMOVE, x).value
    assert before < after * (1.0 - 1e-3)
    assert value.lower <= after * (1.0 + 1e-4)
    assert after * (1.0 - 1e-4) <= value.upper
    assert value.width <= 3e-3 * value.upper


@pytest.mark.parametrize(("sizes", "x"), [((0.3, 0.9), 0.5), ((1.0, 2.0), 1.9)])
def test_no_order_of_different_steps_costs_more(sizes: tuple[float, float], x: float) -> None:
    orders = [
        largest_over_t(first, lambda y, last=last: largest_delta(last, 1, y), x) for first, last in (sizes, sizes[::-1])
    ]
    value = delta_for_epsilon([Event(Exponential(size)) for size in sizes], ADD_REMOVE, x).value
    assert max(orders) <= value.upper * (1.0 + 1e-7)
    assert value.lower <= max(orders) * (1.0 + 1e-7)
    assert value.width <= 0.02 * value.upper


@pytest.mark.parametrize(
    "others",
    [
        (),
        (Event(Gaussian(2.0)),),
        (Event(Laplace(8.0), count=3),),
        (Event(Gaussian(4.0), Poisson(0.01), 300), Event(Exponential(0.3))),
        (Event(ReportNoisyMax(0.2, "gumbel")),),
    ],
)
@pytest.mark.one_in(5)
def test_lists_are_narrow(others: tuple[Event, ...]) -> None:
    for size, count in ((0.1, 20), (0.01, 1500)):
        value = epsilon_for_delta([Event(Exponential(size), count=count), *others], ADD_REMOVE, 1e-6).value
        assert 0.0 < value.lower <= value.upper < value.lower * (1.0 + 0.012)


def test_what_stands_for_how_many_steps() -> None:
    one = together([(BoundedRangeLoss(0.3), 1)], None)
    assert one == ([(BoundedRangePairLoss(0.3), 1)],) * 2
    above, below = together([(BoundedRangeLoss(0.01), 2000), (BoundedRangeLoss(0.02), 1)], 5.0)
    [(pair, alone), (block, blocks)] = above
    assert isinstance(block, BlockLoss)
    assert (pair, alone) == (BoundedRangePairLoss(0.02), 1)
    assert 2000 <= block.kinds[0][1] * blocks <= 2004
    [(chosen, number), (last, _)] = below
    assert isinstance(chosen, TwoLossesLoss)
    assert (number, last) == (2000, AttainedBlockLoss(((0.02, 1),)))
    assert not fits(((0.01, 2000), (0.02, 1)))
    # The largest interval has a pair of its own where even one block is too much.
    assert together([(BoundedRangeLoss(400.0), 2)], None)[0] == [(BoundedRangePairLoss(400.0), 2)]


def test_a_list_with_such_steps_alone_says_so() -> None:
    loss = BoundedRangeLoss(0.2)
    enclosed = enclosure(Composition(((loss, 3),)))
    assert enclosed is not None
    assert enclosed.method == METHOD


@pytest.mark.parametrize(
    ("size", "steps", "delta"),
    [(1e-6, 50, 1e-12), (1e3, 7, 1e-6), (0.01, 10**6, 1e-6), (100.0, 2, 0.5), (0.5, 3, 1e-30), (2.0, 2, 0.99)],
)
@pytest.mark.one_in(5)
def test_extremes_end_in_numbers(size: float, steps: int, delta: float) -> None:
    value = epsilon_for_delta([Event(Exponential(size), count=steps)], ADD_REMOVE, delta).value
    assert 0.0 <= value.lower <= value.estimate <= value.upper <= size * steps * (1.0 + 1e-12)


@pytest.mark.parametrize("size", [1e-30, 1e-15, 1e-12])
def test_neighbours_on_the_lattice_of_a_tiny_range_do_not_fall_together(size: float) -> None:
    """Far below 1 delta over the size is one function of epsilon over the size."""
    for share in (0.0, 0.3, 0.9, 0.999999):
        x = 2.0 * share
        for block in (BlockLoss, AttainedBlockLoss):
            tiny, small = (block(((each, 2),)).excess(np.array([x * each]))[0] / each for each in (size, 1e-7))
            assert tiny == pytest.approx(small, rel=3e-6)
        assert delta_of(size, 2, x * size).lower <= BlockLoss(((size, 2),)).excess(np.array([x * size]))[0]
