"""A price's chords, pure epsilons and own mu, on nodes that are made by hand: what is false by little is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from epsilond_verifier.bounds import CannotCheck, Node
from epsilond_verifier.laws import Atoms, Laplace, Law, Normal, Poisson, Step
from epsilond_verifier.prices import Price
from epsilond_verifier.reading import Reader
from flint import arb, fmpq

from accounting.losses.gaussian_mu import mu_of_laplace, mu_of_pure_dp

#: mu = 1 that fails with 1e-3.
PRICE = Price(fmpq(1), arb("0.001"), None, "")
EPSILONS = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]


def nodes(epsilons: Sequence[float], deltas: Sequence[float]) -> list[Node]:
    return [Node(arb(e), arb(delta), arb(1), ()) for e, delta in zip(epsilons, deltas, strict=True)]


def delta(epsilon: float) -> float:
    return float(PRICE.delta(arb(epsilon)))


def normal_cdf(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


#: A profile well below F, with the failure itself at last.
BELOW = [0.5 * delta(epsilon) for epsilon in EPSILONS[:-1]] + [0.0009]


def assert_refused(price: Price, given: list[Node], said: str) -> None:
    with pytest.raises(CannotCheck, match=said):
        price.require_chords(given)


def test_chords_below_a_tangent_are_accepted() -> None:
    PRICE.require_chords(nodes(EPSILONS, BELOW))
    PRICE.require_chords(nodes([0.0], [0.0009]))
    assert_refused(PRICE, nodes([0.0], [1.0]), "at most the stated failure")


@pytest.mark.parametrize("at", range(len(EPSILONS) - 1))
def test_a_bound_above_the_curve_is_refused(at: int) -> None:
    bound = delta(EPSILONS[at]) * (1 + 1e-9)
    bounds = [max(each, bound) for each in BELOW[:at]] + [bound, *BELOW[at + 1 :]]
    assert_refused(PRICE, nodes(EPSILONS, bounds), "the price holds from e")


def test_nodes_that_are_all_below_the_curve_may_have_a_chord_above_it() -> None:
    """F is below the chord of its own values at 0 and 3.5, by far."""
    far = [0.0, 3.5]
    bounds = [delta(0.0) * 0.999, 0.0009]
    middle = math.log((1 + math.exp(3.5)) / 2)
    assert (bounds[0] + bounds[1]) / 2 > delta(middle)
    assert_refused(PRICE, nodes(far, bounds), "the price holds from e = 0 on")


@pytest.mark.parametrize("mu", [1, 2])
def test_a_chord_is_decided_by_the_tangent_with_its_slope(mu: int) -> None:
    """From 1.25 to 1.75: a tangent moved down by a billionth is accepted, and one moved up is refused."""
    price, place = replace(PRICE, exact=fmpq(mu * mu)), 1.5
    curve = [float(price.delta(arb(epsilon))) for epsilon in (place, 1.7501, *EPSILONS[4:-1])]
    slope = -(1 - 0.001) * normal_cdf(-place / mu - mu / 2)
    tangent = [curve[0] + slope * (math.exp(at) - math.exp(place)) for at in (1.25, 1.75)]
    epsilons = [0.0, 1.25, 1.75, 1.7501, *EPSILONS[4:]]
    after = [*(0.5 * each for each in curve[1:]), 0.0009]
    below, above = ([tangent[0] * 1.01, *(bound + move for bound in tangent), *after] for move in (-1e-9, 1e-9))
    price.require_chords(nodes(epsilons, below))
    assert_refused(price, nodes(epsilons, above), r"the price holds from e = 1\.25000000 on")


def test_the_last_bound_is_at_most_the_failure() -> None:
    PRICE.require_chords(nodes(EPSILONS, [*BELOW[:-1], 0.001 * (1 - 1e-12)]))
    assert_refused(PRICE, nodes(EPSILONS, [*BELOW[:-1], 0.001 * (1 + 1e-12)]), "the last node's delta")
    assert_refused(replace(PRICE, d=arb(0)), nodes(EPSILONS, BELOW), "the last node's delta")


def test_nodes_begin_at_0_and_are_in_order() -> None:
    assert_refused(PRICE, nodes(EPSILONS[1:], BELOW[1:]), "the epsilon of the first node is 0")
    assert_refused(PRICE, nodes([0.0, 1.0, 0.5, *EPSILONS[3:]], BELOW), "the epsilons of the nodes increase")
    assert_refused(PRICE, nodes([0.0, 0.5, 0.5, *EPSILONS[3:]], BELOW), "the epsilons of the nodes increase")
    # A bound that rises has no tangent of its slope.
    assert_refused(PRICE, nodes(EPSILONS, [BELOW[0], BELOW[2], BELOW[1], *BELOW[3:]]), "the price holds from e")
    assert_refused(PRICE, nodes(EPSILONS, [math.nan, *BELOW[1:]]), "do not prove")


def test_pure_epsilons_add_up_in_both_directions() -> None:
    one = ((arb("0.9"), arb(1)), (arb("0.1"), arb(-3)))
    other = ((arb("0.9"), arb(-1)), (arb("0.1"), arb(3)))
    steps = [Step(Laplace(arb("0.5")), 2, ""), Step(Atoms(one, other), 1, "")]
    replace(PRICE, pure=arb(4) + arb("1e-9")).require_pure(steps)
    for below in (arb("3.999"), arb("2.5")):
        with pytest.raises(CannotCheck, match="stated pure epsilon"):
            replace(PRICE, pure=below).require_pure(steps)
    with pytest.raises(CannotCheck, match="no bound"):
        replace(PRICE, pure=arb(4)).require_pure([Step(Normal(arb(1)), 1, "")])


def test_the_curve_is_that_of_a_gaussian_that_fails() -> None:
    """delta_G is 2 Phi(mu/2) - 1 at 0; at mu = 2 and e = 1 it is Phi(1/2) - e Phi(-3/2)."""
    price = Price(fmpq(4), arb("0.25"), None, "")
    for e, gaussian in ((0, 2 * normal_cdf(1) - 1), (1, normal_cdf(0.5) - math.e * normal_cdf(-1.5))):
        assert abs(float(price.delta(arb(e))) - (0.25 + 0.75 * gaussian)) < 1e-14


PURE = ((arb("0.9"), arb(1)), (arb("0.1"), arb(-1)))


@pytest.mark.parametrize(
    ("law", "mu"),
    [
        (Laplace(arb(1)), mu_of_laplace(1.0)),
        (Laplace(arb(5)), mu_of_laplace(5.0)),
        (Atoms(PURE, PURE), mu_of_pure_dp(1.0)),
        (Normal(arb("2.25")), 1.5),
    ],
)
def test_a_step_has_the_mu_of_its_total_variation(law: Law, mu: float) -> None:
    """The engine finds it from the trade-off function's corner. Two such steps have twice its square."""
    steps = [Step(law, 1, ""), Step(law, 1, "")]
    m = round(2 * mu * mu * 10**12)
    replace(PRICE, exact=fmpq(m + 20, 10**12)).require_own(steps)
    for less in (fmpq(m - 20, 10**12), fmpq(m, 2 * 10**12)):
        with pytest.raises(CannotCheck, match="the squares of mu add up to at most the stated one"):
            replace(PRICE, exact=less).require_own(steps)


