"""The heads of chains that the fence holds, and their comparison with the database. This module is pure.

The fence holds the head of every budget's chain. The number of entries in the whole ledger would not be enough. On
PostgreSQL, transactions may commit in another order than that of their numbers, so a copy of the database may have a
later entry and lack an earlier, acknowledged one. A chain has no gaps: if it holds an entry, it holds all entries
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.kit.hash_chain import chain_hash


@dataclass(frozen=True)
class Head:
    """The head of a budget's chain: the sequence number and the hash of its last entry."""

    sequence: int
    hash: str


@dataclass(frozen=True)
class Move:
    """A chain that has become longer.

    Attributes:
        budget_id: The budget of the chain.
        base: The previous head; None for a new chain, or if it was not read.
        head: The committed head, which follows from the base.
    """

    budget_id: str
    base: Head | None
    head: Head


@dataclass(frozen=True)
class Kept:
    """The contents of the fence.

    Attributes:
        ledger_id: The id of the ledger that the fence belongs to.
        life: The id of the ledger's current life. A new life begins when a loss is acknowledged.
        heads: The newest acknowledged head of each budget's chain.
    """

    ledger_id: str
    life: str
    heads: Mapping[str, Head] = field(default_factory=dict)


class Reason(StrEnum):
    """The reason why a database is refused."""

    BEHIND = "behind"
    """Entries that were acknowledged are missing, or differ from those now stored."""
    OTHER_LIFE = "other_life"
    """The database is from before a loss that was acknowledged, or from another continuation of the same ledger."""
    NO_FENCE = "no_fence"
    """The database had a fence, and there is none here."""
    DAMAGED = "damaged"
    """The fence is not what the service wrote."""
    OTHER_LEDGER = "other_ledger"
    """The fence belongs to another ledger."""
    OTHER_SCHEMA = "other_schema"
    """Another version of the service has migrated the database, so it was not checked for missing entries."""


@dataclass(frozen=True)
class Missing:
    """The loss of one budget.

    Attributes:
        budget_id: The budget.
        acknowledged: The number of entries of its chain that were acknowledged.
        found: The number of entries that the database has.
        is_rewritten: Whether the database has as many entries, but different ones.
    """

    budget_id: str
    acknowledged: int
    found: int
    is_rewritten: bool = False

    @property
    def entries(self) -> int:
        """Return how many entries are known to be gone."""
        return max(self.acknowledged - self.found, int(self.is_rewritten))


@dataclass(frozen=True)
class Loss:
    """The difference between a database and what was acknowledged.

    Attributes:
        reason: What is wrong.
        acknowledged: The number of entries that the fence knows, over all budgets; None without a fence.
        missing: The budgets that lost entries; empty without a fence, since then nobody knows.
    """

    reason: Reason
    acknowledged: int | None = None
    missing: tuple[Missing, ...] = ()

    @property
    def entries(self) -> int | None:
        """Return how many acknowledged entries are known to be gone; None if nobody knows."""
        return None if self.acknowledged is None else sum(each.entries for each in self.missing)

    def in_words(self) -> str:
        """Return the fault in one or two sentences."""
        if self.reason is Reason.OTHER_LEDGER:
            return "The fence belongs to another ledger: EPSILOND_FENCE or EPSILOND_DATABASE_URL names the wrong one."
        if self.reason is Reason.OTHER_SCHEMA:
            return "The database's schema is not the one that this version of the service was written for."
        if self.reason is Reason.NO_FENCE:
            return (
                "The database had a fence, and none is found where EPSILOND_FENCE says, or in the data folder where it "
                "is not set, so nobody can tell whether entries are missing."
            )
        if self.reason is Reason.DAMAGED:
            return "The fence is damaged, so nobody can tell whether entries are missing."
        found = f"{self.entries} of {self.acknowledged} acknowledged ledger entries are missing"
        if self.reason is Reason.OTHER_LIFE:
            return f"The database is from before a loss that was acknowledged, or another copy of it; {found}."
        return f"The database is behind its fence: {found}, in {len(self.missing)} chain(s)."


def compare(
    kept: Kept,
    ledger_id: str,
    life: str | None,
    heads: Mapping[str, Head],
    entries_between: Callable[[str, int, int], Iterable[tuple[object, object]]],
) -> Loss | None:
    """Return the loss of a database that does not contain every head in the fence; None if nothing is lost.

    A chain that is longer in the database must follow from the head in the fence, entry by entry. So each head that the
    fence accepts confirms all earlier heads of the chain.

    Args:
        kept: The content of the fence. It was read before the database, which may therefore be ahead.
        ledger_id, life: The ids in the database. The life is missing if the database never had a fence.
        heads: The heads of the chains in the database, at least for the budgets in ``kept``.
        entries_between: Returns the hashes and the bytes of the entries in the database, given the budget, the first
            and the last sequence.
    """
    if kept.ledger_id != ledger_id:
        return Loss(Reason.OTHER_LEDGER)
    missing = []
    for budget_id, mark in kept.heads.items():
        head = heads.get(budget_id, Head(0, ""))
        if head.sequence < mark.sequence:
            missing.append(Missing(budget_id, mark.sequence, head.sequence))
            continue
        if head == mark:
            continue
        between = entries_between(budget_id, mark.sequence, head.sequence)
        if not _follows(mark, head, between):
            missing.append(Missing(budget_id, mark.sequence, head.sequence, is_rewritten=True))
    acknowledged = sum(mark.sequence for mark in kept.heads.values())
    if life is not None and kept.life != life:
        return Loss(Reason.OTHER_LIFE, acknowledged, tuple(missing))
    return Loss(Reason.BEHIND, acknowledged, tuple(missing)) if missing else None


def _follows(mark: Head, head: Head, entries: Iterable[tuple[object, object]]) -> bool:
    """Return whether the entries, beginning with the entry of ``mark``, lead to ``head``."""
    sequence, hashed = mark.sequence - 1, mark.hash
    for stored_hash, canonical in entries:
        sequence += 1
        if sequence == mark.sequence:
            if stored_hash != mark.hash:
                return False
        elif not isinstance(canonical, bytes):
            return False
        else:
            hashed = chain_hash(hashed, canonical)
    return Head(sequence, hashed) == head
