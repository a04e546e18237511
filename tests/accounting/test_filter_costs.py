"""One test per cell of the table of costs, refusals included."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from accounting.accountant import epsilon_for_delta
from accounting.composition.gaussian_dp import epsilon_of_gaussian
from accounting.errors import AccountingError, InvalidValue, NoCostInFilter, Unsupported
from accounting.events import (
    ApproximateDp,
    DisjointBatches,
    Event,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    RenyiDp,
    Sampling,
    ShuffledEpochs,
    WithoutReplacement,
    ZcDp,
)
from accounting.filter_costs import (
    FILTERS_WITH_COST,
    NO_AMPLIFICATION,
    Cost,
    approximate_dp_cost,
    exact,
    gaussian_dp_cost,
    mu_of_laplace,
    mu_of_pure_dp,
    pure_dp_cost,
    renyi_dp_cost,
    zcdp_cost,
)
from accounting.privacy_loss import loss_of
from accounting.relations import NeighboringRelation
from accounting.sampling.poisson_moments import MAX_BINOMIAL_ORDER
from accounting.units import ATTO, NANO, SATURATED
from tests.accounting.references import gaussian_epsilon, normal_cdf, poisson_moment

ADD_REMOVE = NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = NeighboringRelation.REPLACE_ONE
SPECIAL = NeighboringRelation.REPLACE_SPECIAL

FULL = Event(Gaussian(4.0), count=8)
SAMPLED = Event(Gaussian(5.346), Poisson(0.02), 5000)
ORDERS = (1.5, 2.0, 8.0, 32.0)
KINDS = ("pure_dp", "approximate_dp", "zcdp", "gaussian_dp", "renyi_dp")

ONE_OF_EACH = {
    "gaussian": Event(Gaussian(4.0)),
    "laplace": Event(Laplace(4.0)),
    "pure_dp": Event(PureDp(0.1)),
    "approximate_dp": Event(ApproximateDp(0.1, 1e-9)),
    "zcdp": Event(ZcDp(0.1)),
    "renyi_dp": Event(RenyiDp(ORDERS, (0.1, 0.2, 0.3, 0.4))),
}
SAMPLINGS: dict[str, Sampling] = {
    "poisson": Poisson(0.25),
    "without_replacement": WithoutReplacement(25, 100),
    "shuffled_epochs": ShuffledEpochs(4),
    "disjoint_batches": DisjointBatches("by_position"),
}


def cost_in(kind: str, events: Sequence[Event], relation: NeighboringRelation, charge_delta: float = 1e-6) -> Cost:
    events = tuple(events)
    if kind == "renyi_dp":
        return renyi_dp_cost(events, relation, ORDERS)
    if kind == "approximate_dp":
        return approximate_dp_cost(events, relation, charge_delta)
    return {"pure_dp": pure_dp_cost, "zcdp": zcdp_cost, "gaussian_dp": gaussian_dp_cost}[kind](events, relation)


def up(value: object) -> int:
    return int(mp.ceil(mp.mpf(value) * NANO))


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_missing_cell_is_refused_and_names_the_filters_that_work(name: str, kind: str) -> None:
    event = ONE_OF_EACH[name]
    working = FILTERS_WITH_COST[type(event.mechanism)]
    if kind in working:
        assert all(0 < amount < SATURATED for amount in cost_in(kind, [event], REPLACE).amounts[:1])
        return
    with pytest.raises(
        NoCostInFilter, match=f"a {name} event has no proved additive cost in a {kind} budget"
    ) as caught:
        cost_in(kind, [Event(PureDp(1.0)) if kind in FILTERS_WITH_COST[PureDp] else event, event], REPLACE)
    assert caught.value.pointer == ("events", 1, "mechanism")
    assert all(other in caught.value.detail.split("it has one in")[1] for other in working)


def test_which_cells_exist() -> None:
    exist = {(cls.kind, kind) for cls, kinds in FILTERS_WITH_COST.items() for kind in kinds}
    missing = {(name, kind) for name in ONE_OF_EACH for kind in KINDS} - exist
    assert missing == {
        ("gaussian", "pure_dp"),
        ("zcdp", "pure_dp"),
        ("zcdp", "gaussian_dp"),
        ("renyi_dp", "pure_dp"),
        ("renyi_dp", "zcdp"),
        ("renyi_dp", "gaussian_dp"),
        *(("approximate_dp", kind) for kind in KINDS if kind != "approximate_dp"),
    }


@pytest.mark.parametrize("name", SAMPLINGS)
def test_pure_dp_sampled_gaussian_is_refused(name: str) -> None:
    with pytest.raises(NoCostInFilter, match="approximate_dp, zcdp, gaussian_dp or renyi_dp"):
        pure_dp_cost((Event(Gaussian(1.0), SAMPLINGS[name]),), REPLACE)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("name", ["without_replacement", "shuffled_epochs", "disjoint_batches"])
def test_a_relation_under_which_other_records_move_is_refused(name: str, kind: str) -> None:
    events = [Event(Gaussian(4.0)), Event(Gaussian(4.0), SAMPLINGS[name], 8)]
    with pytest.raises(Unsupported) as caught:
        cost_in(kind, events, ADD_REMOVE)
    assert caught.value.code == "unsupported_relation"
    assert caught.value.pointer == ("events", 1, "sampling", "kind")


# -- schedules that are fixed in advance, in every filter -------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_shuffled_epochs_cost_their_passes_and_disjoint_batches_one(kind: str, relation: NeighboringRelation) -> None:
    mechanism = Laplace(4.0) if kind == "pure_dp" else Gaussian(4.0)
    for count, passes in ((1, 1), (4, 1), (5, 2), (8, 2), (39, 10), (40, 10)):
        shuffled = cost_in(kind, [Event(mechanism, ShuffledEpochs(4), count)], relation)
        assert shuffled == cost_in(kind, [Event(mechanism, count=passes)], relation)
        assert shuffled.warnings == ()
    disjoint = cost_in(kind, [Event(mechanism, DisjointBatches("by_position"), 10**6)], relation)
    assert disjoint == cost_in(kind, [Event(mechanism)], relation)
    twice = cost_in(kind, [Event(mechanism, DisjointBatches("by_position"), 7)] * 2, relation)
    assert twice == cost_in(kind, [Event(mechanism, count=2)], relation)


def test_disjoint_batches_drawn_record_by_record_are_accounted_under_add_or_remove() -> None:
    event = Event(Gaussian(4.0), DisjointBatches("independent"), 10)
    assert zcdp_cost((event,), ADD_REMOVE).amounts == zcdp_cost((Event(Gaussian(4.0)),), ADD_REMOVE).amounts


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_sample_of_everything_is_a_full_batch(kind: str) -> None:
    full = cost_in(kind, [Event(Gaussian(4.0), count=9)], REPLACE)
    for sampling in (Poisson(1.0), WithoutReplacement(100, 100)):
        assert cost_in(kind, [Event(Gaussian(4.0), sampling, 9)], REPLACE) == full
    assert full.warnings == ()


# -- pure_dp ----------------------------------------------------------------------------------------------------------


def test_pure_dp_laplace_adds_up_with_the_relations_sensitivity() -> None:
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), ADD_REMOVE).amounts == (750_000_000,)
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), SPECIAL).amounts == (750_000_000,)
    assert pure_dp_cost((Event(Laplace(4.0), count=3),), REPLACE).amounts == (1_500_000_000,)


def largest_sampled_laplace_loss(q: float, b: float, relation: NeighboringRelation, sampling: str) -> mp.mpf:
    """Poisson: of the attained pair. Fixed size: Balle, Barthe & Gaboardi 2018, or no amplification where better."""
    near, far = mp.mpf(1) / b, mp.mpf(2) / b
    if sampling == "without_replacement":
        return min(mp.log1p(q * mp.expm1(far)), near if relation is SPECIAL else far)
    if relation is REPLACE:
        return mp.log((1 - mp.mpf(q) + q * mp.exp(near)) / (1 - mp.mpf(q) + q * mp.exp(-near)))
    return mp.log1p(q * mp.expm1(near))


SAMPLED_LAPLACE = [
    (Event(Laplace(b), sampling, 7), relation, largest_sampled_laplace_loss(q, b, relation, sampling.kind))
    for b in (0.3, 2.0, 50.0)
    for q, sampling, relations in (
        (0.25, Poisson(0.25), (ADD_REMOVE, SPECIAL, REPLACE)),
        (0.25, WithoutReplacement(25, 100), (SPECIAL, REPLACE)),
        (0.75, WithoutReplacement(75, 100), (SPECIAL, REPLACE)),
    )
    for relation in relations
]


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE)
def test_pure_dp_sampled_laplace_is_amplified(event: Event, relation: NeighboringRelation, largest: mp.mpf) -> None:
    assert 0 <= pure_dp_cost((event,), relation).amounts[0] - up(7 * largest) <= 1


def test_pure_dp_pure_adds_up_exactly() -> None:
    assert pure_dp_cost((Event(PureDp(1e-6), count=10**6),), REPLACE).amounts == (NANO,)
    assert pure_dp_cost((Event(PureDp(0.1), count=3),), ADD_REMOVE).amounts == (300_000_000,)


# -- approximate_dp ---------------------------------------------------------------------------------------------------


def test_approximate_dp_gaussian_is_tight() -> None:
    for relation, mu in ((ADD_REMOVE, math.sqrt(0.5)), (SPECIAL, math.sqrt(0.5)), (REPLACE, math.sqrt(2.0))):
        epsilon, delta = approximate_dp_cost((FULL,), relation, 1e-6).amounts
        assert 0 <= epsilon - up(gaussian_epsilon(mu, 1e-6)) <= 2
        assert delta == 10**12


@pytest.mark.parametrize("sampling", [Poisson(0.05), WithoutReplacement(5, 100)])
@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_above_the_certified_epsilon(sampling: Poisson | WithoutReplacement, relation: NeighboringRelation) -> None:
    events = (Event(Gaussian(2.0), sampling, 20),)
    certified = epsilon_for_delta(events, relation, 1e-5).value
    epsilon, delta = approximate_dp_cost(events, relation, 1e-5).amounts
    assert epsilon == math.ceil(Fraction(certified.upper) * NANO)
    assert delta == 10**13
    assert epsilon < 0.9 * approximate_dp_cost((Event(Gaussian(2.0), count=20),), relation, 1e-5).amounts[0]


def test_approximate_dp_pure_and_laplace_add_up_without_a_delta() -> None:
    events = (Event(Laplace(4.0), count=3), Event(PureDp(0.1), count=2))
    assert approximate_dp_cost(events, REPLACE).amounts == (1_700_000_000, 0)
    assert approximate_dp_cost(events, ADD_REMOVE, 1e-3).amounts == (950_000_000, 0)


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE[:3])
def test_approximate_dp_sampled_laplace_adds_up(event: Event, relation: NeighboringRelation, largest: mp.mpf) -> None:
    assert approximate_dp_cost((event,), relation).amounts == (*pure_dp_cost((event,), relation).amounts, 0)


def test_stated_deltas_are_charged() -> None:
    stated = Event(ApproximateDp(0.1, 1e-7), count=3)
    assert approximate_dp_cost((stated,), REPLACE).amounts == (300_000_000, 3 * 10**11)
    assert approximate_dp_cost((stated, Event(Laplace(4.0))), ADD_REMOVE).amounts == (550_000_000, 3 * 10**11)
    assert approximate_dp_cost((Event(ApproximateDp(0.0, 1e-30)),), ADD_REMOVE).amounts == (0, 1)
    assert approximate_dp_cost((Event(ApproximateDp(0.0, 1.0), count=10**8),), ADD_REMOVE).amounts == (0, SATURATED)
    epsilon, delta = approximate_dp_cost((stated, Event(Gaussian(5.0))), ADD_REMOVE, 1e-6).amounts
    assert delta == 10**12 + 3 * 10**11
    mixed = epsilon_for_delta([Event(PureDp(0.1), count=3), Event(Gaussian(5.0))], ADD_REMOVE, 1e-6).value
    assert epsilon == math.ceil(Fraction(mixed.upper) * NANO)
    assert gaussian_epsilon(0.2, 1e-6) * NANO < epsilon <= up(gaussian_epsilon(0.2, 1e-6) + mp.mpf("0.3")) + 1


def test_a_mixture_that_states_its_delta_is_not_cheaper_than_it_is() -> None:
    """Attained: the stated step reveals everything with probability delta, and is randomised response otherwise."""
    events = (Event(ApproximateDp(0.5, 1e-3)), Event(Gaussian(1.0)))
    epsilon, delta = approximate_dp_cost(events, ADD_REMOVE, 1e-5).amounts
    assert delta == 10**15 + 10**13
    eps, stated = mp.mpf(epsilon) / NANO, mp.mpf("0.001")

    def hockey_stick(shift: mp.mpf) -> mp.mpf:
        return normal_cdf(mp.mpf(1) / 2 - shift) - mp.exp(shift) * normal_cdf(-mp.mpf(1) / 2 - shift)

    likely = mp.exp(mp.mpf("0.5")) / (1 + mp.exp(mp.mpf("0.5")))
    inner = likely * hockey_stick(eps - mp.mpf("0.5")) + (1 - likely) * hockey_stick(eps + mp.mpf("0.5"))
    attained = stated + (1 - stated) * inner
    assert mp.mpf("0.0010099") < attained <= mp.mpf(delta) / ATTO


def test_approximate_dp_zcdp_and_renyi_are_converted_at_the_delta() -> None:
    rho = approximate_dp_cost((Event(ZcDp(0.1), count=5),), REPLACE, 1e-5).amounts
    # Between the Gaussian that attains it and Canonne, Kamath & Steinke's single-order conversion, 4.7283856.
    assert up(mp.mpf("4.3771780957")) <= rho[0] <= 4_728_386_987
    assert rho[1] == 10**13
    event = Event(RenyiDp(ORDERS, (0.1, 0.2, 0.3, 0.4)), count=3)
    epsilon, delta = approximate_dp_cost((event,), REPLACE, 1e-5).amounts
    best = min(
        3 * e + (math.log(1e5) + (a - 1) * math.log1p(-1 / a) - math.log(a)) / (a - 1)
        for a, e in zip(ORDERS, (0.1, 0.2, 0.3, 0.4), strict=True)
    )
    assert 0.1 * NANO < epsilon <= best * NANO * (1 + 1e-6)
    assert delta == 10**13


@pytest.mark.parametrize("name", ["gaussian", "zcdp", "renyi_dp"])
def test_a_charge_delta_that_is_needed_and_missing_is_asked_for(name: str) -> None:
    with pytest.raises(AccountingError, match=r"charge\.delta") as caught:
        approximate_dp_cost((Event(PureDp(0.1)), ONE_OF_EACH[name]), REPLACE)
    assert caught.value.code == "missing_charge_delta"
    assert caught.value.pointer == ("charge", "delta")
    assert name in caught.value.detail


@pytest.mark.parametrize("bad", [0.0, 1e-19, 0.6, math.nan, "1e-5"])
def test_a_charge_delta_outside_its_range_is_refused(bad: float) -> None:
    with pytest.raises(InvalidValue) as caught:
        approximate_dp_cost((FULL,), REPLACE, bad)
    assert caught.value.pointer == ("charge", "delta")


def test_epsilon_is_rounded_up_and_a_charge_delta_off_the_grid_too() -> None:
    delta = 1.23456789012345e-5
    epsilon, atto = approximate_dp_cost((FULL,), REPLACE, delta).amounts
    assert atto == 12345678901235
    assert Fraction(epsilon, NANO) >= Fraction(epsilon_for_delta([FULL], REPLACE, delta).value.upper)


# -- zcdp -------------------------------------------------------------------------------------------------------------


def test_zcdp_gaussian_is_exact() -> None:
    assert zcdp_cost((FULL,), ADD_REMOVE).amounts == (250_000_000,)
    assert zcdp_cost((FULL,), SPECIAL).amounts == (250_000_000,)
    assert zcdp_cost((FULL,), REPLACE).amounts == (NANO,)
    assert zcdp_cost((FULL,), REPLACE).warnings == ()


@pytest.mark.parametrize("kind", ["zcdp", "gaussian_dp"])
def test_no_amplified_cost_of_a_gaussian(kind: str) -> None:
    for event in (SAMPLED, Event(SAMPLED.mechanism, WithoutReplacement(2, 100), 5000)):
        for relation in NeighboringRelation:
            if relation is ADD_REMOVE and event is not SAMPLED:
                continue
            sampled = cost_in(kind, [event], relation)
            full = cost_in(kind, [Event(SAMPLED.mechanism, count=5000)], relation)
            assert sampled.amounts == full.amounts
            assert [warning.code for warning in sampled.warnings] == [NO_AMPLIFICATION]
            assert kind in sampled.warnings[0].detail


def test_zcdp_and_gaussian_dp_fixed_size_with_a_null_record_have_the_sensitivity_of_one_participation() -> None:
    """Given the batches, which do not depend on the data, a step with the record is N(0, s^2) against N(1, s^2)."""
    event = Event(Gaussian(4.0), WithoutReplacement(5, 100), 8)
    assert zcdp_cost((event,), SPECIAL).amounts == (250_000_000,)
    assert gaussian_dp_cost((event,), SPECIAL).amounts == (500_000_000,)
    assert zcdp_cost((event,), REPLACE).amounts == (NANO,)
    assert gaussian_dp_cost((event,), REPLACE).amounts == (2 * NANO,)


def test_zcdp_laplace_is_the_best_proved() -> None:
    for scale, relation in ((1.0, ADD_REMOVE), (3.0, REPLACE), (200.0, SPECIAL)):
        epsilon = mp.mpf(relation.sensitivity) / scale
        rho = epsilon + mp.exp(-epsilon) - 1
        assert 0 <= zcdp_cost((Event(Laplace(scale), count=7),), relation).amounts[0] - up(7 * rho) <= 1
        assert rho < epsilon**2 / 2


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE)
def test_zcdp_sampled_laplace_is_the_best_of_both(event: Event, relation: NeighboringRelation, largest: mp.mpf) -> None:
    assert isinstance(event.mechanism, Laplace)
    epsilon = mp.mpf(relation.sensitivity) / event.mechanism.noise_multiplier
    rho = min(epsilon + mp.exp(-epsilon) - 1, largest * mp.tanh(largest / 2))
    cost = zcdp_cost((event,), relation)
    assert 0 <= cost.amounts[0] - up(7 * rho) <= 1
    assert cost.warnings == ()


def test_zcdp_pure_is_the_best_proved() -> None:
    for epsilon in (1e-3, 0.5, 4.0):
        rho = mp.mpf(repr(epsilon)) * mp.tanh(mp.mpf(repr(epsilon)) / 2)
        assert 0 <= zcdp_cost((Event(PureDp(epsilon), count=7),), REPLACE).amounts[0] - up(7 * rho) <= 1
        assert rho < mp.mpf(epsilon) ** 2 / 2


def test_zcdp_zcdp_adds_up_exactly() -> None:
    assert zcdp_cost((Event(ZcDp(0.1), count=3), Event(ZcDp(0.2))), REPLACE).amounts == (500_000_000,)


# -- gaussian_dp ------------------------------------------------------------------------------------------------------


def test_gaussian_dp_gaussian_is_exact() -> None:
    assert gaussian_dp_cost((FULL,), ADD_REMOVE).amounts == (500_000_000,)
    assert gaussian_dp_cost((FULL,), SPECIAL).amounts == (500_000_000,)
    assert gaussian_dp_cost((FULL,), REPLACE).amounts == (2 * NANO,)
    assert gaussian_dp_cost((FULL,), REPLACE).warnings == ()
    hundred = (Event(Gaussian(10.0), count=50), Event(Gaussian(10.0), count=50))
    assert gaussian_dp_cost(hundred, ADD_REMOVE).amounts == (NANO,)


@mp.workdps(60)
def mu_through(error: mp.mpf) -> mp.mpf:
    """-2 Phi^-1(error): bisected, so that far tails work too."""
    low, high = mp.mpf(0), mp.mpf(200)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if normal_cdf(-middle / 2) > error else (low, middle)
    return high


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 0.5, 1.0, 1.1, 1.4, 4.0, 30.0, 800.0])
def test_gaussian_dp_pure_and_laplace_in_closed_form(epsilon: float) -> None:
    exact_epsilon = mp.mpf(epsilon)
    of_pure, of_laplace = mu_through(1 / (1 + mp.exp(exact_epsilon))), mu_through(mp.exp(-exact_epsilon / 2) / 2)
    assert abs(mu_of_pure_dp(epsilon) / of_pure - 1) < 4e-13
    assert abs(mu_of_laplace(epsilon) / of_laplace - 1) < 4e-13
    assert of_laplace < of_pure
    count = 1000
    for event, mu in (
        (Event(PureDp(epsilon), count=count), of_pure),
        (Event(Laplace(1 / epsilon), count=count), of_laplace),
    ):
        amount = gaussian_dp_cost((event,), SPECIAL).amounts[0]
        assert 0 <= amount - count * mu**2 * NANO <= 1 + count * mu**2 * NANO * mp.mpf("3e-12")


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0, 8.0])
def test_the_gaussian_is_below_the_trade_off_functions(epsilon: float) -> None:
    """A mechanism is mu-GDP when its trade-off function is nowhere below the Gaussian's; a smaller mu is not enough."""
    e = mp.mpf(epsilon)

    def gaussian(a: mp.mpf, mu: mp.mpf) -> mp.mpf:
        z = mp.sqrt(2) * mp.erfinv(1 - 2 * a)
        return normal_cdf(z - mu)

    def response(a: mp.mpf) -> mp.mpf:
        return max(mp.mpf(0), 1 - mp.exp(e) * a, mp.exp(-e) * (1 - a))

    def laplace(a: mp.mpf) -> mp.mpf:
        if a < mp.exp(-e) / 2:
            return 1 - mp.exp(e) * a
        return mp.exp(-e) / (4 * a) if a <= mp.mpf(1) / 2 else mp.exp(-e) * (1 - a)

    for curve, mu in ((response, mu_of_pure_dp(epsilon)), (laplace, mu_of_laplace(epsilon))):
        points = [mp.mpf(a) for a in np.concatenate([np.geomspace(1e-12, 0.5, 60), 1 - np.geomspace(1e-9, 0.5, 40)])]
        assert all(gaussian(a, mp.mpf(mu) * (1 + mp.mpf("1e-12"))) <= curve(a) for a in points)
        meeting = normal_cdf(-mp.mpf(mu) / 2)
        assert gaussian(meeting, mp.mpf(mu) * (1 - mp.mpf("1e-9"))) > curve(meeting)


