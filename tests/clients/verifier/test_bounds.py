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
    assert not Above(ball).is_at_most(DELTA)
    assert not Below(ball).is_more_than(DELTA)
    for condition in (ball <= DELTA, ball > DELTA):
        with pytest.raises(CannotCheck, match="not certain that it is so"):
            require(condition, "it is so")


def test_a_ball_that_decides_decides_one_side() -> None:
    low, high = Enclosure.of(arb(0.25, 0.125)), Enclosure.of(arb(0.75, 0.125))
    assert low.above is not None
    assert low.below is not None
    assert high.above is not None
    assert high.below is not None
    assert (low.above.is_at_most(DELTA), low.below.is_more_than(DELTA)) == (True, False)
    assert (high.above.is_at_most(DELTA), high.below.is_more_than(DELTA)) == (False, True)
    # Exactly delta is at most delta, and not more.
    assert (Above(DELTA).is_at_most(DELTA), Below(DELTA).is_more_than(DELTA)) == (True, False)
