"""This module certifies both ends of an answer, as narrowly as the verifier allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.accountant import epsilon_for_delta
from accounting.certificates.certificate import AT_MOST, MORE_THAN, Certificate, NoCertificate
from accounting.certificates.prover import certify
from accounting.events import Event
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation

#: If the end that the engine found cannot be certified, an end that is wider by this relative amount is tried.
WIDENED = 1e-6


@dataclass(frozen=True, slots=True)
class CertifiedEnd:
    """One end of an interval, with its certificate if there is one.

    Attributes:
        epsilon, delta: The numbers of the statement.
        certificate: The certificate; None if there is none, and then `reason` says why.
    """

    epsilon: float
    delta: float
    certificate: Certificate | None
    reason: str = ""


def certify_epsilon(
    events: Sequence[Event], relation: NeighboringRelation, delta: float, value: Interval, group_size: int = 1
) -> tuple[CertifiedEnd, CertifiedEnd]:
    """Return certificates of the upper and of the lower end of epsilon at ``delta``, for groups of this many
    records."""
    upper = [(value.upper, delta), (value.upper * (1.0 + WIDENED), delta)]
    lower = [(value.lower, delta), (value.lower * (1.0 - WIDENED), delta)]
    above = _first(AT_MOST, events, relation, upper, group_size=group_size)
    return above, _first(MORE_THAN, events, relation, lower, value.lower, group_size)


def certify_upper(
    events: Sequence[Event], relation: NeighboringRelation, delta: float, most: float | None = None
) -> CertifiedEnd:
    """Return a certificate of an upper bound on epsilon at ``delta``.

    Args:
        events: What is accounted.
        relation: Its neighbouring relation.
        delta: The delta at which epsilon is stated.
        most: The epsilon to state. If None, the upper end that the engine finds is stated.

    Raises:
        AccountingError: If there is no such epsilon.
    """
    if most is not None:
        return _first(AT_MOST, events, relation, [(most, delta)])
    upper = epsilon_for_delta(events, relation, delta).value.upper
    return _first(AT_MOST, events, relation, [(upper, delta), (upper * (1.0 + WIDENED), delta)])


def certify_delta(
    events: Sequence[Event], relation: NeighboringRelation, epsilon: float, value: Interval, group_size: int = 1
) -> tuple[CertifiedEnd, CertifiedEnd]:
    """Return certificates of the upper and of the lower end of delta at ``epsilon``; `certify_epsilon` does this for
    epsilon.
    """
    upper = [(epsilon, value.upper), (epsilon, min(1.0, value.upper * (1.0 + WIDENED)))]
    lower = [(epsilon, value.lower), (epsilon, value.lower * (1.0 - WIDENED))]
    above = _first(AT_MOST, events, relation, upper, group_size=group_size)
    return above, _first(MORE_THAN, events, relation, lower, value.lower, group_size)


def _first(
    claim: str,
    events: Sequence[Event],
    relation: NeighboringRelation,
    stated: Sequence[tuple[float, float]],
    positive: float = 1.0,
    group_size: int = 1,
) -> CertifiedEnd:
    """Return the certificate of the first statement that can be certified, or the reason why no statement can."""
    reason = "this end is 0, and no number is lower" if positive <= 0.0 else "this end is infinite"
    for epsilon, delta in stated:
        if positive > 0.0 and math.isfinite(epsilon):
            try:
                return CertifiedEnd(epsilon, delta, certify(claim, events, relation, epsilon, delta, group_size))
            except NoCertificate as error:
                reason = str(error)
    return CertifiedEnd(*stated[0], None, reason)