@pytest.mark.parametrize(("event", "relation", "largest"), SAMPLED_LAPLACE)
def test_gaussian_dp_sampled_laplace_is_the_best_of_both(
    event: Event, relation: NeighboringRelation, largest: mp.mpf
) -> None:
    assert isinstance(event.mechanism, Laplace)
    full = mp.exp(-mp.mpf(relation.sensitivity) / event.mechanism.noise_multiplier / 2) / 2
    mu = min(mu_through(full), mu_through(1 / (1 + mp.exp(largest))))
    assert 0 <= gaussian_dp_cost((event,), relation).amounts[0] - up(7 * mu**2) <= 1


# -- renyi_dp ---------------------------------------------------------------------------------------------------------


def test_renyi_gaussian_is_exact() -> None:
    expected = tuple(math.ceil(exact(order) * Fraction(8, 32) * NANO) for order in ORDERS)
    assert renyi_dp_cost((FULL,), ADD_REMOVE, ORDERS).amounts == expected
    assert renyi_dp_cost((FULL,), REPLACE, ORDERS).amounts == tuple(4 * amount for amount in expected)


@pytest.mark.parametrize(("relation", "pair"), [(ADD_REMOVE, "remove"), (SPECIAL, "remove"), (REPLACE, "replace")])
def test_renyi_sampled_gaussian_is_a_proved_bound_per_order(relation: NeighboringRelation, pair: str) -> None:
    event = Event(Gaussian(2.0), Poisson(0.05), 300)
    for order, amount in zip(ORDERS, renyi_dp_cost((event,), relation, ORDERS).amounts, strict=True):
        divergence = 300 * poisson_moment(2.0, 0.05, order - 1, pair) / (mp.mpf(order) - 1)
        assert divergence * NANO <= amount <= divergence * NANO * (1 + 2e-9) + 1
        assert amount < renyi_dp_cost((Event(Gaussian(2.0), count=300),), relation, (order,)).amounts[0]


