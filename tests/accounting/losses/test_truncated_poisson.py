"""Poisson batches cut to a largest size: the tail, what it adds, and an explicit cut."""

from __future__ import annotations

import itertools
import math
import random

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import delta_for_epsilon, deltas_for_epsilons, epsilon_for_delta
from accounting.composition.composition import compose
from accounting.discrepancy import Discrepancy
from accounting.errors import InvalidValue, NoCostInFilter, Unsupported
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp, TruncatedPoisson, event_from_json
from accounting.filters import SMALLEST_DELTA, approximate_dp_cost, pure_dp_cost, renyi_dp_cost, zcdp_cost
from accounting.intervals import Interval
from accounting.losses.truncated_poisson import exceedance
from accounting.relations import NeighboringRelation
from accounting.true_positive_rate import tpr_for_fpr

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL
REPLACE = NeighboringRelation.REPLACE_ONE


@mp.workdps(50)
def binomial_tail(n: int, q: float, largest: int) -> mp.mpf:
    k, p = largest + 1, mp.mpf(q)
    term = mp.exp(
        mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1) + k * mp.log(p) + (n - k) * mp.log1p(-p)
    )
    total = mp.mpf(0)
    while k <= n and term > total * mp.mpf(10) ** -25:
        total += term
        term *= mp.mpf(n - k) / (k + 1) * p / (1 - p)
        k += 1
    return total


def test_tail_is_rounded_up_and_close() -> None:
    draw = random.Random(5)
    for _ in range(20):
        n, q = int(10 ** draw.uniform(0.5, 9)), 10 ** draw.uniform(-6, -0.1)
        deviation = math.sqrt(n * q * (1 - q))
        largest = int(n * q + deviation * draw.uniform(0.3, 30)) + draw.randrange(3)
        if largest >= n or deviation > 1000:
            continue
        exact, bound = binomial_tail(n, q, largest), exceedance(n, q, largest)
        assert exact <= bound <= 1.0
        if bound < 1.0 and exact > mp.mpf(10) ** -300:
            assert bound <= exact * (1 + mp.mpf("0.02"))
            if min(largest, n - largest) >= 1000:
                assert bound <= exact * (1 + mp.mpf("1e-7"))


@pytest.mark.parametrize(("n", "q", "largest"), [(10, 0.3, 7), (10, 0.3, 9), (3, 0.5, 2), (200, 0.5, 130), (5, 0.9, 4)])
def test_small_tails_are_those_counted_out(n: int, q: float, largest: int) -> None:
    exact = math.fsum(math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(largest + 1, n + 1))
    assert exact <= exceedance(n, q, largest) <= min(1.0, exact * 1.02)


def test_tails_at_the_ends() -> None:
    # Those of the page.
    assert exceedance(100_000, 0.01, 1200) == pytest.approx(3.2e-10, rel=0.02)
    assert exceedance(100_000, 0.01, 1250) < 1e-14
    assert exceedance(100, 0.3, 100) == exceedance(100, 1.0, 200) == 0.0
    assert exceedance(100, 1.0, 99) == exceedance(100, 0.5, 20) == 1.0
    assert 0.0 < exceedance(10**9, 1e-6, 10**6) < 1e-300
    assert 1e-302 < exceedance(10**6, 1e-3, 2325) < 1e-250


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
        cut = steps * binomial_tail(100_000, probability, largest)
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
