"""Groups of records: closed forms, samples of the explicit mixtures, and the way through single records."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import comb

from accounting.accountant import delta_for_epsilon, epsilon_for_delta, epsilon_of_composition
from accounting.composition.composition import Composition, compose
from accounting.composition.convolution import Convolution
from accounting.errors import InvalidValue
from accounting.events import (
    ApproximateDp,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    GeneralizedGaussian,
    Laplace,
    Poisson,
    PureDp,
    RandomAllocation,
    RandomizedResponse,
    ReportNoisyMax,
    Sampling,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
    ZcDp,
)
from accounting.groups import (
    THROUGH_SINGLE_RECORDS,
    _least_share,
    estimate_group_epsilon,
    group_composition,
    group_delta_for_epsilon,
    group_epsilon_for_delta,
)
from accounting.losses.group_poisson import group_poisson_loss, group_step
from accounting.losses.hits import HitsLoss
from accounting.relations import NeighboringRelation
from tests.accounting.references import gaussian_epsilon

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL


def densities(noise: float, q: float, size: int, replaced: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Both laws of one step, on a fine lattice; of more than 12 hits there is no trace at the numbers asked for."""
    most = min(size, 12)
    span = most + 12.0 * noise
    x = np.linspace(-span, span, 200_001)
    weights = [comb(size, h) * q**h * (1.0 - q) ** (size - h) for h in range(most + 1)]

    def law(sign: int) -> np.ndarray:
        parts = [w * np.exp(-0.5 * ((x - sign * h) / noise) ** 2) for h, w in enumerate(weights)]
        return np.sum(parts, axis=0) / (noise * math.sqrt(2.0 * math.pi))

    return law(1), law(-1) if replaced else law(0), float(x[1] - x[0])


@pytest.mark.parametrize(("noise", "q", "size"), [(1.0, 0.1, 2), (4.0, 0.01, 5), (0.6, 0.5, 3)])
@pytest.mark.parametrize("replaced", [False, True])
def test_profile_of_the_mixture(noise: float, q: float, size: int, replaced: bool) -> None:
    p, r, step = densities(noise, q, size, replaced)
    loss = group_poisson_loss(noise, q, size, replaced=replaced)
    assert loss is not None
    epsilons = np.array([-1.5, -0.2, -0.01, 0.0, 0.01, 0.3, 2.0])
    for remove, (first, second) in ((True, (p, r)), (False, (r, p))):
        ours = loss.excess(epsilons, remove=remove)
        for epsilon, value in zip(epsilons.tolist(), ours, strict=True):
            if not replaced or remove:
                truth = float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum()) * step
                assert value == pytest.approx(truth - max(0.0, 1.0 - math.exp(epsilon)), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("replaced", [False, True])
def test_moment_is_an_upper_bound(replaced: bool) -> None:
    p, r, step = densities(1.5, 0.2, 3, replaced)
    loss = group_poisson_loss(1.5, 0.2, 3, replaced=replaced)
    assert loss is not None
    for tilt in (0.02, 0.7, 3.0, 5.0):
        ours = float(loss.log_moment(np.array([tilt]))[0])
        logs = [(tilt + 1.0) * np.log(a) - tilt * np.log(b) for a, b in ((p, r), (r, p))]
        truths = [math.log(float(np.exp(each).sum()) * step) for each in logs]
        assert max(truths) <= ours + 1e-9
        assert ours <= max(truths) * 1.05 + 1e-7


def test_dominates_contributions_that_point_elsewhere() -> None:
    """Two of two records in the plane: aligned ones cost most, in both directions."""
    noise, q, epsilon = 1.0, 0.4, 0.5
    axis = np.linspace(-9.0, 10.0, 381)
    x, y = np.meshgrid(axis, axis)
    cell = float(axis[1] - axis[0]) ** 2
    largest = group_delta_for_epsilon([Event(Gaussian(noise), Poisson(q))], ADD_REMOVE, epsilon, 2).value.upper
    for angle in (0.0, 1.0, math.pi / 2, math.pi):
        vectors = [np.array([1.0, 0.0]), np.array([math.cos(angle), math.sin(angle)])]
        law = np.zeros_like(x)
        for chosen in product((0, 1), repeat=2):
            mean = sum(c * v for c, v in zip(chosen, vectors, strict=True)) + np.zeros(2)
            weight = math.prod(q if c else 1.0 - q for c in chosen)
            law += weight * np.exp(-0.5 * ((x - mean[0]) ** 2 + (y - mean[1]) ** 2) / noise**2)
        base = np.exp(-0.5 * (x**2 + y**2) / noise**2)
        for first, second in ((law, base), (base, law)):
            stick = float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum()) * cell
            assert stick / (2.0 * math.pi * noise**2) <= largest * (1.0 + 1e-4)