@mp.workdps(40)
def symmetrized_moment(s: float, q: float, tilt: float) -> mp.mpf:
    """log of 1 + E[(L^(t+1) + L^(-t) - L - 1) 1{x >= 1/2}], L = 1 - q + q e^((2x-1)/(2 nu^2)), x ~ N(0, nu^2)."""
    nu, q_, t = mp.mpf(s) / 2, mp.mpf(q), mp.mpf(tilt)

    def integrand(x: mp.mpf) -> mp.mpf:
        ratio = 1 - q_ + q_ * mp.exp((2 * x - 1) / (2 * nu**2))
        return mp.npdf(x, 0, nu) * (ratio ** (t + 1) + ratio**-t - ratio - 1)

    points = [mp.mpf(1) / 2 + step * (t + 2 + 12 * nu) / 12 for step in range(13)]
    return mp.log1p(mp.quad(integrand, points))


@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_renyi_fixed_size_gaussian_is_a_proved_bound_per_order(relation: NeighboringRelation) -> None:
    event = Event(Gaussian(4.0), WithoutReplacement(5, 100), 300)
    unsampled = renyi_dp_cost((Event(Gaussian(4.0), count=300),), relation, ORDERS).amounts
    for order, amount, full in zip(ORDERS, renyi_dp_cost((event,), relation, ORDERS).amounts, unsampled, strict=True):
        divergence = 300 * symmetrized_moment(4.0, 0.05, order - 1) / (mp.mpf(order) - 1) * NANO
        assert amount <= full + 1 + full * 1e-11
        assert min(divergence, mp.mpf(full) - 1) <= amount <= divergence * (1 + mp.mpf("1e-6")) + 1


