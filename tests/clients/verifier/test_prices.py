"""A price's chords, pure epsilons and own mu, on nodes that are made by hand: what is false by little is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from epsilond_verifier.bounds import CannotCheck, Node
from epsilond_verifier.laws import Atoms, Laplace, Normal, Step
from epsilond_verifier.prices import Price
from flint import arb, fmpq

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


def refused(price: Price, given: list[Node], said: str) -> None:
    with pytest.raises(CannotCheck, match=said):
        price.require_chords(given)


def test_chords_below_a_tangent_are_accepted() -> None:
    PRICE.require_chords(nodes(EPSILONS, BELOW))
    PRICE.require_chords(nodes([0.0], [0.0009]))


@pytest.mark.parametrize("at", range(len(EPSILONS) - 1))
def test_a_bound_above_the_curve_is_refused(at: int) -> None:
    bound = delta(EPSILONS[at]) * (1 + 1e-9)
    bounds = [max(each, bound) for each in BELOW[:at]] + [bound, *BELOW[at + 1 :]]
    refused(PRICE, nodes(EPSILONS, bounds), "is covered")


def test_nodes_that_are_all_below_the_curve_may_have_a_chord_above_it() -> None:
    """F is below the chord of its own values at 0 and 3.5, by far."""
    far = [0.0, 3.5]
    bounds = [delta(0.0) * 0.999, 0.0009]
    middle = math.log((1 + math.exp(3.5)) / 2)
    assert (bounds[0] + bounds[1]) / 2 > delta(middle)
    refused(PRICE, nodes(far, bounds), "the chord from 0 on is covered")


def test_a_chord_is_decided_by_the_tangent_with_its_slope() -> None:
    """From 1.25 to 1.75: a tangent moved down by a billionth is accepted, and one moved up is refused."""
    place = 1.5
    slope = -(1 - 0.001) * normal_cdf(-place - 0.5)
    tangent = [delta(place) + slope * (math.exp(at) - math.exp(place)) for at in (1.25, 1.75)]
    epsilons = [0.0, 1.25, 1.75, 1.7501, *EPSILONS[4:]]
    after = [0.5 * delta(1.7501), *BELOW[4:]]
    below, above = ([tangent[0] * 1.01, *(bound + move for bound in tangent), *after] for move in (-1e-9, 1e-9))
    PRICE.require_chords(nodes(epsilons, below))
    refused(PRICE, nodes(epsilons, above), r"the chord from 1\.25000000 on is covered")


def test_the_last_bound_is_at_most_the_failure() -> None:
    PRICE.require_chords(nodes(EPSILONS, [*BELOW[:-1], 0.001 * (1 - 1e-12)]))
    refused(PRICE, nodes(EPSILONS, [*BELOW[:-1], 0.001 * (1 + 1e-12)]), "the last node's bound")
    refused(replace(PRICE, d=arb(0)), nodes(EPSILONS, BELOW), "the last node's bound")


def test_nodes_begin_at_0_and_are_in_order() -> None:
    refused(PRICE, nodes(EPSILONS[1:], BELOW[1:]), "the first node is at epsilon 0")
    refused(PRICE, nodes([0.0, 1.0, 0.5, *EPSILONS[3:]], BELOW), "the nodes' epsilons increase")
    refused(PRICE, nodes([0.0, 0.5, 0.5, *EPSILONS[3:]], BELOW), "the nodes' epsilons increase")
    # A bound that rises has no tangent of its slope.
    refused(PRICE, nodes(EPSILONS, [BELOW[0], BELOW[2], BELOW[1], *BELOW[3:]]), "is covered")
    refused(PRICE, nodes(EPSILONS, [math.nan, *BELOW[1:]]), "not certain")


def test_pure_epsilons_add_up_in_both_directions() -> None:
    one = ((arb("0.9"), arb(1)), (arb("0.1"), arb(-3)))
    other = ((arb("0.9"), arb(-1)), (arb("0.1"), arb(3)))
    steps = [Step(Laplace(arb("0.5")), 2, ""), Step(Atoms(one, other), 1, "")]
    replace(PRICE, pure=arb(4) + arb("1e-9")).require_pure(steps)
    for below in (arb("3.999"), arb("2.5")):
        with pytest.raises(CannotCheck, match="pure epsilons"):
            replace(PRICE, pure=below).require_pure(steps)
    with pytest.raises(CannotCheck, match="no bound"):
        replace(PRICE, pure=arb(4)).require_pure([Step(Normal(arb(1)), 1, "")])


def test_rational_squares_of_full_batches_add_up_exactly() -> None:
    steps = [Step(Normal(arb(fmpq(1, 3)), fmpq(1, 3)), 3, "")]
    PRICE.require_own(steps)
    with pytest.raises(CannotCheck, match="squares of mu"):
        replace(PRICE, exact=fmpq(10**9 - 1, 10**9)).require_own(steps)
