"""This module makes certificates of charges in Gaussian budgets.

A charge states that the profile of a list of events is at most that of a Gaussian mechanism that may fail, and that the
list satisfies a pure epsilon.

The inequality must hold at every epsilon. Finitely many nodes prove it (docs/concepts/gaussian_filter.md). Each node is
a statement about delta at one epsilon, and a form of proof serves as many neighbouring nodes as it can.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from accounting.canonical import Json, canonical_text, sha256_hex
from accounting.certificates.answers import WIDENED, CertifiedEnd
from accounting.certificates.certificate import AT_MOST, FORMAT, Certificate, NoCertificate, Statement
from accounting.certificates.prover import verifier, witnesses
from accounting.events import Event
from accounting.filters.gaussian_cover import failure_of, nodes_of_cover
from accounting.relations import NeighboringRelation
from accounting.units import SATURATED, Amounts

#: The largest number of witnesses that are tried for one node.
_MOST_TRIED = 4


@dataclass(frozen=True, slots=True)
class PriceStatement:
    """The statement that at every epsilon the profile of ``events`` is at most that of a Gaussian mechanism that may
    fail.

    Attributes:
        claim: `AT_MOST` for this statement; `MORE_THAN` for the contrary, that some direction exceeds it at some
            epsilon.
        mu_squared, failure: The Gaussian's mu^2 in nano-units, and its probability of failure in atto-units.
        pure: An upper bound of the sum of the pure epsilons, in nano-units; None if nothing is stated about them.
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
    """Return the canonical bytes of a price with its groups of nodes. Without groups, the mu of the single steps prove
    the price.
    """
    witness: dict[str, Json] = {"precision": precision}
    if groups:
        witness["nodes"] = list(groups)
    return canonical_text({"format": FORMAT, "statement": stated.to_json(), "witness": witness}).encode()


# Numbers in double precision only steer the search and may overflow, as in `accounting.certificates.prover.certify`.
@np.errstate(all="ignore")
def certify_price(
    events: Sequence[Event], relation: NeighboringRelation, amounts: Amounts, rate: Fraction | None = None
) -> Certificate:
    """Return a verified certificate of the amounts that a Gaussian budget charges for a list of events.

    Args:
        events: What is charged.
        relation: Its neighbouring relation.
        amounts: mu squared in nano-units; in an approximate_gaussian_dp budget also the failure in atto-units and the
            pure epsilon in nano-units.
        rate: The delta of failures per unit of mu squared, on which prices in an approximate_gaussian_dp budget depend.

    Raises:
        NoCertificate: If the amounts are infinite, if the verifier has no theorem for some event, if its bounds do not
            decide, or if it is not installed.

    Guarantees: certificates_are_verified: nothing is returned that the verifier did not verify.
    """
    amount, failure, pure = (*amounts, 0, SATURATED)[:3] if len(amounts) == 1 else amounts
    if not 0 < amount < SATURATED:
        raise NoCertificate("the charge has no finite mu squared, so there is nothing to certify")
    check = verifier()
    stated = PriceStatement(
        AT_MOST, tuple(events), NeighboringRelation(relation), amount, failure, None if pure >= SATURATED else pure
    )
    precision, groups = 128, list[dict[str, Json]]()
    if failure:
        if rate is None or failure != failure_of(amount, rate):
            raise NoCertificate("the events have a stated delta, and no certificate covers stated deltas yet")
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
    """Return the certificate of `certify_price`, or the reason why there is none."""
    try:
        return CertifiedEnd(0.0, 0.0, certify_price(events, relation, amounts, rate))
    except NoCertificate as error:
        return CertifiedEnd(0.0, 0.0, None, str(error))


def _groups(stated: PriceStatement, rate: Fraction) -> tuple[int, list[dict[str, Json]]]:
    """Return the bits and the groups of nodes that prove a cover.

    A form of proof for one node often proves many nodes after it, because it also resolves their smaller deltas. If it
    does not prove the last node of the group, forms made for the last node are tried.
    """
    nodes = nodes_of_cover(stated.events, stated.relation, rate, stated.mu_squared)
    if not nodes:
        raise NoCertificate("the nodes do not prove that the charge covers the events")
    precision, groups = 0, list[dict[str, Json]]()
    while nodes:
        last = len(nodes) - 1
        for at in dict.fromkeys((max(1, last // 3) if last else 0, last)):
            node = Statement(AT_MOST, stated.events, stated.relation, nodes[at][0], nodes[last][1])
            with suppress(NoCertificate) if at < last else nullcontext():
                epsilon, bits, directions = _forms(node, unchecked=at < last)
                asked = [*nodes[:last], (epsilon if at == last else nodes[last][0], nodes[last][1])]
                served = _first_served(price_bytes(stated, bits, [_group(asked, directions)]))
                if served <= last:
                    break
        else:
            raise NoCertificate("the form of proof of a group of nodes does not prove the last node of the group")
        groups.insert(0, _group(asked[served:], directions))
        nodes, precision = nodes[:served], max(precision, bits)
    return precision, groups


def _first_served(data: bytes) -> int:
    """Return the first node such that this node and all later ones are proved."""
    found = verifier()(data)
    if not found.statement:
        raise NoCertificate(f"the verifier says {found.verdict}: {found.reason}")
    return max((number + 1 for number in found.undecided), default=0)


def _group(nodes: Sequence[tuple[float, float]], directions: Json) -> dict[str, Json]:
    epsilons, deltas = zip(*nodes, strict=True)
    return {"epsilons": list(epsilons), "deltas": list(deltas), "directions": directions}


def _forms(node: Statement, unchecked: bool) -> tuple[float, int, Any]:
    """Return the forms of proof of a node, their bits, and the node's epsilon, which may be up to a millionth larger
    than asked.

    Args:
        unchecked: Whether to return the likeliest forms without checking them. The caller then finds out what they
            prove.
    """
    reason = "the verifier has no form of proof that fits these events"
    for each in (node, replace(node, epsilon=node.epsilon * (1.0 + WIDENED))):
        for data in islice(witnesses(each), _MOST_TRIED):
            verdict = verifier()(data) if not unchecked else None
            if verdict is None or verdict.verdict == "verified":
                found = json.loads(data)["witness"]
                return each.epsilon, int(found["precision"]), found["directions"]
            reason = verdict.reason
    raise NoCertificate(f"at epsilon {node.epsilon!r}: {reason}")