@mp.workdps(30)
def sampled_laplace_moment(b: float, q: float, tilt: float, pair: str) -> mp.mpf:
    """The larger direction's log-moment, piece by piece between the kinks."""
    scale, q_, t = mp.mpf(b), mp.mpf(q), mp.mpf(tilt)

    def law(x: mp.mpf, mean: int) -> mp.mpf:
        return mp.exp(-abs(x - mean) / scale) / (2 * scale)

    def mixed(x: mp.mpf) -> mp.mpf:
        return (1 - q_) * law(x, 0) + q_ * law(x, 1)

    def other(x: mp.mpf) -> mp.mpf:
        return law(x, 0) if pair == "remove" else (1 - q_) * law(x, 0) + q_ * law(x, -1)

    pieces = [-40 * scale - 1, -10 * scale - 1, -1, 0, 1, 10 * scale + 1, 40 * scale + 1]
    there = mp.quad(lambda x: mixed(x) ** (t + 1) * other(x) ** -t, pieces)
    back = mp.quad(lambda x: other(x) ** (t + 1) * mixed(x) ** -t, pieces)
    return mp.log(max(there, back))


@pytest.mark.parametrize(("relation", "pair"), [(ADD_REMOVE, "remove"), (SPECIAL, "remove"), (REPLACE, "replace")])
def test_renyi_sampled_laplace_is_a_proved_bound_per_order(relation: NeighboringRelation, pair: str) -> None:
    event = Event(Laplace(2.0), Poisson(0.2), 300)
    for order, amount in zip(ORDERS, renyi_dp_cost((event,), relation, ORDERS).amounts, strict=True):
        divergence = 300 * sampled_laplace_moment(2.0, 0.2, order - 1, pair) / (mp.mpf(order) - 1) * NANO
        assert divergence <= amount <= divergence * (1 + mp.mpf("1e-6")) + 1


