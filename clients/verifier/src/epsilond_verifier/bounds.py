"""Defines bounds of delta. Upper and lower bounds have different types, so that they cannot be confused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NewType

from flint import acb, arb


class CannotCheck(Exception):
    """The statement cannot be judged, because the certificate is malformed or its numbers prove too little."""


def refuse_unless(condition: object, reason: str) -> None:
    """Raise `CannotCheck` unless ``condition`` is true. A comparison of balls is false if they overlap or are NaN."""
    if not bool(condition):
        raise CannotCheck(reason)


def require(condition: object, what: str) -> None:
    """Raise `CannotCheck` unless a comparison of balls makes ``what`` certain."""
    refuse_unless(condition, f"the numbers do not prove that {what}")


Above = NewType("Above", arb)
Below = NewType("Below", arb)
#: The ball of all real numbers, so that every comparison with it is uncertain.
_NOTHING = arb(0, "inf")
_NOT_ABOVE, _NOT_BELOW = Above(_NOTHING), Below(_NOTHING)


@dataclass(frozen=True, slots=True)
class Enclosure:
    """The proved bounds in one direction: delta is at most some number in ``above``, and at least some number in
    ``below``."""

    above: Above = _NOT_ABOVE
    below: Below = _NOT_BELOW

    @classmethod
    def of(cls, delta: arb) -> Enclosure:
        """Return both bounds from one ball that contains delta."""
        return cls(Above(delta), Below(delta))

    def wider(self, above: arb, below: arb) -> Enclosure:
        """Return the bounds of a delta that may be larger by ``above`` and smaller by ``below``."""
        return Enclosure(Above(self.above + above), Below(self.below - below))

    def is_at_most(self, delta: arb) -> bool:
        """Return whether all of the upper ball is certainly at most ``delta``."""
        return bool(self.above <= delta)

    def is_more_than(self, delta: arb) -> bool:
        """Return whether all of the lower ball is certainly above ``delta``."""
        return bool(self.below > delta)


@dataclass(frozen=True, slots=True)
class Node:
    """A value e of epsilon, with one proof for each direction that encloses delta there.

    ``most`` is the upper bound that the proofs must give. If delta is above ``least``, the statement is false.
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