def test_closed_forms() -> None:
    gaussian = group_epsilon_for_delta([Event(Gaussian(10.0), count=4)], REPLACE, 1e-6, 3).value
    assert gaussian.upper == pytest.approx(gaussian_epsilon(3 * 2 * 2 / 10, 1e-6), rel=1e-9)
    assert gaussian.width < 1e-9
    laplace = group_epsilon_for_delta([Event(Laplace(20.0))], ADD_REMOVE, 1e-3, 5).value
    assert laplace.upper == pytest.approx(epsilon_for_delta([Event(Laplace(4.0))], ADD_REMOVE, 1e-3).value.upper)
    assert group_epsilon_for_delta([Event(PureDp(0.1), count=3)], REPLACE, 0.0, 7).value.upper == pytest.approx(2.1)
    zcdp = group_epsilon_for_delta([Event(ZcDp(0.01))], REPLACE, 1e-5, 4).value.upper
    assert zcdp == pytest.approx(epsilon_for_delta([Event(ZcDp(0.16))], REPLACE, 1e-5).value.upper, rel=1e-12)
    epochs = group_epsilon_for_delta([Event(Gaussian(8.0), ShuffledEpochs(10), 25)], SPECIAL, 1e-6, 2).value.upper
    assert epochs == pytest.approx(gaussian_epsilon(2 * math.sqrt(3) / 8, 1e-6), rel=1e-9)


def composed_trade_off(epsilon: float, size: int, delta_at: float) -> float:
    """sup of 1 - f_k(alpha) - e^x alpha, f_k the k-fold composition of epsilon-DP's trade-off as it is defined."""
    alphas = np.concatenate([np.linspace(0.0, 1.0, 200_001), np.geomspace(1e-9, 1.0, 20_001)])
    power = alphas
    for _ in range(size):
        power = np.minimum(math.exp(epsilon) * power, 1.0 - math.exp(-epsilon) * (1.0 - power))
    return float(np.max(power - math.exp(delta_at) * alphas))


@pytest.mark.parametrize(("epsilon", "size"), [(1.0, 2), (0.3, 5), (2.0, 7)])
def test_pure_guarantees_are_the_composed_trade_off(epsilon: float, size: int) -> None:
    """exact: by the definition of the group's trade-off, and attained by counts with two-sided geometric noise."""
    steps = np.arange(-400, 401)
    law = np.exp(-epsilon * np.abs(steps))
    law /= law.sum()
    for x in (0.0, 0.4 * epsilon, 0.7 * size * epsilon):
        value = group_delta_for_epsilon([Event(PureDp(epsilon))], REPLACE, x, size).value
        attained = float(np.maximum(law - math.exp(x) * np.roll(law, size), 0.0).sum())
        assert value.lower <= attained * (1.0 + 1e-11)
        assert value.upper >= attained * (1.0 - 1e-11)
        assert value.upper == pytest.approx(composed_trade_off(epsilon, size, x), rel=2e-4)
        assert value.width <= 1e-9
    one = group_delta_for_epsilon([Event(PureDp(1.0))], REPLACE, 0.0, 2).value
    assert one.upper == pytest.approx(-math.expm1(-1.0), rel=1e-10)


