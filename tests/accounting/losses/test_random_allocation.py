"""Random allocation against quadratures, samples and moments of the explicit pair in t dimensions."""

from __future__ import annotations

import math
from itertools import combinations

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from accounting.accountant import delta_for_epsilon, epsilon_for_delta, epsilon_of_composition
from accounting.composition.composition import Composition, compose
from accounting.composition.fourier import delta_in_direction, directed
from accounting.errors import InvalidValue, Unsupported
from accounting.events import Blocks, Event, Gaussian, Laplace, Poisson, RandomAllocation, event_from_json
from accounting.events.schedules import resolve_schedules
from accounting.filters import zcdp_cost
from accounting.fourier import log_sums
from accounting.fourier.profiles import DirectedProfiles
from accounting.intervals import Bounds
from accounting.losses.allocation_law import RatioAtoms, grouped_law, spread_law
from accounting.losses.allocation_moments import add_moments, allocation_moment, remove_moments
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.privacy_loss import Direction, PrivacyLoss
from accounting.losses.random_allocation import AllocationLoss, PartLoss, RatioLoss
from accounting.relations import NeighboringRelation
from tests.accounting.filters.costs.truths import allocated_moment

soak = pytest.mark.soak
ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL


def call(mu: float, strike: np.ndarray) -> np.ndarray:
    """E (Y - strike)_+ of a log-normal Y of mean 1 whose logarithm has standard deviation mu."""
    positive = np.maximum(strike, 1e-300)
    d = (-np.log(positive) - 0.5 * mu * mu) / mu
    return np.where(strike <= 0.0, 1.0 - strike, ndtr(d + mu) - positive * ndtr(d))


def put(mu: float, strike: np.ndarray) -> np.ndarray:
    positive = np.maximum(strike, 1e-300)
    d = (-np.log(positive) - 0.5 * mu * mu) / mu
    return np.where(strike <= 0.0, 0.0, positive * ndtr(-d) - ndtr(-d - mu))


def exact_deltas(noise: float, bins: int, epsilon: float) -> tuple[float, float]:
    """Both directions of the pair in 2 or 3 dimensions: one in closed form, trapezoids over the others."""
    mu = 1.0 / noise
    # A put's price is flat but not analytic where its strike is 0, which a coarse rule does not see.
    z = np.linspace(-11.0, 11.0 + mu, 400_000 if bins == 2 else 1200)
    weights = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * (z[1] - z[0])
    ratio = np.exp(mu * z - 0.5 * mu * mu)
    sums = ratio if bins == 2 else np.add.outer(ratio, ratio)
    mass = weights if bins == 2 else np.multiply.outer(weights, weights)
    removed = float(np.sum(mass * call(mu, bins * math.exp(epsilon) - sums))) / bins
    added = math.exp(epsilon) * float(np.sum(mass * put(mu, bins * math.exp(-epsilon) - sums))) / bins
    return removed, added


@pytest.mark.parametrize(
    ("bins", "noise"),
    [(2, 0.5), (3, 1.0), *(pytest.param(b, s, marks=soak) for b, s in ((2, 1.0), (2, 4.0), (3, 0.5), (3, 4.0)))],
)
@pytest.mark.one_in(3)
def test_interval_contains_the_exact_delta(bins: int, noise: float) -> None:
    event = Event(Gaussian(noise), RandomAllocation(bins, 1), bins)
    for epsilon in (0.05, 0.5, 2.0):
        exact = max(exact_deltas(noise, bins, epsilon))
        if exact < 1e-14:
            continue
        value = delta_for_epsilon([event], ADD_REMOVE, epsilon).value
        allowed = 1e-9 if bins == 2 else 1e-5
        assert value.lower <= exact * (1.0 + allowed)
        assert exact <= value.upper * (1.0 + allowed)
        assert value.width < 1e-6 * exact
        assert delta_for_epsilon([event], SPECIAL, epsilon).value == value


def sticks(law: RatioAtoms, epsilon: float) -> tuple[float, float]:
    values, g = np.exp(law.logs), math.exp(epsilon)
    removed = float(np.sum(law.masses * np.maximum(values - g, 0.0))) + law.infinity
    return removed, float(np.sum(law.masses * np.maximum(1.0 - g * values, 0.0))) + law.zero


