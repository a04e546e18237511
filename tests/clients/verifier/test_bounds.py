"""A bound decides only where its whole ball does."""

from __future__ import annotations

import pytest
from epsilond_verifier.bounds import Above, Below, CannotCheck, Enclosure, require
from flint import arb

DELTA = arb(1) / 2
#: Balls that are on both sides of delta, or on neither, or that only touch it from the wrong side.
UNDECIDED = [arb(0.5, 0.25), arb(0.375, 0.1875), arb(0.625, 0.1875), arb("nan"), arb(0.0, "inf")]


@pytest.mark.parametrize("ball", UNDECIDED, ids=str)
def test_a_ball_that_does_not_decide_decides_nothing(ball: arb) -> None:
    assert not Enclosure.of(ball).is_at_most(DELTA)
    assert not Enclosure.of(ball).is_more_than(DELTA)
    for condition in (ball <= DELTA, ball > DELTA):
        with pytest.raises(CannotCheck, match="the numbers do not prove that it is so"):
            require(condition, "it is so")


def test_a_ball_that_decides_decides_one_side() -> None:
    low, high = Enclosure.of(arb(0.25, 0.125)), Enclosure.of(arb(0.75, 0.125))
    assert (low.is_at_most(DELTA), low.is_more_than(DELTA)) == (True, False)
    assert (high.is_at_most(DELTA), high.is_more_than(DELTA)) == (False, True)
    # Exactly delta is at most delta, and not more.
    assert (Enclosure.of(DELTA).is_at_most(DELTA), Enclosure.of(DELTA).is_more_than(DELTA)) == (True, False)


def test_a_side_without_a_proof_decides_nothing_however_it_is_widened() -> None:
    for below, above in ((0, 0), (-2, -2), (3, 3)):
        above_alone = Enclosure(above=Above(arb(0))).wider(arb(0), arb(below))
        below_alone = Enclosure(below=Below(arb(1))).wider(arb(above), arb(0))
        assert (above_alone.is_at_most(DELTA), above_alone.is_more_than(arb(-100))) == (True, False)
        assert (below_alone.is_at_most(arb(100)), below_alone.is_more_than(DELTA)) == (False, True)
        assert not Enclosure().wider(arb(above), arb(below)).is_at_most(arb(100))