def test_steps_of_pure_guarantees_against_samples() -> None:
    """Five counts of three records each, with geometric noise."""
    epsilon, size, count, x = 0.2, 3, 5, 0.8
    noise = np.random.default_rng(3).geometric(-math.expm1(-epsilon), (2, 100_000, count))
    y = noise[0] - noise[1]
    losses = (epsilon * (np.abs(y + size) - np.abs(y))).sum(axis=1)
    terms = np.maximum(-np.expm1(x - losses), 0.0)
    error = 5.0 * terms.std() / math.sqrt(terms.size)
    value = group_delta_for_epsilon([Event(PureDp(epsilon), count=count)], ADD_REMOVE, x, size).value
    assert terms.mean() - error <= value.upper
    assert value.lower <= terms.mean() + error
    assert value.width < 1e-5 * value.upper


@pytest.mark.parametrize("categories", [2, 3])
@pytest.mark.parametrize("relation", [REPLACE, SPECIAL])
def test_records_that_answer_by_themselves(categories: int, relation: NeighboringRelation) -> None:
    """exact: all answers of two records in two steps, enumerated."""
    flip, x = 0.4, 0.5
    p = np.full(categories, flip / categories)
    q = np.roll(p + (1.0 - flip) * (np.arange(categories) == 1), -1) if relation is REPLACE else p * 1.0 / flip
    p[1] += 1.0 - flip
    delta = 0.0
    for first, second in ((p, q), (q, p)):
        laws = [np.multiply.outer(np.multiply.outer(law, law), np.multiply.outer(law, law)) for law in (first, second)]
        delta = max(delta, float(np.maximum(laws[0] - math.exp(x) * laws[1], 0.0).sum()))
    value = group_delta_for_epsilon([Event(RandomizedResponse(categories, flip), count=2)], relation, x, 2).value
    assert value.lower <= delta * (1.0 + 1e-11)
    assert value.upper == pytest.approx(delta, rel=1e-6)


def test_what_is_not_attained_is_not_claimed() -> None:
    """Above the stated guarantee's worst, below no more than one record."""
    event = Event(GeneralizedGaussian(1.0, 100, 30.0, 20.0))
    stated = Event(ZcDp(0.5 * 30.0 / 400.0))
    alone = epsilon_for_delta([event], REPLACE, 1e-5).value
    found = group_epsilon_for_delta([event], REPLACE, 1e-5, 3).value
    assert found.lower == alone.lower < group_epsilon_for_delta([stated], REPLACE, 1e-5, 3).value.lower


@pytest.mark.parametrize("noise", ["laplace", "exponential"])
def test_a_group_of_noisy_max_is_the_mechanism_with_more_epsilon(noise: str) -> None:
    """A group costs what it costs the exponential mechanism, and no more than it costs any pure mechanism."""
    found = group_epsilon_for_delta([Event(ReportNoisyMax(0.1, noise), count=4)], REPLACE, 1e-5, 5).value
    crowds = epsilon_for_delta([Event(Exponential(0.5), count=4)], REPLACE, 1e-5).value
    worst = group_epsilon_for_delta([Event(PureDp(0.1), count=4)], REPLACE, 1e-5, 5).value
    assert crowds.lower * (1 - 1e-9) <= found.lower <= found.upper <= worst.upper * (1 + 1e-9)


def test_approximate_guarantees_by_the_textbook() -> None:
    """k epsilon and delta (e^(k eps) - 1) / (e^eps - 1)."""
    epsilon, delta, size = 0.5, 1e-8, 4
    known = delta * math.expm1(size * epsilon) / math.expm1(epsilon)
    answer = group_delta_for_epsilon([Event(ApproximateDp(epsilon, delta))], REPLACE, size * epsilon, size)
    assert answer.method == THROUGH_SINGLE_RECORDS
    assert answer.value.upper == pytest.approx(known, rel=1e-6)
    assert answer.value.lower <= known