@pytest.mark.parametrize(("noise", "bins"), [(1.0, 2), (1.0, 7), (0.4, 50), (5.0, 100), (0.05, 3)])
def test_laws_are_ordered_and_have_mean_one(noise: float, bins: int) -> None:
    above, below = spread_law(noise, bins, 800), grouped_law(noise, bins, 300)
    for law in (above, below):
        assert float(np.sum(law.masses)) + law.zero == pytest.approx(1.0, abs=law.relative_error)
        mean = float(np.sum(law.masses * np.exp(law.logs))) + law.infinity
        assert mean == pytest.approx(1.0, abs=law.relative_error)
    for epsilon in (0.0, 0.1, 1.0):
        for low, high in zip(sticks(below, epsilon), sticks(above, epsilon), strict=True):
            assert low <= high * (1.0 + above.relative_error + below.relative_error)


def test_a_finer_law_is_narrower() -> None:
    coarse = np.subtract(sticks(spread_law(1.0, 20, 500), 0.3), sticks(grouped_law(1.0, 20, 150), 0.3))
    fine = np.subtract(sticks(spread_law(1.0, 20, 1000), 0.3), sticks(grouped_law(1.0, 20, 300), 0.3))
    assert bool(np.all(fine < 0.4 * coarse))


@pytest.mark.parametrize(
    ("noise", "bins", "epsilon"),
    [(1.0, 50, 0.5), pytest.param(0.7, 20, 1.5, marks=soak), pytest.param(3.0, 200, 0.02, marks=soak)],
)
def test_samples_of_the_explicit_pair(noise: float, bins: int, epsilon: float) -> None:
    """Remove: outcomes are drawn with the record, whose step may as well be the first."""
    rng, draws, mu = np.random.default_rng(7), 20_000, 1.0 / noise
    z = rng.standard_normal((draws, bins))
    z[:, 0] += mu
    with_record = np.exp(mu * z - 0.5 * mu * mu).mean(axis=1)
    z[:, 0] -= mu
    without = np.exp(mu * z - 0.5 * mu * mu).mean(axis=1)
    g = math.exp(epsilon)
    # P(X > g) - g Q(X > g) is largest at this event, so that any sample of it bounds delta from below in the mean.
    for terms in (np.maximum(1.0 - g / with_record, 0.0), np.maximum(1.0 - g * without, 0.0)):
        error = 5.0 * terms.std() / math.sqrt(draws)
        event = Event(Gaussian(noise), RandomAllocation(bins, 1), bins)
        assert terms.mean() - error <= delta_for_epsilon([event], ADD_REMOVE, epsilon).value.upper
    removed = np.maximum(1.0 - g / with_record, 0.0)
    upper = delta_for_epsilon([event], ADD_REMOVE, epsilon).value
    assert upper.lower <= removed.mean() + 5.0 * removed.std() / math.sqrt(draws)


VECTORS = [
    (1.0, 100, 1, 1e-5, 0.6209396723, 0.4219534733),
    (2.0, 10, 1, 1e-5, 0.6220592388, 0.5864209511),
    (1.0, 1000, 1, 1e-6, 0.1717286858, 0.1494309548),
    (3.0, 50, 1, 1e-6, 0.1837458633, 0.1823563650),
    (1.0, 10_000, 1, 1e-6, 0.0458222281, None),
    (1.0, 100, 10, 1e-5, 1.7014984, 1.547728),
    (5.0, 10, 100, 1e-5, 2.6212624, 2.6203329),
    (4.0, 1000, 100, 1e-6, 0.31393807, None),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("noise", "bins", "epochs", "delta", "remove", "add"), VECTORS)
def test_numbers_of_other_methods(
    noise: float, bins: int, epochs: int, delta: float, remove: float, add: float | None
) -> None:
    """One epoch: Laplace inversion of the expected shortfall in 22 digits. Several: density by Fourier inversion."""
    composition = compose([Event(Gaussian(noise), RandomAllocation(bins, 1), bins * epochs)], ADD_REMOVE)
    value = epsilon_of_composition(composition, delta).value
    tolerance = 1.1e-8 if epochs == 1 else 1e-6
    assert value.lower - tolerance <= remove <= value.upper + tolerance
    assert value.width < (1e-6 if bins < 1000 else 5e-6)
    if add is not None:
        here = directed(composition, Direction.ADD, math.log(delta))
        assert here is not None
        added = delta_in_direction(DirectedProfiles(here), delta, add)
        assert added.width < 1e-4 * delta
        assert added.upper == pytest.approx(delta, rel=5e-5)


