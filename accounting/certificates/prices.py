"""Certificates of charges in Gaussian budgets: a list is within a Gaussian that may fail, and within its pure epsilon.

The inequality holds at every epsilon. Finitely many nodes prove it, as docs/concepts/gaussian_filter.md has it; each of
them is a statement about delta at one epsilon, whose forms serve as many neighbouring nodes as they can.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any

from accounting.canonical import Json, canonical_text, sha256_hex
from accounting.certificates.answers import WIDENED, CertifiedEnd
from accounting.certificates.certificate import AT_MOST, FORMAT, Certificate, NoCertificate, Statement, bytes_of
from accounting.certificates.prover import verifier, witnesses
from accounting.events import Event
from accounting.filters.gaussian_cover import failure_of, nodes_of_cover
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, Amounts

#: Witnesses of one node that are tried.
_MOST_TRIED = 4


@dataclass(frozen=True, slots=True)
class PriceStatement:
    """A statement about the profile of ``events``: at every epsilon it is at most that of a failing Gaussian.

    Attributes:
        claim: `AT_MOST`, or `MORE_THAN`: at some epsilon it is more in some direction.
        mu_squared, failure: Of the failing Gaussian, in nano- and in atto-units.
        pure: What the pure epsilons add up to at most, in nano-units; None states nothing of them.
    """

    claim: str
    events: tuple[Event, ...]
    relation: NeighboringRelation
    mu_squared: int
    failure: int
    pure: int | None = None

    def to_json(self) -> dict[str, Json]:
        """Return the statement as the certificate holds it."""
        stated: dict[str, Json] = {
            "atto_failure": self.failure,
            "claim": self.claim,
            "events": [event.to_json() for event in self.events],
            "nano_mu_squared": self.mu_squared,
            "relation": self.relation.value,
        }
        return stated if self.pure is None else stated | {"nano_pure_epsilon": self.pure}


def price_bytes(stated: PriceStatement, precision: int, groups: Sequence[dict[str, Json]]) -> bytes:
    """Return the canonical bytes of a price with groups of nodes; without any, the steps' own mu prove it."""
    witness: dict[str, Json] = {"precision": precision}
    if groups:
        witness["nodes"] = list(groups)
    return canonical_text({"format": FORMAT, "statement": stated.to_json(), "witness": witness}).encode()


def certify_price(
    events: Sequence[Event], relation: NeighboringRelation, amounts: Amounts, rate: Fraction | None = None
) -> Certificate:
    """Return a certificate of what a Gaussian budget charges for a list, which the verifier has verified.

    Args:
        events: What is charged.
        relation: Its neighbouring relation.
        amounts: mu squared in nano-units; in an approximate_gaussian_dp budget also the failure in atto-units and the
            pure epsilon in nano-units.
        rate: The delta of failures per unit of mu squared, on which that budget's prices depend.

    Raises:
        NoCertificate: The amounts are infinite, the verifier has no theorem for some event, its bounds do not decide,
            or it is not installed.

    Guarantees: certificates_are_verified: nothing is returned that the verifier did not verify.
    """
    amount, failure, pure = (*amounts, 0, SATURATED)[:3] if len(amounts) == 1 else amounts
    if not 0 < amount < SATURATED:
        raise NoCertificate("no finite mu squared is charged")
    check = verifier()
    stated = PriceStatement(
        AT_MOST, tuple(events), NeighboringRelation(relation), amount, failure, None if pure >= SATURATED else pure
    )
    precision, groups = 128, list[dict[str, Json]]()
    if failure:
        if rate is None or failure != failure_of(amount, rate):
            raise NoCertificate("a stated delta is part of the failure, and no certificate covers stated deltas yet")
        precision, groups = _groups(stated, rate)
    data = price_bytes(stated, precision, groups)
    verdict = check(data)
    if verdict.verdict != "verified":
        raise NoCertificate(f"the verifier says {verdict.verdict}: {verdict.reason}")
    hashed = sha256_hex(canonical_text(stated.to_json()).encode())
    return Certificate(data, verdict.sha256, hashed, verdict.verdict, verdict.assumed, verdict.checked_with)


def certified_price(
    events: Sequence[Event], relation: NeighboringRelation, amounts: Amounts, rate: Fraction | None = None
) -> CertifiedEnd:
    """Return the certificate of `certify_price`, or why there is none."""
    try:
        return CertifiedEnd(0.0, 0.0, certify_price(events, relation, amounts, rate))
    except NoCertificate as error:
        return CertifiedEnd(0.0, 0.0, None, str(error))


def _groups(stated: PriceStatement, rate: Fraction) -> tuple[int, list[dict[str, Json]]]:
    """Return the bits and the groups of nodes that prove a cover.

    Forms are chosen for the smallest delta of a group: they resolve the larger ones before it.
    """
    nodes = nodes_of_cover(stated.events, stated.relation, rate, stated.mu_squared)
    if not nodes:
        raise NoCertificate("the nodes do not prove the cover")
    precision = 0
    groups: list[tuple[Any, list[float], list[float]]] = []
    forms: tuple[int, Any] = (0, None)
    for epsilon, delta in reversed(nodes):
        at = epsilon
        node = Statement(AT_MOST, stated.events, stated.relation, epsilon, delta)
        if forms[1] is None or verifier()(bytes_of(node, *forms)).verdict != "verified":
            at, forms = _forms(node)
            precision = max(precision, forms[0])
            groups.append((forms[1], [], []))
        groups[-1][1].insert(0, at)
        groups[-1][2].insert(0, delta)
    return precision, [
        {"epsilons": epsilons, "deltas": deltas, "directions": directions}
        for directions, epsilons, deltas in reversed(groups)
    ]


def _forms(node: Statement) -> tuple[float, tuple[int, Any]]:
    """Return the epsilon of a node, at most a millionth wider than asked, with the bits and the forms that prove it."""
    reason = "no form of proof fits these events"
    for each in (node, replace(node, epsilon=node.epsilon * (1.0 + WIDENED))):
        for data in islice(witnesses(each), _MOST_TRIED):
            verdict = verifier()(data)
            if verdict.verdict == "verified":
                found = json.loads(data)["witness"]
                return each.epsilon, (int(found["precision"]), found["directions"])
            reason = verdict.reason
    raise NoCertificate(f"at epsilon {node.epsilon!r}: {reason}")