@pytest.mark.parametrize("size", [3, pytest.param(2, marks=pytest.mark.soak)])
def test_compositions_of_the_mixture_against_samples(size: int) -> None:
    noise, q, steps, epsilon = 1.5, 0.1, 8, 1.0
    rng, draws = np.random.default_rng(11), 60_000
    hits = rng.binomial(size, q, (draws, steps))
    x = hits + noise * rng.standard_normal((draws, steps))
    parts = [
        comb(size, h) * q**h * (1 - q) ** (size - h) * np.exp((h * x - h * h / 2) / noise**2) for h in range(size + 1)
    ]
    losses = np.log(np.sum(parts, axis=0)).sum(axis=1)
    terms = np.maximum(-np.expm1(epsilon - losses), 0.0)
    error = 5.0 * terms.std() / math.sqrt(draws)
    value = group_delta_for_epsilon([Event(Gaussian(noise), Poisson(q), steps)], ADD_REMOVE, epsilon, size).value
    assert terms.mean() - error <= value.upper
    assert value.lower <= terms.mean() + error
    assert value.width < 1e-3 * value.upper


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Event(Gaussian(8.0), WithoutReplacement(10, 1000)), REPLACE),
        pytest.param(Event(Gaussian(2.0), RandomAllocation(20, 1), 20), ADD_REMOVE, marks=pytest.mark.soak),
        (Event(Gaussian(4.0), Poisson(0.01)), SPECIAL),
    ],
)
def test_larger_groups_cost_more_and_one_record_is_a_group(event: Event, relation: NeighboringRelation) -> None:
    alone = epsilon_for_delta([event], relation, 1e-6)
    assert group_epsilon_for_delta([event], relation, 1e-6, 1).value == alone.value
    two, six = (group_epsilon_for_delta([event], relation, 1e-6, size).value for size in (2, 6))
    assert alone.value.lower <= two.lower
    assert alone.value.upper < two.upper < six.upper < math.inf
    back = group_delta_for_epsilon([event], relation, two.upper, 2).value
    assert back.lower <= 1e-6 * (1.0 + 1e-3)
    assert delta_for_epsilon([event], relation, two.upper).value.upper <= back.upper


def test_attack_by_a_group_in_batches_of_a_fixed_size() -> None:
    """Two records of opposite sign to all others are replaced by their likes: what that attains is within the bound."""
    n, b, noise, epsilon = 20, 4, 3.0, 1.0
    none = comb(n - 2, b) / comb(n, b)
    both = comb(n - 2, b - 2) / comb(n, b)
    x = np.linspace(-60.0, 60.0, 120_001)

    def law(mean: float) -> np.ndarray:
        return np.exp(-0.5 * ((x - mean) / noise) ** 2) / (noise * math.sqrt(2.0 * math.pi))

    p = none * law(-b) + (1 - none - both) * law(-b + 2) + both * law(-b + 4)
    attained = float(np.maximum(p - math.exp(epsilon) * law(-b), 0.0).sum() * (x[1] - x[0]))
    event = Event(Gaussian(noise), WithoutReplacement(b, n))
    assert attained <= group_delta_for_epsilon([event], REPLACE, epsilon, 2).value.upper
    assert attained > delta_for_epsilon([event], REPLACE, epsilon).value.upper