@pytest.mark.parametrize("relation", [SPECIAL, REPLACE])
def test_renyi_fixed_size_laplace_is_between_what_is_attained_and_no_sampling(relation: NeighboringRelation) -> None:
    event, full = (
        Event(Laplace(4.0), sampling, 300) for sampling in (WithoutReplacement(20, 100), Event(PureDp(1)).sampling)
    )
    bounds = renyi_dp_cost((event,), relation, ORDERS).amounts
    unsampled = renyi_dp_cost((full,), relation, ORDERS).amounts
    # One direction of the pair at distance 2 under replace_one; Poisson's pair is attained with null records, too.
    scale = 2.0 if relation is REPLACE else 4.0
    for order, amount, most in zip(ORDERS, bounds, unsampled, strict=True):
        attained = 300 * sampled_laplace_moment(scale, 0.2, order - 1, "remove") / (mp.mpf(order) - 1) * NANO
        assert attained <= amount <= most


def test_renyi_laplace_is_exact() -> None:
    for relation, scale in ((ADD_REMOVE, 2.0), (REPLACE, 4.0)):
        e = mp.mpf("0.5")
        for order, amount in zip(
            ORDERS, renyi_dp_cost((Event(Laplace(scale), count=9),), relation, ORDERS).amounts, strict=True
        ):
            a = mp.mpf(order)
            inside = (a * mp.exp((a - 1) * e) + (a - 1) * mp.exp(-a * e)) / (2 * a - 1)
            assert 0 <= amount - up(9 * mp.log(inside) / (a - 1)) <= 1


