"""This module defines a certificate: its canonical bytes and their hashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from accounting.canonical import Json, canonical_text, sha256_hex
from accounting.events import Event
from accounting.relations import NeighboringRelation

FORMAT = "epsilon-certificate/1"
AT_MOST, MORE_THAN = "at_most", "more_than"


class NoCertificate(Exception):
    """An error that says that there is no certificate for a statement, and why. It does not say that the statement
    is false.
    """


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement about delta at ``epsilon`` of the composed dominating pair of ``events``.

    Attributes:
        claim: `AT_MOST`: delta at ``epsilon`` is at most ``delta`` in every direction. `MORE_THAN`: it is more than
            ``delta`` in some direction.
        group_size: How many records the data sets differ in.
    """

    claim: str
    events: tuple[Event, ...]
    relation: NeighboringRelation
    epsilon: float
    delta: float
    group_size: int = 1

    def to_json(self) -> dict[str, Json]:
        """Return the statement as the certificate holds it."""
        group: dict[str, Json] = {"group_size": self.group_size} if self.group_size > 1 else {}
        return group | {
            "claim": self.claim,
            "delta": self.delta,
            "epsilon": self.epsilon,
            "events": [event.to_json() for event in self.events],
            "relation": self.relation.value,
        }


@dataclass(frozen=True, slots=True)
class Certificate:
    """The canonical bytes of a certificate, with two hashes: one of all bytes, and one of the statement alone.

    Certificates of the same statement with different witnesses share the hash of the statement.

    Attributes:
        data: UTF-8 JSON, at most a few kilobytes.
        verdict: The verifier's answer. It is always "verified" for a certificate that `certify` returned.
        assumed: The theorems by which the pairs dominate the mechanisms, which no arithmetic can check.
        checked_with: The versions of the verifier and of its arithmetic.
    """

    data: bytes
    sha256: str
    statement_sha256: str
    verdict: str
    assumed: Sequence[str]
    checked_with: str


def bytes_of(statement: Statement, precision: int, directions: Mapping[str, Json]) -> bytes:
    """Return the canonical bytes of a statement with its witness.

    >>> from accounting.events import Gaussian
    >>> stated = Statement(AT_MOST, (Event(Gaussian(1.0)),), NeighboringRelation.REPLACE_ONE, 9.0, 1e-5)
    >>> bytes_of(stated, 64, {"both": {"form": "gaussian"}})[:60]
    b'{"format":"epsilon-certificate/1","statement":{"claim":"at_m'
    """
    witness: dict[str, Json] = {"precision": precision, "directions": directions}
    return canonical_text({"format": FORMAT, "statement": statement.to_json(), "witness": witness}).encode()


def hash_of(statement: Statement) -> str:
    """Return the SHA-256 of the statement alone."""
    return sha256_hex(canonical_text(statement.to_json()).encode())
