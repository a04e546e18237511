"""Bounds of delta. A bound has a side: one that holds from above can never be read as one from below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NewType

from flint import acb, arb


class CannotCheck(Exception):
    """The statement cannot be judged: the certificate is malformed, or its numbers do not decide."""


def refuse_unless(condition: object, reason: str) -> None:
    """Go on only if ``condition`` is true. A comparison of balls that overlap, or are NaN, is false."""
    if not bool(condition):
        raise CannotCheck(reason)


def require(condition: object, what: str) -> None:
    """Go on only if ``what`` is certain, by balls."""
    refuse_unless(condition, f"not certain that {what}")


Above = NewType("Above", arb)
Below = NewType("Below", arb)
#: The ball of all numbers, with which no comparison is certain.
_NOTHING = arb(0, "inf")
_NOT_ABOVE, _NOT_BELOW = Above(_NOTHING), Below(_NOTHING)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What is proved in one direction: delta is at most some number of ``above``, and at least some of ``below``."""

    above: Above = _NOT_ABOVE
    below: Below = _NOT_BELOW

    @classmethod
    def of(cls, delta: arb) -> Enclosure:
        """Return both sides, of a ball that contains delta."""
        return cls(Above(delta), Below(delta))

    def wider(self, above: arb, below: arb) -> Enclosure:
        """Return bounds of what is at most ``above`` more and ``below`` less."""
        return Enclosure(Above(self.above + above), Below(self.below - below))

    def is_at_most(self, delta: arb) -> bool:
        """Return whether the whole ball above is certainly at most ``delta``."""
        return bool(self.above <= delta)

    def is_more_than(self, delta: arb) -> bool:
        """Return whether the whole ball below is certainly above ``delta``."""
        return bool(self.below > delta)


@dataclass(frozen=True, slots=True)
class Node:
    """A place e with proofs, one for each direction, that enclose delta there.

    ``most``: what they are to prove from above. ``least``: the statement is false where delta is more.
    """

    e: arb
    most: arb
    least: arb
    proofs: Sequence[Callable[[arb], Enclosure]]


def normal_cdf(x: arb) -> arb:
    """Return P(N(0, 1) <= x)."""
    return (-x / arb(2).sqrt()).erfc() / 2


def normal_density(x: acb, s: arb) -> acb:
    """Return the density of N(0, s^2), continued to complex x."""
    return (-x * x / (2 * s * s)).exp() / (s * (2 * arb.pi()).sqrt())


def kernel(x: arb) -> arb:
    """Return B(x) = x^x / (1+x)^(1+x), the largest value of e^(-xy) (1 - e^-y) over y > 0, for x > 0."""
    return (x * x.log() - (1 + x) * (1 + x).log()).exp()