def test_renyi_pure_is_exact() -> None:
    e = mp.mpf("0.7")
    cost = renyi_dp_cost((Event(PureDp(0.7), count=9),), REPLACE, ORDERS)
    for order, amount in zip(ORDERS, cost.amounts, strict=True):
        a, p = mp.mpf(order), mp.exp(e) / (1 + mp.exp(e))
        inside = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
        assert 0 <= amount - up(9 * mp.log(inside) / (a - 1)) <= 1


def test_renyi_zcdp_is_rho_times_order() -> None:
    expected = tuple(math.ceil(exact(order) * exact(0.3) * NANO) for order in ORDERS)
    assert renyi_dp_cost((Event(ZcDp(0.1), count=3),), REPLACE, ORDERS).amounts == expected


def test_renyi_stated_curve_is_exact_at_its_orders_and_interpolated_between() -> None:
    event = Event(RenyiDp((2.0, 8.0, 16.0), (0.1, 0.4, 0.5)), count=3)
    cost = renyi_dp_cost((event,), REPLACE, (1.5, 2.0, 4.0, 8.0, 12.0, 16.0, 16.5)).amounts
    assert (cost[1], cost[3], cost[5]) == (300_000_000, 1_200_000_000, 1_500_000_000)
    # Below the first order the divergence is not larger; (order - 1) times divergence is convex between two.
    assert cost[0] == pytest.approx(300_000_000, abs=2)
    assert cost[2] == pytest.approx(3 * (0.1 * 1 * 4 / 6 + 0.4 * 7 * 2 / 6) / 3 * NANO, abs=2)
    assert cost[4] == pytest.approx(3 * (0.4 * 7 * 4 / 8 + 0.5 * 15 * 4 / 8) / 11 * NANO, abs=2)
    assert cost[0] >= 300_000_000
    assert cost[6] == SATURATED
    million = Event(RenyiDp((4.0,), (1e-6,)), count=10**6)
    assert renyi_dp_cost((million,), REPLACE, (4.0,)).amounts == (NANO,)