@pytest.mark.parametrize(
    ("noise", "bins", "seen"), [(1.0, 100, 37), (0.8, 30, 20), pytest.param(3.0, 400, 90, marks=soak)]
)
@pytest.mark.parametrize("epsilon", [0.05, 0.6])
def test_a_part_costs_its_share_of_an_allocation_to_fewer_bins(
    noise: float, bins: int, seen: int, epsilon: float
) -> None:
    """E (1 - rho + rho X - g)_+ = rho E (X - g')_+, rho g' = g - 1 + rho; and likewise in the other direction."""
    share, g = seen / bins, math.exp(epsilon)
    part = compose([Event(Gaussian(noise), RandomAllocation(bins, 1), seen)], ADD_REMOVE)
    fewer = compose([Event(Gaussian(noise), RandomAllocation(seen, 1), seen)], ADD_REMOVE)

    def delta(composition: Composition, direction: Direction, place: float) -> Bounds:
        here = directed(composition, direction, -12.0)
        assert here is not None
        return delta_in_direction(DirectedProfiles(here), 1e-33, place)

    removed = delta(part, Direction.REMOVE, epsilon)
    whole = delta(fewer, Direction.REMOVE, math.log((g - 1.0 + share) / share))
    assert removed.lower <= share * whole.upper * (1.0 + 1e-12)
    assert share * whole.lower <= removed.upper * (1.0 + 1e-12)
    assert removed.width < 1e-5 * removed.upper
    # e^eps E (1 / g - X)_+, where the strike is above 1 - rho.
    strike = (1.0 / g - 1.0 + share) / share
    added = delta(part, Direction.ADD, epsilon)
    if strike <= 0.0:
        assert added.upper == 0.0
        return
    other = delta(fewer, Direction.ADD, -math.log(strike))
    assert added.lower <= g * share * strike * other.upper * (1.0 + 1e-12)
    assert g * share * strike * other.lower <= added.upper * (1.0 + 1e-12)


def test_the_first_step_of_an_allocation_is_one_of_poisson() -> None:
    """The pair of a part with one step seen, made by the same code as longer ones, after two whole allocations."""
    whole, part, poisson = AllocationLoss(0.9, 40), AllocationLoss(0.9, 40, 1), PoissonGaussianLoss(0.9, 1 / 40)
    mine, theirs = (epsilon_of_composition(Composition(((whole, 2), (one, 1))), 1e-6).value for one in (part, poisson))
    assert max(mine.lower, theirs.lower) <= min(mine.upper, theirs.upper)
    assert max(mine.width, theirs.width) < 1e-7
    assert compose([Event(Gaussian(0.9), RandomAllocation(40, 1), 1)], ADD_REMOVE).steps == ((poisson, 1),)


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "bins", "epochs"), [(0.6, 20, 3), pytest.param(2.0, 300, 1, marks=soak)])
@pytest.mark.one_in(3)
def test_laws_around_the_ratio_enclose_the_interval(noise: float, bins: int, epochs: int) -> None:
    """They bound it in convex order, and share no code with contour integrals but the lattice that composes them."""
    losses = [(RatioLoss(noise, bins, upward=upward), epochs) for upward in (False, True)]
    below, above = (epsilon_of_composition(Composition((each,)), 1e-5).value for each in losses)
    value = epsilon_for_delta(
        [Event(Gaussian(noise), RandomAllocation(bins, 1), bins * epochs)], ADD_REMOVE, 1e-5
    ).value
    assert below.lower <= value.lower <= value.upper <= above.upper
    assert value.width < 1e-6
    assert above.upper - below.lower < 1e-2


@pytest.mark.thorough
def test_a_longer_part_costs_more_and_less_than_the_whole() -> None:
    sampling, cost = RandomAllocation(12, 1), 0.0
    for count in (1, 3, 4, 8, 11, 12, 13, 14, 18, 24):
        value = epsilon_for_delta([Event(Gaussian(1.5), sampling, count)], ADD_REMOVE, 1e-6).value
        assert cost < value.lower
        assert value.width < 1e-6
        cost = value.upper


@pytest.mark.parametrize(
    ("noise", "bins", "seen"), [(2.0, 300, 2), (1.0, 100, 3), pytest.param(1.0, 1000, 2, marks=soak)]
)
@pytest.mark.one_in(3)
def test_a_few_steps_of_a_begun_allocation_are_as_narrow_as_the_whole(noise: float, bins: int, seen: int) -> None:
    """The cut of the part is far narrower than its own law, and so has to be its lattice."""
    sampling = RandomAllocation(bins, 1)
    before, value, after = (
        epsilon_for_delta([Event(Gaussian(noise), sampling, count)], ADD_REMOVE, 1e-6).value
        for count in (bins, bins + seen, bins + seen + 1)
    )
    assert before.upper < value.lower <= value.upper < after.lower
    assert value.width < 1e-6