@pytest.mark.parametrize(
    ("noise", "size", "ends", "attained"),
    [(8.0, 4, "1.0548 to 1.0562", "0.9808"), (40.0, 64, "3.4268 to 3.4280", "3.3718")],
)
def test_groups_in_batches_of_a_fixed_size_are_known_within_a_per_mille(
    noise: float, size: int, ends: str, attained: str
) -> None:
    """And cost more than the group that agrees with nobody else, whose numbers of hits are hidden."""
    value = group_epsilon_for_delta([Event(Gaussian(noise), WithoutReplacement(100, 10_000), 500)], REPLACE, 1e-6, size)
    lower, upper = value.value.lower, value.value.upper
    weights = stats.hypergeom.pmf(np.arange(min(size, 20) + 1), 10_000, size, 100)
    pair = HitsLoss(noise / 2.0, tuple(np.log(weights).tolist()), replaced=False)
    hidden = epsilon_of_composition(Composition(((pair, 500),)), 1e-6).value
    assert hidden.upper < lower < upper < lower * 1.0015
    page = (Path(__file__).parents[2] / "docs" / "sampling" / "without_replacement.md").read_text()
    assert f"{lower:.4f} to {upper:.4f}" == ends
    assert f"| {size} | 1e-6 | {ends} | {attained} |" in page
    assert f"{hidden.upper:.4f}" == attained


def test_a_group_among_others_that_half_agree_costs_more_than_among_opposites() -> None:
    """So that the pair that opposites attain dominates no single step: what the page says."""
    x = np.linspace(-20.0, 20.0, 40_001)

    def stick(others: float) -> float:
        p, q = (
            sum(
                w * stats.norm.pdf(x, (3 - h) * others + h * mine, 0.72)
                for h, w in enumerate(stats.hypergeom.pmf(np.arange(3), 5, 2, 3))
            )
            for mine in (-1.0, 1.0)
        )
        return float(np.maximum(p - 17.2 * q, 0.0).sum() * (x[1] - x[0]))

    assert stick(0.8) == pytest.approx(1.008 * stick(1.0), rel=5e-4)
    event = Event(Gaussian(0.72), WithoutReplacement(3, 5))
    assert stick(0.8) < group_delta_for_epsilon([event], REPLACE, math.log(17.2), 2).value.upper


def test_where_pairs_of_groups_are_wide_single_records_are_asked_besides() -> None:
    event = Event(Gaussian(200.0), WithoutReplacement(100, 10_000), 500)
    answer = group_epsilon_for_delta([event], REPLACE, 1e-6, 500)
    assert answer.method == THROUGH_SINGLE_RECORDS
    assert 0.94 * answer.value.upper < answer.value.lower
    back = group_delta_for_epsilon([event], REPLACE, answer.value.upper, 500).value
    assert back.lower < 1e-6 <= back.upper * (1.0 + 1e-3)


def test_a_group_larger_than_the_hits_that_are_told_apart() -> None:
    loss, found = (each(4.0, 1e-3, 200, replaced=False) for each in (group_poisson_loss, group_step))
    assert loss is not None
    assert found is not None
    assert loss.most_hits < 32
    assert 0.0 < found.rare < 1e-50
    event = Event(Gaussian(4.0), Poisson(1e-3))
    value = group_epsilon_for_delta([event], ADD_REMOVE, 1e-6, 200).value
    p, r, step = densities(4.0, 1e-3, 200, replaced=False)
    truth = float(np.maximum(p - math.exp(value.estimate) * r, 0.0).sum()) * step
    assert truth == pytest.approx(1e-6, rel=1e-3)
    assert value.width < 1e-6
    back = group_delta_for_epsilon([event], ADD_REMOVE, value.estimate, 200).value
    assert back.lower <= truth * (1.0 + 1e-6)
    assert back.upper >= truth * (1.0 - 1e-6)
    assert back.width < 1e-6 * back.upper