def test_a_stated_curve_below_all_orders_of_the_budget_is_refused() -> None:
    event = Event(RenyiDp((2.0, 8.0), (0.1, 0.4)))
    with pytest.raises(NoCostInFilter, match=r"up to order 8, .* begin at 11") as caught:
        renyi_dp_cost((FULL, event), REPLACE, (11.0, 16.0))
    assert caught.value.pointer == ("events", 1, "mechanism")


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Event(Gaussian(2.0), Poisson(0.5), 3), ADD_REMOVE),
        (Event(Gaussian(2.0), Poisson(0.999999), 3), REPLACE),
        (Event(Gaussian(0.2), Poisson(0.5), 3), REPLACE),
        (Event(Gaussian(0.5), WithoutReplacement(99, 100), 3), SPECIAL),
        (Event(Laplace(0.5), Poisson(0.9), 3), ADD_REMOVE),
        (Event(Laplace(0.5), WithoutReplacement(99, 100), 3), SPECIAL),
    ],
)
def test_never_above_the_unsampled_cost(event: Event, relation: NeighboringRelation) -> None:
    """Also beyond the orders of which a sampled moment is tried, where an earlier version saturated."""
    orders = (1.001, 1.5, 7.3, 40.0, 40.5, MAX_BINOMIAL_ORDER - 0.5, MAX_BINOMIAL_ORDER + 1.0, 1e7)
    sampled = renyi_dp_cost((event,), relation, orders).amounts
    unsampled = renyi_dp_cost((Event(event.mechanism, count=3),), relation, orders).amounts
    # Near order 1 both are bounded by chords.
    assert all(
        0 < a <= b * (1 + 2e-2 * (order < 1.01)) + 1 + b * 1e-11
        for a, b, order in zip(sampled, unsampled, orders, strict=True)
    )
    assert all(amount < SATURATED for amount in sampled)
    assert unsampled[-1] * 0.4 < sampled[-1]