def test_blocks_are_allocations_to_fewer_bins() -> None:
    """10 steps in 4 blocks begin at steps 0, 2, 5 and 7."""

    def steps(count: int) -> dict[PrivacyLoss, int]:
        return dict(compose([Event(Gaussian(2.0), Blocks(10, 4), count)], ADD_REMOVE).steps)

    two, three = AllocationLoss(2.0, 2), AllocationLoss(2.0, 3)
    assert steps(20) == {two: 4, three: 4}
    assert steps(10) == {two: 2, three: 2}
    assert steps(7) == {two: 2, three: 1}
    assert steps(6) == {two: 1, three: 1, PoissonGaussianLoss(2.0, 0.5): 1}
    assert steps(4) == {two: 1, AllocationLoss(2.0, 3, 2): 1}
    assert steps(13) == {two: 3, three: 2, PoissonGaussianLoss(2.0, 1 / 3): 1}
    one = epsilon_for_delta([Event(Gaussian(2.0), Blocks(9, 3), 9)], ADD_REMOVE, 1e-5).value
    other = epsilon_for_delta([Event(Gaussian(2.0), RandomAllocation(3, 1), 9)], ADD_REMOVE, 1e-5).value
    assert one == other


def test_blocks_of_one_step_are_full_batches() -> None:
    """5 steps in 4 blocks: three of one step."""
    (loss, count), (gaussian, one) = compose([Event(Gaussian(2.0), Blocks(5, 4), 5)], ADD_REMOVE).steps
    assert (loss, count) == (AllocationLoss(2.0, 2), 1)
    assert (gaussian, one) == (GaussianLoss(math.sqrt(3.0) / 2.0), 1)