@pytest.mark.parametrize(
    ("event", "size"),
    [
        pytest.param(Event(Laplace(1e-3), count=10**6), 1000, marks=pytest.mark.soak),
        (Event(PureDp(1e6), count=10**8), 1000),
        (Event(PureDp(5e-324)), 7),
        (Event(ZcDp(1e6), count=10**8), 1000),
        (Event(Exponential(1e6), count=10**6), 1000),
        (Event(Exponential(5e-324)), 7),
        (Event(DiscreteLaplace(0.01, 5e-3)), 1000),
        (Event(DiscreteGaussian(0.01, 0.1)), 1000),
    ],
)
def test_extremes_end_in_numbers(event: Event, size: int) -> None:
    """Losses too large for their own pair: the plain bounds answer."""
    value = group_epsilon_for_delta([event], REPLACE, 1e-6, size).value
    assert 0.0 <= value.lower <= value.estimate <= value.upper < math.inf
    if event == Event(PureDp(5e-324)):
        assert group_delta_for_epsilon([event], REPLACE, 0.0, size).value.upper < 1e-300
    back = group_delta_for_epsilon([event], REPLACE, min(value.upper, 1e15), size).value
    assert back.lower <= 1e-6 * (1.0 + 1e-6) or value.upper > 1e15


def test_mixtures_too_far_apart_for_a_lattice() -> None:
    event = Event(Gaussian(0.05), Poisson(0.1), 10**6)
    grouped = group_composition(compose([event], ADD_REMOVE), 30)
    assert grouped is not None
    assert Convolution not in map(type, grouped.evaluators)


@pytest.mark.soak
def test_mixtures_far_apart_cost_no_more_than_full_batches() -> None:
    event = Event(Gaussian(0.05), Poisson(0.1), 10**6)
    value = group_epsilon_for_delta([event], ADD_REMOVE, 1e-6, 30).value
    # All of them in every batch cost no less.
    assert 0.0 < value.lower <= value.upper <= 1.01 * gaussian_epsilon(30 * 20 * 1000, 1e-6)


def test_numbers_outside_their_range_are_refused() -> None:
    for size in (0, 1001, 1.5, True):
        with pytest.raises(InvalidValue, match="group_size"):
            group_epsilon_for_delta([Event(Gaussian(1.0))], ADD_REMOVE, 1e-5, size)  # type: ignore[arg-type]
    no_bound = group_epsilon_for_delta([Event(ApproximateDp(0.5, 1e-3))], REPLACE, 2e-3, 40)
    assert no_bound.value.upper == math.inf
    assert no_bound.warnings


@pytest.mark.parametrize("sampling", [Poisson(0.1), TruncatedPoisson(0.1, 60, 562, "random_slots")])
def test_an_estimate_is_near_what_is_certified(sampling: Sampling) -> None:
    events = [Event(Gaussian(2.0), sampling, 10)]
    certified = group_epsilon_for_delta(events, ADD_REMOVE, 1e-5, 2).value
    assert certified.lower < certified.upper
    assert estimate_group_epsilon(events, ADD_REMOVE, 1e-5, 2) == pytest.approx(certified.upper, rel=5e-3)


@pytest.mark.parametrize("start", [0.01, 0.699, 0.7, 0.7001, 30.0])
@pytest.mark.parametrize("step", [5e-4, 1.0])
def test_the_least_share_is_found_from_wherever_a_search_starts(start: float, step: float) -> None:
    """Where the excess is smooth, in few trials; and where it jumps, or is infinite on one side."""
    trials = []

    def smooth(share: float) -> float:
        trials.append(share)
        return 3.0 * math.log(0.7 / share) if share > 0.0 else math.inf

    assert 0.7 <= _least_share(smooth, start, step) <= 0.7 * (1.0 + 3e-6)
    assert len(trials) <= 30
    for below, above in ((1.0, -1.0), (math.inf, -1e-9), (1e-9, -math.inf)):
        found = _least_share(lambda share, below=below, above=above: above if share >= 0.7 else below, start, step)
        assert 0.7 <= found <= 0.7 * (1.0 + 3e-6)
    assert _least_share(lambda _: 1.0, start, step) == math.inf
    assert _least_share(lambda _: -1.0, start, step) == 0.0
