"""Verify the certificates of reservations again, and compare each with its charge.

The books are verified first, which compares rows with their entries. A certificate is right if its bytes have the hash
that the entry names, it states the reservation's own events under the budget's relation, and the verifier proves it. If
it states the charge, it may not state more than was charged: epsilon and delta in approximate_dp and pure_dp budgets,
and the amounts of a failing Gaussian where these are charged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from fractions import Fraction
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from accounting.canonical import canonical_text, sha256_hex
from accounting.certificates import AT_MOST, verifier
from accounting.units import SATURATED
from app.ledger import books_repository as repository
from app.ledger.amounts import amounts_in_words
from app.ledger.books import BadPlace
from app.ledger.verdicts import CertificateReport

#: The kinds of budgets whose charges a certificate can state: in a Gaussian DP that may fail, or as an epsilon with its
#: delta.
GAUSSIAN, WITH_EPSILON = ("approximate_gaussian_dp", "gaussian_dp"), ("approximate_dp", "pure_dp")


def verify_certificates(
    session: Session, root_id: str = "", reached: Callable[[int], None] = lambda _: None
) -> CertificateReport:
    """Verify the certificates of a budget and those under it.

    Args:
        session: A read session.
        root_id: The root of the tree of budgets to look at; "" for all.
        reached: Called with the number of reservations examined so far.

    Raises:
        NoCertificate: python-flint, which the verifier computes with, is not installed.
    """
    proved, seen = _Proved(session), 0
    with closing(repository.certified_reservations(session, root_id)) as rows:
        for row in rows:
            seen += 1
            reason = proved.fault(row)
            if reason is not None:
                return CertificateReport(seen, proved.count, BadPlace(row.budget_id, row.sequence, None, reason))
            reached(seen)
    return CertificateReport(seen, proved.count, None)


class _Proved:
    """Verify the statement of each certificate once: equal rows follow one another, so only the last statement is
    kept."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._check = verifier()
        self._hash = ""
        self._stated: dict[str, Any] | str = ""
        #: The number of certificates that were verified.
        self.count = 0

    def fault(self, row: Row[Any]) -> str | None:
        """Return the fault of a reservation's certificate; None if it has none."""
        if row.certificate != self._hash:
            self._hash, self._stated = row.certificate, self._statement(row.certificate)
            self.count += isinstance(self._stated, dict)
        stated = self._stated
        if isinstance(stated, str):
            return f"the certificate {row.certificate} {stated}"
        if (stated["claim"], stated["relation"]) != (AT_MOST, row.neighboring_relation):
            return "its certificate states something else than an upper end under the budget's relation"
        if stated["events"] != json.loads(canonical_text([event.to_json() for event in row.events])):
            return "its certificate is about other events"
        return "its certificate states more than it charges" if states_more(stated, row) else None

    def _statement(self, hashed: str) -> dict[str, Any] | str:
        """Return a certificate's statement, or why it proves nothing."""
        data = repository.certificate(self._session, hashed)
        if data is None:
            return "is missing"
        if sha256_hex(data) != hashed:
            return "has been changed: its bytes have another hash"
        verdict = self._check(data)
        if verdict.verdict != "verified":
            return f"is not verified: the verifier says {verdict.verdict}" + (verdict.reason and f", {verdict.reason}")
        stated: dict[str, Any] = json.loads(data)["statement"]
        return stated


def states_more(stated: Mapping[str, Any], row: Any) -> bool:
    """Return whether a statement claims more than a reservation charges, so that it is not a proof of the charge.

    Args:
        stated: What the certificate states.
        row: The reservation, with its ``filter`` and its ``cost``.
    """
    if "nano_mu_squared" in stated:
        if row.filter.kind not in GAUSSIAN:
            return True
        amounts = (stated["nano_mu_squared"], stated["atto_failure"], stated.get("nano_pure_epsilon", SATURATED))
        charged = row.cost if len(row.cost) == len(amounts) else (*row.cost, 0, SATURATED)
        return any(int(amount) > most for amount, most in zip(amounts, charged, strict=True))
    if row.filter.kind not in WITH_EPSILON:
        return False
    words = amounts_in_words(row.filter, row.cost)
    return any(Fraction(stated[name]) > Fraction(str(words.get(name, 0))) for name in ("epsilon", "delta"))