@pytest.mark.parametrize(
    ("noise", "bins", "chosen", "epochs", "upper", "lower"),
    [
        (10.0, 199, 100, 1, 2.9640492, 2.952297),
        (5.0, 101, 30, 2, 3.6718482, 3.621469),
        (1.0, 22, 5, 1, 6.3514292, 5.863312),
    ],
)
@pytest.mark.one_in(4)
def test_sets_of_several_steps(noise: float, bins: int, chosen: int, epochs: int, upper: float, lower: float) -> None:
    """The upper end of blocks of floor and ceiling; the lower end of a sum in cells, above that of the noisy sums."""
    value = epsilon_for_delta([Event(Gaussian(noise), RandomAllocation(bins, chosen), bins * epochs)], ADD_REMOVE, 1e-5)
    assert value.value.upper == pytest.approx(upper, abs=1e-6)
    assert value.value.lower == pytest.approx(lower, abs=2e-6)
    mu = chosen * math.sqrt(epochs) / (noise * math.sqrt(bins))
    assert value.value.lower > epsilon_for_delta([Event(Gaussian(1.0 / mu))], ADD_REMOVE, 1e-5).value.upper
    blocks = epsilon_for_delta([Event(Gaussian(noise), Blocks(bins, chosen), bins * epochs)], ADD_REMOVE, 1e-5).value
    assert blocks.upper == pytest.approx(value.value.upper, abs=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize(("bins", "chosen"), [(6, 4), pytest.param(4, 2, marks=soak), pytest.param(9, 3, marks=soak)])
def test_several_participations_against_samples(bins: int, chosen: int) -> None:
    """The explicit mixture over all sets of steps lies in the interval."""
    rng, draws, mu = np.random.default_rng(3), 20_000, 0.8
    z = rng.standard_normal((draws, bins))
    z[:, :chosen] += mu
    steps = mu * z - 0.5 * mu * mu
    ratio = np.mean([np.exp(steps[:, list(some)].sum(axis=1)) for some in combinations(range(bins), chosen)], axis=0)
    event = Event(Gaussian(1.0 / mu), RandomAllocation(bins, chosen), bins)
    for epsilon in (0.2, 1.0):
        terms = np.maximum(1.0 - math.exp(epsilon) / ratio, 0.0)
        error = 5.0 * terms.std() / math.sqrt(draws)
        value = delta_for_epsilon([event], ADD_REMOVE, epsilon).value
        assert value.lower <= terms.mean() + error
        assert terms.mean() - error <= value.upper


def test_the_sum_of_the_steps_is_attained_where_cells_would_be_coarse() -> None:
    """In the sum a record is k times among t noises; where one step alone would show it, one step counts."""
    many, few = RandomAllocation(50_000, 2), RandomAllocation(50_000, 40_000)
    (hidden, _), *_ = compose([Event(Gaussian(4.0), many, 50_000)], ADD_REMOVE).steps
    (plain, _), *_ = compose([Event(Gaussian(0.1), few, 50_000)], ADD_REMOVE).steps
    assert isinstance(hidden, PartLoss)
    assert isinstance(plain, PartLoss)
    assert hidden.attained == GaussianLoss(2 / (4.0 * math.sqrt(50_000)))
    assert plain.attained == PoissonGaussianLoss(0.1, 4 / 5)
    epsilons = np.array([0.0, 0.0005, 0.002])
    z = np.linspace(-9.0, 9.0, 4001)
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * (z[1] - z[0])
    deviation = 4.0 * math.sqrt(50_000)
    for epsilon, attained in zip(epsilons, hidden.attained.excess(epsilons, remove=True), strict=True):
        ratio = np.exp((2.0 * deviation * z - 2.0) / deviation**2)
        assert float(np.maximum(ratio - math.exp(epsilon), 0.0) @ density) == pytest.approx(float(attained), rel=1e-4)


@pytest.mark.parametrize(("noise", "bins"), [(1.0, 2), (2.0, 10), (0.5, 40)])
def test_remove_is_exact_at_integer_orders(noise: float, bins: int) -> None:
    ours = remove_moments(noise, bins)
    for tilt in (1, 2, 5, 12):
        truth = float(allocated_moment(noise, bins, tilt))
        assert truth <= ours[tilt] <= truth * (1.0 + 1e-8) + 1e-10


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
@pytest.mark.one_in(3)
def test_moment_is_an_upper_bound(noise: float) -> None:
    """Moments of two bins are integrated by quadrature, in both directions and at fractional orders."""
    mu = mp.mpf(1) / noise
    tilts = np.array([1 / 64, 0.3, 1.0, 1.6, 3.0])

    def mean(power: float) -> float:
        z = np.linspace(-14.0, 14.0 + 5.0 * float(mu), 900)
        weights = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) * (z[1] - z[0])
        ratio = np.exp(float(mu) * z - 0.5 * float(mu) ** 2)
        return float(weights @ (0.5 * np.add.outer(ratio, ratio)) ** power @ weights)

    ours = allocation_moment(noise, 2, tilts)
    adds = add_moments(noise, 2, np.concatenate([[0.0], tilts]))[1:]
    for tilt, moment, add in zip(tilts.tolist(), ours, adds, strict=True):
        removed, added = math.log(mean(1.0 + tilt)), math.log(mean(-tilt))
        assert max(removed, added) <= moment * (1.0 + 1e-9)
        assert added <= add * (1.0 + 1e-9)
        assert add <= added * 1.05 or tilt > 2.0
        assert moment <= 1.2 * max(removed, added)


@soak
def test_between_one_step_of_poisson_and_a_full_batch() -> None:
    event = Event(Gaussian(1.0), RandomAllocation(100, 1), 100)
    value = epsilon_for_delta([event], ADD_REMOVE, 1e-5).value
    one_step = epsilon_for_delta([Event(Gaussian(1.0), Poisson(0.01))], ADD_REMOVE, 1e-5).value
    full = epsilon_for_delta([Event(Gaussian(1.0))], ADD_REMOVE, 1e-5).value
    assert one_step.lower <= value.lower <= value.upper <= full.upper
    assert value.width < 1e-6


def test_a_cut_allocation_counts_in_full_and_schedules_never_merge() -> None:
    cut, half = (Event(Gaussian(2.0), RandomAllocation(20, 1), count) for count in (30, 10))
    assert [event.count for event in resolve_schedules([cut, half, half], ADD_REMOVE)] == [40, 20, 20]
    assert zcdp_cost((cut,), ADD_REMOVE).amounts == zcdp_cost((Event(Gaussian(2.0), count=2),), ADD_REMOVE).amounts