# -- across the table -------------------------------------------------------------------------------------------------


def test_costs_saturate_instead_of_overflowing() -> None:
    huge = renyi_dp_cost((Event(Gaussian(0.05), Poisson(0.5), 10**8),), REPLACE, (1000.0, 1e5))
    assert huge.amounts == (SATURATED, SATURATED)
    assert zcdp_cost((Event(ZcDp(1e6), count=10**8),), REPLACE).amounts == (SATURATED,)
    assert gaussian_dp_cost((Event(Gaussian(1e-3), count=10**8),), REPLACE).amounts == (SATURATED,)
    assert pure_dp_cost((Event(PureDp(1e6), count=10**8),), REPLACE).amounts == (SATURATED,)
    assert approximate_dp_cost((Event(Gaussian(1e-3), count=10**8),), REPLACE, 1e-18).amounts == (SATURATED, 1)


def test_no_cost_is_a_tempting_one() -> None:
    """By value: no cost of a sampled Gaussian is the scaled-by-q-squared or the central-limit number."""
    for s, q, count in ((5.346, 0.02, 5000), (2.0, 0.1, 100), (0.7, 0.001, 20000), (20.0, 0.3, 2000)):
        event = Event(Gaussian(s), Poisson(q), count)
        tempting_rho = [
            q * q * count / (2 * s * s),
            q * count / (2 * s * s),
            q * q * count * math.expm1(1 / s**2) / 2,
            2 * q * q * count * math.expm1(4 / s**2),
        ]
        for relation in NeighboringRelation:
            rho = zcdp_cost((event,), relation).amounts[0] / NANO
            mu_squared = gaussian_dp_cost((event,), relation).amounts[0] / NANO
            assert rho == pytest.approx(relation.sensitivity**2 * count / (2 * s * s), rel=1e-6)
            assert mu_squared == pytest.approx(relation.sensitivity**2 * count / (s * s), rel=1e-6)
            assert all(abs(rho / wrong - 1) > 0.1 for wrong in tempting_rho)
            assert all(abs(mu_squared / (2 * wrong) - 1) > 0.1 for wrong in tempting_rho)
            for order in (200.0, 2000.0):
                divergence = renyi_dp_cost((event,), relation, (order,)).amounts[0] / NANO
                assert divergence > 1.05 * order * q * q * count / (2 * s * s)


def test_the_two_tempting_numbers_of_the_reference_plan_are_nowhere() -> None:
    """Noise 5.346, probability 0.02, 5000 steps: epsilon 1 at delta 1e-5."""
    s, q, count = 5.346, 0.02, 5000
    scaled_rho = q * q * count / (2 * s * s)
    central_limit_mu = q * math.sqrt(count * math.expm1(1 / s**2))
    assert scaled_rho == pytest.approx(0.035, abs=1e-3)
    assert zcdp_cost((SAMPLED,), ADD_REMOVE).amounts[0] / NANO == pytest.approx(87.474, abs=1e-2)
    wrong = [scaled_rho, 2 * scaled_rho, math.sqrt(2 * scaled_rho), central_limit_mu, central_limit_mu**2]
    from_mu = epsilon_of_gaussian(central_limit_mu, 1e-5, upward=True)
    for relation in NeighboringRelation:
        returned = [cost_in(kind, [SAMPLED], relation, 1e-5).amounts[0] / NANO for kind in KINDS[1:4]]
        assert all(abs(value / number - 1) > 0.05 for value in returned for number in wrong)
        assert returned[0] != pytest.approx(from_mu, rel=1e-4)
    assert gaussian_dp_cost((SAMPLED,), ADD_REMOVE).amounts[0] / NANO == pytest.approx(174.95, abs=1e-2)


def test_one_evaluation_of_the_moments_serves_all_orders_and_all_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(event: Event, relation: NeighboringRelation) -> object:
        asked.append(1)
        return loss_of(event, relation)

    monkeypatch.setattr("accounting.filter_costs.renyi_dp.loss_of", counted)
    events = tuple(Event(Gaussian(3.0 + index / 7), Poisson(0.0123), count) for index in range(5) for count in (1, 9))
    first = renyi_dp_cost(events, ADD_REMOVE, ORDERS)
    assert len(asked) == 2 * 5  # with and without sampling
    assert renyi_dp_cost(events, ADD_REMOVE, ORDERS) == first
    assert len(asked) == 2 * 5