@pytest.mark.parametrize(
    "law", [Atoms(PURE, ((arb("0.5"), arb(-1)), (arb("0.5"), arb(1)))), Poisson(arb(5), arb("0.1"))]
)
def test_of_sampled_steps_and_of_answers_against_a_null_record_no_mu_is_known(law: Law) -> None:
    with pytest.raises(CannotCheck, match="no Gaussian DP guarantee"):
        replace(PRICE, exact=fmpq(10**6)).require_own([Step(law, 1, "")])


def test_a_price_is_read_in_its_units() -> None:
    stated = {"nano_mu_squared": "2500000000", "atto_failure": "5000000000000000"}
    price = Price.read(Reader(stated, "statement"))
    assert (price.exact, price.pure) == (fmpq(5, 2), None)
    assert price.d.overlaps(arb(fmpq(5, 1000)))
    assert price.spelled == "mu squared 2500000000e-9 with failure 5000000000000000e-18"
    price = Price.read(Reader({**stated, "nano_pure_epsilon": "750000000"}, "statement"))
    assert price.pure is not None
    assert price.pure == arb(fmpq(3, 4))
    assert price.spelled.endswith(" and pure epsilon 750000000e-9")
    for key, least in (("nano_mu_squared", 1), ("atto_failure", 0), ("nano_pure_epsilon", 0)):
        for value in (str(least), str(10**18)):
            Price.read(Reader({**stated, "nano_pure_epsilon": "1", key: value}, "statement"))
        for value in ("-1", str(10**18 + 1)):
            with pytest.raises(CannotCheck, match=key):
                Price.read(Reader({**stated, "nano_pure_epsilon": "1", key: value}, "statement"))
    with pytest.raises(CannotCheck, match="nano_mu_squared"):
        Price.read(Reader({**stated, "nano_mu_squared": "0"}, "statement"))


def test_a_price_asks_for_its_pure_epsilon_and_for_own_mu_where_there_are_no_nodes() -> None:
    steps = [Step(Atoms(PURE, PURE), 1, "")]
    price = replace(PRICE, exact=fmpq(2), pure=arb(1))
    price.require(steps, [])
    price.require(steps, nodes(EPSILONS, BELOW))
    for given in ([], nodes(EPSILONS, BELOW)):
        with pytest.raises(CannotCheck, match="stated pure epsilon"):
            replace(price, pure=arb("0.999")).require(steps, given)
    with pytest.raises(CannotCheck, match="squares of mu"):
        replace(price, exact=fmpq(1, 2)).require(steps, [])
    with pytest.raises(CannotCheck, match="the first node"):
        price.require(steps, nodes(EPSILONS[1:], BELOW[1:]))


def test_rational_squares_of_full_batches_add_up_exactly() -> None:
    steps = [Step(Normal(arb(fmpq(1, 3)), fmpq(1, 3)), 3, "")]
    PRICE.require_own(steps)
    with pytest.raises(CannotCheck, match="squares of mu"):
        replace(PRICE, exact=fmpq(10**9 - 1, 10**9)).require_own(steps)