@pytest.mark.soak
def test_epsilon_of_a_cut_allocation_is_that_of_its_part() -> None:
    sampling = RandomAllocation(20, 1)
    cut, whole = (Event(Gaussian(2.0), sampling, count) for count in (30, 40))
    short, full = (epsilon_for_delta([event], ADD_REMOVE, 1e-5).value for event in (cut, whole))
    assert short.upper < full.lower
    # Two halves are the first halves of two allocations, and less than one whole.
    halves = [Event(Gaussian(2.0), sampling, 10)] * 2
    apart = epsilon_for_delta(halves, ADD_REMOVE, 1e-5).value
    one = epsilon_for_delta([Event(Gaussian(2.0), sampling, 20)], ADD_REMOVE, 1e-5).value
    assert apart.upper < short.lower
    assert apart.lower > epsilon_for_delta([Event(Gaussian(2.0), sampling, 10)], ADD_REMOVE, 1e-5).value.upper
    assert apart != one


def test_all_bins_are_full_batches() -> None:
    assert compose([Event(Gaussian(2.0), RandomAllocation(4, 4), 8)], SPECIAL) == compose(
        [Event(Gaussian(2.0), count=8)], SPECIAL
    )


def test_what_is_refused() -> None:
    with pytest.raises(Unsupported, match="allocated separately") as caught:
        epsilon_for_delta([Event(Gaussian(1.0), RandomAllocation(4, 1), 4)], NeighboringRelation.REPLACE_ONE, 1e-5)
    assert caught.value.code == "unsupported_relation"
    with pytest.raises(Unsupported):
        Event(Laplace(1.0), RandomAllocation(4, 1), 4)
    with pytest.raises(InvalidValue):
        RandomAllocation(4, 5)


def test_same_bits_and_round_trip() -> None:
    event = Event(Gaussian(1), RandomAllocation(np.int64(10), 1.0), 10)  # type: ignore[arg-type]
    assert event_from_json(event.to_json()) == event == Event(Gaussian(1.0), RandomAllocation(10, 1), 10)


@pytest.mark.soak
@given(st.floats(0.3, 5.0), st.integers(2, 12), st.floats(1.05, 2.0))
@settings(max_examples=3, deadline=None)
def test_more_noise_and_more_bins_cost_no_more(noise: float, bins: int, factor: float) -> None:
    def upper_and_lower(s: float, t: int) -> tuple[float, float]:
        value = epsilon_for_delta([Event(Gaussian(s), RandomAllocation(t, 1), t)], ADD_REMOVE, 1e-6).value
        return value.upper, value.lower

    upper, _ = upper_and_lower(noise, bins)
    assert upper_and_lower(noise * factor, bins)[1] <= upper
    assert upper_and_lower(noise, 2 * bins)[1] <= upper


@pytest.mark.parametrize(
    ("noise", "bins", "chosen", "count"),
    [
        (0.01, 5, 1, 10),
        (1.0, 3, 2, 10**8),
        pytest.param(0.05, 5, 1, 5, marks=soak),
        pytest.param(1e3, 9, 1, 90, marks=soak),
    ],
)
def test_extremes_stay_numbers(noise: float, bins: int, chosen: int, count: int) -> None:
    event = Event(Gaussian(noise), RandomAllocation(bins, chosen), count)
    for delta in (1e-30, 0.5):
        value = epsilon_for_delta([event], ADD_REMOVE, delta).value
        assert 0.0 <= value.lower <= value.estimate <= value.upper < math.inf


@pytest.mark.parametrize("remove", [True, False])
def test_no_loss_is_too_large_to_be_there(remove: bool) -> None:
    """The law's grid ends, and Gaussian noise has no largest loss: beyond the last point delta is small, and not 0."""
    law = RatioLoss(1.0, 2, upward=True)
    beyond = law.excess(np.array([60.0]), remove=remove)[0]
    assert 0.0 < beyond < 1e-30


@pytest.mark.parametrize("count", [77, 5 * 77])
@pytest.mark.one_in(2)
def test_where_a_density_takes_too_long_laws_around_it_answer(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """An interval without an end is no answer that is narrow enough."""
    events = [Event(Gaussian(1.37), RandomAllocation(77, 1), count)]
    monkeypatch.setattr(log_sums, "MOST_TERMS", 1000)
    wide = epsilon_for_delta(events, ADD_REMOVE, 1e-6).value
    of_delta = delta_for_epsilon(events, ADD_REMOVE, 0.5).value
    monkeypatch.undo()
    narrow = epsilon_for_delta(events, ADD_REMOVE, 1e-6).value
    assert wide.lower <= narrow.lower < narrow.upper <= wide.upper <= 1.02 * narrow.upper
    exact = delta_for_epsilon(events, ADD_REMOVE, 0.5).value
    assert of_delta.lower <= exact.lower <= exact.upper <= of_delta.upper < 0.5
