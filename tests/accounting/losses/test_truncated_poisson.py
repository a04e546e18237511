"""Poisson batches cut to a largest size: the tail, what it adds, and an explicit cut."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_truncated_subsampled_gaussian_mechanism
from dp_accounting.privacy_accountant import NeighboringRelation as NeighborRel
from scipy import stats

from accounting.accountant import (
    delta_for_epsilon,
    deltas_for_epsilons,
    epsilon_for_delta,
    epsilon_of_composition,
    epsilons_for_deltas,
    estimate_epsilon,
)
from accounting.composition.composition import Composition, compose
from accounting.composition.fourier import FourierInversion
from accounting.composition.renyi import RenyiBound
from accounting.discrepancy import Discrepancy
from accounting.errors import InvalidValue, NoCostInFilter, Unsupported
from accounting.events import (
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    TruncatedPoisson,
    WithoutReplacement,
    event_from_json,
)
from accounting.filters import SMALLEST_DELTA, approximate_dp_cost, pure_dp_cost, renyi_dp_cost, zcdp_cost
from accounting.intervals import Interval
from accounting.losses.binomial_tail import binomial_tail
from accounting.losses.gaussian import GaussianLoss
from accounting.losses.poisson import PoissonGaussianLoss
from accounting.losses.truncated_poisson import most_displaced
from accounting.losses.visible_mixture import VisibleMixtureLoss
from accounting.relations import NeighboringRelation
from accounting.true_positive_rate import tpr_for_fpr
from tests.accounting.losses.test_binomial_tail import tail_and_rest

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE


def test_interval_contains_every_profile_within() -> None:
    """Exact semantics on outcomes that are few: total variation t of both laws, at every epsilon."""
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    near = Discrepancy.of_total_variation(0.02, 1)
    for _ in range(40):
        moved = []
        for law in (p, q):
            shift = rng.normal(size=6)
            shift -= shift.mean()
            other = law + shift * min(0.02 / (np.abs(shift).sum() / 2), float(np.min(law / np.abs(shift))))
            assert np.abs(other - law).sum() / 2 <= 0.02 + 1e-12
            moved.append(other)
        for epsilon in (0.0, 0.4, 1.5):
            stood, real = (float(np.maximum(a - math.exp(epsilon) * b, 0).sum()) for a, b in ((p, q), moved))
            value = near.around(Interval(stood, stood, stood), epsilon)
            assert value.lower <= real <= value.upper


def test_discrepancies_add_up_and_round_up() -> None:
    one, other = Discrepancy.of_total_variation(1e-12, 1000), Discrepancy.of_common_branch(1e-10, 3)
    assert one.fixed == one.growing >= 1e-9
    assert (other.fixed, other.growing) == (pytest.approx(3e-10), 0.0)
    both = one.plus(other)
    assert both.at(1.0) >= 1e-9 * (1 + math.e) + 3e-10
    assert both.at(1.0) == pytest.approx(1e-9 * (1 + math.e) + 3e-10, rel=1e-12)
    assert both.at(1e6) == math.inf
    assert Discrepancy().plus(one) == one == one.plus(Discrepancy())
    assert not Discrepancy()
    assert Discrepancy.of_total_variation(0.5, 10**8).fixed == 1.0
    assert one.around(Interval(0.0, 0.5, 1.0), 0.0).upper == 1.0


@pytest.mark.parametrize(
    ("noise", "probability", "largest", "steps"), [(4.0, 0.01, 1230, 10_000), (1.0, 0.01, 1180, 1)]
)
def test_delta_is_poissons_and_what_the_cut_adds(noise: float, probability: float, largest: int, steps: int) -> None:
    event = Event(Gaussian(noise), TruncatedPoisson(probability, largest, 100_000), steps)
    poisson = Event(Gaussian(noise), Poisson(probability), steps)
    with mp.workdps(30):
        cut = steps * tail_and_rest(100_000, probability, largest + 1)[0]
    epsilons = (0.0, 0.5, 1.5)
    for relation in (ADD_REMOVE, SPECIAL):
        for epsilon, answer in zip(epsilons, deltas_for_epsilons([event], relation, epsilons), strict=True):
            whole = delta_for_epsilon([poisson], relation, epsilon).value
            more = float(cut * (1 + mp.exp(epsilon)))
            assert whole.upper + more <= answer.value.upper <= (whole.upper + more) * (1 + 1e-6)
            assert answer.value.lower <= max(0.0, whole.lower - more) <= answer.value.lower * (1 + 1e-6)


@pytest.mark.parametrize(
    ("mechanism", "sampling", "steps", "delta"),
    [
        (Gaussian(4.0), TruncatedPoisson(0.01, 1240, 100_000), 10_000, 1e-5),
        pytest.param(Gaussian(0.8), TruncatedPoisson(0.02, 70, 1000), 300, 1e-7, marks=pytest.mark.soak),
    ],
)
def test_epsilon_is_the_inverse_on_both_ends(
    mechanism: Gaussian, sampling: TruncatedPoisson, steps: int, delta: float
) -> None:
    event = Event(mechanism, sampling, steps)
    poisson = Event(mechanism, Poisson(sampling.sampling_probability), steps)
    value = epsilon_for_delta([event], ADD_REMOVE, delta).value
    whole = epsilon_for_delta([poisson], ADD_REMOVE, delta).value
    assert value.lower < whole.lower <= whole.upper < value.upper < math.inf
    assert delta_for_epsilon([event], ADD_REMOVE, value.upper).value.upper <= delta * (1 + 1e-9)
    assert delta_for_epsilon([event], ADD_REMOVE, value.upper * (1 - 3e-6)).value.upper > delta
    assert delta_for_epsilon([event], ADD_REMOVE, value.lower).value.lower == pytest.approx(delta, rel=1e-4)
    rate = tpr_for_fpr([event], ADD_REMOVE, 0.05).value
    assert rate.upper >= tpr_for_fpr([poisson], ADD_REMOVE, 0.05).value.upper


def test_a_cut_that_costs_more_than_delta_has_no_finite_epsilon() -> None:
    for largest, delta in ((1100, 1e-5), (1200, 1e-5), (1250, 0.0)):
        event = Event(Gaussian(4.0), TruncatedPoisson(0.01, largest, 100_000), 10_000)
        answer = epsilon_for_delta([event], ADD_REMOVE, delta)
        assert math.isinf(answer.value.upper)
        assert "total variation" in answer.warnings[-1]
    full = Event(Gaussian(4.0), TruncatedPoisson(1.0, 5, 10))
    assert math.isinf(epsilon_for_delta([full], ADD_REMOVE, 0.5).value.upper)
    assert tpr_for_fpr([full], ADD_REMOVE, 0.05).value.upper == 1.0


def test_where_nothing_is_cut_it_is_poisson() -> None:
    event = Event(Gaussian(4.0), TruncatedPoisson(0.01, 1000, 1000), 50)
    assert compose([event], ADD_REMOVE) == compose([Event(Gaussian(4.0), Poisson(0.01), 50)], ADD_REMOVE)
    assert epsilon_for_delta([Event(Laplace(4.0), TruncatedPoisson(0.1, 9, 9), 2)], ADD_REMOVE, 0.0).value.upper < 0.1


def test_an_explicit_cut_of_small_data_sets_stays_below() -> None:
    """Five records or four, batches of at most two, every subset counted; the first ones stay where batches are cut."""
    s, q, largest = 1.0, 0.3, 2
    x = np.linspace(-14.0, 14.0, 2801)
    cell = float(x[1] - x[0])

    def output(records: tuple[float, ...]) -> np.ndarray:
        law = np.zeros_like(x)
        for taken in itertools.product((0, 1), repeat=len(records)):
            weight = math.prod(q if each else 1 - q for each in taken)
            batch = [record for record, each in zip(records, taken, strict=True) if each][:largest]
            law += weight * np.exp(-((x - sum(batch)) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        return law

    event = Event(Gaussian(s), TruncatedPoisson(q, largest, 5))
    for others in ((-1.0, -1.0, -1.0, -1.0), (1.0, -1.0, 1.0, -1.0)):
        for mine in (1.0, -1.0):
            for relation, without in ((ADD_REMOVE, others), (SPECIAL, (0.0, *others))):
                laws = output((mine, *others)), output(without)
                for epsilon in (0.0, 0.3, 1.0):
                    bound = delta_for_epsilon([event], relation, epsilon).value.upper
                    for p, other in (laws, laws[::-1]):
                        assert float(np.maximum(p - math.exp(epsilon) * other, 0.0).sum()) * cell <= bound


def test_poissons_number_alone_would_be_too_small() -> None:
    """A record that goes lets another one in: the sums differ by two, which Poisson's pair does not allow for."""
    s, q, n, largest, epsilon = 0.3, 0.9, 12, 2, 3.0
    x = np.linspace(-5.0, 5.0, 2001)

    def law(others_first: list[float]) -> np.ndarray:
        total = np.zeros_like(x)
        for taken in itertools.product((0, 1), repeat=len(others_first)):
            batch = [record for record, each in zip(others_first, taken, strict=True) if each][:largest]
            weight = math.prod(q if each else 1 - q for each in taken)
            total += weight * np.exp(-((x - sum(batch)) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        return total

    p, other = law([1.0] + [-1.0] * (n - 1)), law([-1.0] * (n - 1))
    attained = float(np.maximum(p - math.exp(epsilon) * other, 0.0).sum()) * float(x[1] - x[0])
    poisson = delta_for_epsilon([Event(Gaussian(s), Poisson(q))], ADD_REMOVE, epsilon).value.upper
    charged = delta_for_epsilon([Event(Gaussian(s), TruncatedPoisson(q, largest, n))], ADD_REMOVE, epsilon).value.upper
    assert poisson < attained <= charged


def test_costs_are_one_certified_epsilon_or_none() -> None:
    event = Event(Laplace(5.0), TruncatedPoisson(0.02, 60, 1000), 200)
    epsilon = epsilon_for_delta([event], SPECIAL, 1e-5).value.upper
    amounts = approximate_dp_cost((event,), SPECIAL, 1e-5).amounts
    assert 0 <= amounts[0] - epsilon * 1e9 <= 1
    with pytest.raises(Exception, match=r"charge.delta") as missing:
        approximate_dp_cost((event,), SPECIAL)
    assert getattr(missing.value, "code", "") == "missing_charge_delta"
    for cost in (pure_dp_cost, zcdp_cost, lambda e, r: renyi_dp_cost(e, r, (2.0,))):
        with pytest.raises(
            NoCostInFilter, match=r"with truncated_poisson batches .* it has one in approximate_dp"
        ) as no:
            cost((Event(PureDp(0.1)) if cost is not zcdp_cost else event, event), SPECIAL)
        assert no.value.pointer[-1] == "sampling"
    assert SMALLEST_DELTA > 0.0


def test_relations_and_numbers_that_are_refused() -> None:
    event = Event(Gaussian(4.0), TruncatedPoisson(0.01, 1200, np.int64(100_000)), 3)
    assert event_from_json(event.to_json()) == event
    assert TruncatedPoisson(1, 2.0, 3) == TruncatedPoisson(1.0, 2, 3)
    with pytest.raises(Unsupported, match="comes, goes or becomes null") as caught:
        compose([event], REPLACE)
    assert caught.value.pointer == (0, "sampling", "kind")
    for arguments in ((0.0, 1, 1), (0.1, 0, 1), (0.1, 1, 0), (1.1, 1, 1)):
        with pytest.raises(InvalidValue):
            TruncatedPoisson(*arguments)


def random_cut(noise: float, q: float, largest: int, size: int, steps: int = 1) -> Event:
    return Event(Gaussian(noise), TruncatedPoisson(q, largest, size, "random"), steps)


#: Epsilon at noise 4, q = 0.01, n = 100,000, 10,000 steps and delta 1e-5, and where all other gradients are 0.
TABLE = {
    900: (1.08549, 2.27600, 0.84358),
    950: (1.13730, 2.38739, 0.89433),
    1000: (1.07286, 2.25404, 0.93384),
    1050: (0.96336, 2.02709, 0.94606),
    1100: (0.94713, 1.99367, 0.94686),
    1150: (0.94687, 1.99312, 0.94687),
}


@pytest.mark.parametrize("largest", list(TABLE))
def test_every_cap_has_its_number(largest: int) -> None:
    special, replaced, attained = TABLE[largest]
    event = random_cut(4.0, 0.01, largest, 100_000, 10_000)
    null = epsilon_for_delta([event], SPECIAL, 1e-5).value
    assert null.upper == pytest.approx(special, abs=6e-6)
    assert null.lower == pytest.approx(attained, abs=6e-6)
    assert epsilon_for_delta([event], REPLACE, 1e-5).value.upper == pytest.approx(replaced, abs=6e-6)


@pytest.mark.parametrize(
    ("event", "relation", "delta", "epsilon"),
    [
        (random_cut(4.0, 0.01, 1000, 100_000, 10_000), SPECIAL, 1e-5, 1.0728569),
        (random_cut(4.0, 0.01, 1000, 100_000, 10_000), REPLACE, 1e-5, 2.2540436),
        (random_cut(4.0, 0.01, 1000, 100_000, 10_000), ADD_REMOVE, 1e-5, 1.6393579),
        (random_cut(4.0, 0.01, 1050, 100_000, 10_000), ADD_REMOVE, 1e-5, 1.0484057),
        (random_cut(4.0, 0.01, 1100, 100_000, 10_000), ADD_REMOVE, 1e-5, 0.94852),
        (random_cut(2.0, 0.05, 55, 1000, 200), SPECIAL, 1e-5, 2.1019639),
        (random_cut(2.0, 0.05, 55, 1000, 200), REPLACE, 1e-5, 3.6473328),
    ],
)
def test_vectors(event: Event, relation: NeighboringRelation, delta: float, epsilon: float) -> None:
    tolerance = 6e-6 if epsilon == round(epsilon, 5) else 1e-6
    assert epsilon_for_delta([event], relation, delta).value.upper == pytest.approx(epsilon, abs=tolerance)


def of_so_many(noise: float, q: float, largest: int, size: int) -> VisibleMixtureLoss:
    """The pair of add_or_remove_one for exactly ``size`` records."""
    tail, kept = binomial_tail(size - 1, q, largest), binomial_tail(size, q, largest + 1)
    displaced = PoissonGaussianLoss(noise / 2.0, largest / size * kept.upper / tail.lower)
    return VisibleMixtureLoss((1.0 - tail.upper, tail.upper), (PoissonGaussianLoss(noise, q), displaced))


@pytest.mark.parametrize(
    ("noise", "q", "largest", "size", "steps", "epsilon"),
    [(4.0, 0.01, 1000, 100_000, 10_000, 1.6166377), (2.0, 0.05, 55, 1000, 200, 2.7963896)],
)
def test_a_private_number_costs_no_less_than_any_number_below_it(
    noise: float, q: float, largest: int, size: int, steps: int, epsilon: float
) -> None:
    """The cost of one number is not monotone in it: twice the records, all batches cut, cost less."""
    charged = epsilon_for_delta([random_cut(noise, q, largest, size, steps)], ADD_REMOVE, 1e-5).value.upper
    known = epsilon_of_composition(Composition(((of_so_many(noise, q, largest, size), steps),)), 1e-5).value
    assert known.upper == pytest.approx(epsilon, abs=1e-6)
    for share in (0.8, 0.9, 0.95, 1.0):
        fewer = of_so_many(noise, q, largest, int(share * size))
        assert epsilon_of_composition(Composition(((fewer, steps),)), 1e-5).value.upper <= charged
    many = of_so_many(noise, q, largest, 2 * size)
    assert epsilon_of_composition(Composition(((many, steps),)), 1e-5).value.upper < known.upper


@pytest.mark.parametrize(("noise", "q", "largest", "most"), [(1.0, 0.3, 1, 12), (0.7, 0.1, 4, 90), (2.0, 0.6, 3, 9)])
def test_one_pair_is_above_those_of_all_numbers_of_records(noise: float, q: float, largest: int, most: int) -> None:
    """At every epsilon, in both directions."""
    [(loss, _)] = compose([random_cut(noise, q, largest, most)], ADD_REMOVE).steps
    epsilons = np.linspace(-3.0, 4.0, 141)
    below = np.full((2, epsilons.size), -np.inf)
    for size in range(largest + 1, most + 1):
        for way, remove in enumerate((True, False)):
            one = of_so_many(noise, q, largest, size).excess(epsilons, remove=remove)
            assert (one <= loss.excess(epsilons, remove=remove) * (1.0 + 1e-9) + 1e-12).all(), size
            below[way] = np.maximum(below[way], one)
    # Nor is it far above the largest of them.
    for way, remove in enumerate((True, False)):
        assert below[way][60] >= 0.75 * float(loss.excess(np.zeros(1), remove=remove)[0]) > 0.0


def test_the_number_of_records_that_is_cut_most_is_found() -> None:
    rng = np.random.default_rng(5)
    for _ in range(60):
        largest, q = int(rng.integers(1, 30)), float(rng.choice([0.9, 0.5, 0.2, 0.05]))
        most = largest + int(rng.integers(1, 6 * largest / q + 5))
        numbers = np.arange(largest + 1, most + 1)
        truth = float((largest / numbers * stats.binom.sf(largest, numbers, q)).max())
        assert truth * (1.0 - 1e-12) <= most_displaced(q, largest, most) <= truth * (1.0 + 1e-7)
    # 1e13 records, and a largest size that most batches exceed.
    assert 0.9987e-3 < most_displaced(1e-3, 10**7, 10**13) < 1e-3


#: `random_slots` under add_or_remove_one is the pair of a null record, which theirs is far above.
@pytest.mark.parametrize(
    ("relation", "theirs", "way"),
    [
        (SPECIAL, NeighborRel.REPLACE_SPECIAL, "random"),
        (REPLACE, NeighborRel.REPLACE_ONE, "random"),
        (ADD_REMOVE, NeighborRel.ADD_OR_REMOVE_ONE, "random_slots"),
    ],
)
@pytest.mark.parametrize("number", range(12))
@pytest.mark.one_in(12)
def test_never_above_dp_accounting(relation: NeighboringRelation, theirs: NeighborRel, way: str, number: int) -> None:
    rng = np.random.default_rng((11, number))
    size, q = int(10 ** rng.uniform(1.6, 5.0)), float(10 ** rng.uniform(-3.0, -0.5))
    largest = min(max(round(size * q + math.sqrt(size * q) * rng.uniform(-1.5, 3.0)), 1), size - 1)
    noise, steps = float(10 ** rng.uniform(0.0, 1.0)), int(10 ** rng.uniform(0.0, 3.0))
    event = Event(Gaussian(noise), TruncatedPoisson(q, largest, size, way), steps)
    pld = from_truncated_subsampled_gaussian_mechanism(
        size, q, largest, noise, value_discretization_interval=1e-3, neighboring_relation=theirs
    )
    expected = pld.self_compose(steps).get_epsilon_for_delta(1e-5)
    assert epsilon_for_delta([event], relation, 1e-5).value.upper <= expected + 1e-9, event


def test_a_private_number_may_cost_more_than_one_that_is_known() -> None:
    """The example of the page: what dp-accounting says is for 96 records alone."""
    pld = from_truncated_subsampled_gaussian_mechanism(96, 0.0254, 3, 1.07, value_discretization_interval=1e-3)
    theirs = pld.self_compose(63).get_epsilon_for_delta(1e-5)
    ours = epsilon_for_delta([random_cut(1.07, 0.0254, 3, 96, 63)], ADD_REMOVE, 1e-5).value.upper
    assert theirs == pytest.approx(5.44, abs=0.005)
    assert ours == pytest.approx(5.61, abs=0.005)


@pytest.mark.parametrize(("size", "largest", "q"), [(3, 1, 0.5), (4, 2, 0.4), (4, 2, 0.8), (5, 3, 0.6)])
def test_no_small_data_set_costs_more_than_its_relation_says(size: int, largest: int, q: float) -> None:
    """Every batch and every way to cut it: gradients on a grid, three relations, both directions, both signs of eps."""
    s = 1.2
    x = np.linspace(-12.0, 12.0, 1201)
    cell = float(x[1] - x[0])
    epsilons = np.array([-1.2, -0.3, 0.0, 0.1, 0.5, 1.2])
    density: dict[float, np.ndarray] = {}

    def normal(total: float) -> np.ndarray:
        total = round(total, 6)
        if total not in density:
            density[total] = np.exp(-((x - total) ** 2) / (2 * s * s)) / (s * math.sqrt(2 * math.pi))
        return density[total]

    def output(records: tuple[float, ...]) -> np.ndarray:
        law = np.zeros_like(x)
        for taken in itertools.product((0, 1), repeat=len(records)):
            batch = [record for record, each in zip(records, taken, strict=True) if each]
            kept = list(itertools.combinations(batch, min(largest, len(batch))))
            weight = math.prod(q if each else 1 - q for each in taken) / len(kept)
            for each in kept:
                law += weight * normal(sum(each))
        return law

    def sticks(p: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.array([float(np.maximum(p - math.exp(e) * other, 0.0).sum()) * cell for e in epsilons])

    worst = {(relation, way): np.zeros(epsilons.size) for relation in NeighboringRelation for way in (0, 1)}
    for others in itertools.combinations_with_replacement((-1.0, 0.0, 0.6, 1.0), size - 1):
        null, gone = output((0.0, *others)), output(others)
        for mine in (1.0, -0.5):
            here = output((mine, *others))
            for relation, without in ((SPECIAL, null), (ADD_REMOVE, gone), (REPLACE, output((-mine, *others)))):
                for way, pair in enumerate(((here, without), (without, here))):
                    worst[relation, way] = np.maximum(worst[relation, way], sticks(*pair))
    reached = dict.fromkeys(NeighboringRelation, 0.0)
    for relation in NeighboringRelation:
        [(loss, _)] = compose([random_cut(s, q, largest, size)], relation).steps
        for way, remove in enumerate((True, False)):
            bound = loss.excess(epsilons, remove=remove) + np.maximum(0.0, -np.expm1(epsilons))
            assert (worst[relation, way] <= bound + 2e-6).all(), relation
            seen = bound > 1e-4
            share = worst[relation, way][seen] / bound[seen]
            reached[relation] = max(reached[relation], float(share.max()))
    # Where the number of records stays, some neighbours attain it at some epsilon.
    assert min(reached.values()) > 0.8
    assert reached[SPECIAL] == pytest.approx(1.0, abs=1e-3)
    assert reached[REPLACE] == pytest.approx(1.0, abs=1e-3)


def of_slots(noise: float, q: float, largest: int, slots: int, steps: int = 1) -> Event:
    return Event(Gaussian(noise), TruncatedPoisson(q, largest, slots, "random_slots"), steps)


def test_empty_slots_are_null_records() -> None:
    """Under every relation the pairs of a public number of records, and the guides' numbers."""
    for steps in (1, 200):
        slots, records = of_slots(2.0, 0.05, 55, 1000, steps), random_cut(2.0, 0.05, 55, 1000, steps)
        for relation in (SPECIAL, REPLACE):
            assert compose([slots], relation).steps == compose([records], relation).steps
        assert compose([slots], ADD_REMOVE).steps == compose([records], SPECIAL).steps
    for largest, epsilon in ((900, 1.08549), (1000, 1.07286), (1050, 0.96336), (1100, 0.94713)):
        event = of_slots(4.0, 0.01, largest, 100_000, 10_000)
        assert epsilon_for_delta([event], ADD_REMOVE, 1e-5).value.upper == pytest.approx(epsilon, abs=6e-6)
    fixed = Event(Gaussian(2.0), WithoutReplacement(55, 1000), 200)
    assert compose([of_slots(2.0, 1.0, 55, 1000, 200)], ADD_REMOVE) == compose([fixed], SPECIAL)


def test_a_search_asks_the_pair_above_and_no_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments of a pair that is cut take seconds, and a search asks many times."""
    events = [of_slots(2.3, 65 / 455, 80, 512, 35)]
    certified = epsilon_for_delta(events, ADD_REMOVE, 1e-5).value.upper
    monkeypatch.delattr(RenyiBound, "epsilon")
    assert estimate_epsilon(events, ADD_REMOVE, 1e-5) == pytest.approx(certified, rel=5e-3)


@pytest.mark.parametrize(("slots", "largest", "q"), [(4, 2, 0.4), (4, 1, 0.7), (5, 3, 0.6)])
def test_no_small_data_set_in_slots_costs_more_when_a_record_comes_or_goes(slots: int, largest: int, q: float) -> None:
    """Every number of records up to that of the slots, every batch and cut, and the records behind one that goes move.

    The slots' batches are enumerated here on their own: subsets of slots, of which some are empty.
    """
    s = 1.2
    x = np.linspace(-9.0, 9.0, 601)
    epsilons = np.array([-1.2, -0.3, 0.0, 0.1, 0.5, 1.2])
    weights: dict[tuple[int, ...], float] = {}
    for taken in itertools.product((0, 1), repeat=slots):
        batch = [slot for slot, each in enumerate(taken) if each]
        kept = list(itertools.combinations(batch, min(largest, len(batch))))
        for each in kept:
            weights[each] = weights.get(each, 0.0) + math.prod(q if one else 1 - q for one in taken) / len(kept)

    def output(records: tuple[float, ...]) -> np.ndarray:
        held = (*records, *[0.0] * (slots - len(records)))
        totals = [(sum(held[slot] for slot in batch), weight) for batch, weight in weights.items()]
        return sum(
            (weight * np.exp(-((x - total) ** 2) / (2 * s * s)) for total, weight in totals), np.zeros_like(x)
        ) / (s * math.sqrt(2 * math.pi))

    [(loss, _)] = compose([of_slots(s, q, largest, slots)], ADD_REMOVE).steps
    reached = 0.0
    for size in range(1, slots + 1):
        for records in itertools.product((-1.0, 0.4, 1.0), repeat=size):
            here, there = output(records), output(records[1:])
            for remove, (p, other) in ((True, (here, there)), (False, (there, here))):
                bound = loss.excess(epsilons, remove=remove) + np.maximum(0.0, -np.expm1(epsilons))
                found = np.maximum(p - np.exp(epsilons)[:, None] * other, 0.0).sum(axis=1) * float(x[1] - x[0])
                assert (found <= bound + 1e-5).all(), (records, remove)
                seen = bound > 1e-3
                reached = max(reached, float((found[seen] / bound[seen]).max()))
    assert reached == pytest.approx(1.0, abs=2e-3)


def test_a_random_cut_with_every_record_is_a_batch_of_a_fixed_size() -> None:
    event = random_cut(2.0, 1.0, 55, 1000, 200)
    for relation in (SPECIAL, REPLACE):
        fixed = Event(Gaussian(2.0), WithoutReplacement(55, 1000), 200)
        assert compose([event], relation) == compose([fixed], relation)
    # A record that goes lets another one in at every step.
    assert compose([event], ADD_REMOVE).gaussian_only == GaussianLoss(math.sqrt(200.0))


def test_random_and_arbitrary_cuts_agree_where_they_are_rare() -> None:
    for relation in (ADD_REMOVE, SPECIAL):
        ends = [
            epsilon_for_delta(
                [Event(Gaussian(4.0), TruncatedPoisson(0.01, 1250, 100_000, way), 10_000)], relation, 1e-5
            )
            for way in ("random", "arbitrary")
        ]
        assert ends[0].value.upper <= ends[1].value.upper
        assert ends[0].value.upper == pytest.approx(ends[1].value.upper, abs=3e-6)


def test_laplace_noise_is_charged_as_if_cut_in_any_way() -> None:
    laws = [Event(Laplace(4.0), TruncatedPoisson(0.01, 40, 1000, way), 20) for way in ("random", "arbitrary")]
    assert compose(laws[:1], ADD_REMOVE) == compose(laws[1:], ADD_REMOVE)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_sizes_of_today(relation: NeighboringRelation) -> None:
    """Ten trillion records and a cap near the mean."""
    event = random_cut(4.0, 1e-5, 100_003_000, 10**13, 10**8)
    value = epsilon_for_delta([event], relation, 1e-14).value
    assert 0.0 < value.lower < value.upper < 1.0
    assert value.upper < 3.0 * value.lower


@pytest.mark.parametrize(
    ("relation", "largest"), [(REPLACE, 1050), (SPECIAL, 1050), (REPLACE, 1250), (ADD_REMOVE, 1100)]
)
def test_many_deltas_share_the_lines_of_the_pairs_around_a_cut(
    relation: NeighboringRelation, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same intervals as one by one; and where no single number may be asked for, all are narrow."""
    events = [Event(Gaussian(4.0), TruncatedPoisson(0.01, largest, 100_000, "random"), 10_000)]
    deltas = [1e-2, 1e-4, 1e-5, 3e-6]
    alone = [epsilon_for_delta(events, relation, delta).value for delta in deltas]
    asked: list[float] = []
    original = FourierInversion.epsilon

    def watched(self: FourierInversion, composition: Composition, delta: float) -> object:
        asked.append(delta)
        return original(self, composition, delta)

    monkeypatch.setattr(FourierInversion, "epsilon", watched)
    together = [answer.value for answer in epsilons_for_deltas(events, relation, deltas)]
    assert len(asked) < len(deltas)
    for one, other in zip(alone, together, strict=True):
        assert other.upper == pytest.approx(one.upper, rel=1e-7)
        assert other.lower == pytest.approx(one.lower, rel=1e-7)
