"""The marks that the fence holds, and the result of comparing them with the database. Pure.

The fence holds the end of every budget's chain. A number of entries for the whole ledger would not do: on PostgreSQL
transactions commit in another order than they draw their numbers, so that a copy may have a later entry and lack an
earlier one that was acknowledged. A chain has no gaps, and one that holds an entry holds all those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from app.kit.hash_chain import chain_hash


@dataclass(frozen=True)
class Head:
    """The end of a budget's chain: the sequence and the hash of its last entry."""

    sequence: int
    hash: str


@dataclass(frozen=True)
class Move:
    """A chain that has become longer.

    Attributes:
        budget_id: Whose chain.
        base: Its end before; None for a new chain, or where nobody looked.
        head: Its end as it was committed, which follows from its base.
    """

    budget_id: str
    base: Head | None
    head: Head


@dataclass(frozen=True)
class Kept:
    """The contents of the fence.

    Attributes:
        ledger_id: The ledger that it belongs to.
        life: The ledger's life. A new one begins when a loss is acknowledged.
        heads: The newest end of each budget's chain that was acknowledged.
    """

    ledger_id: str
    life: str
    heads: Mapping[str, Head] = field(default_factory=dict)


class Reason(StrEnum):
    """Why a database is refused."""

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
    """Another version of the service has migrated the database; what is missing is not looked at."""


@dataclass(frozen=True)
class Missing:
    """The loss of one budget.

    Attributes:
        budget_id: Which budget.
        acknowledged: Entries of its chain that were acknowledged.
        found: Entries that the database has.
        is_rewritten: Whether the database has as many, and other ones.
    """

    budget_id: str
    acknowledged: int
    found: int
    is_rewritten: bool = False

    @property
    def entries(self) -> int:
        """Return how many are known to be gone."""
        return max(self.acknowledged - self.found, int(self.is_rewritten))


@dataclass(frozen=True)
class Loss:
    """A database that is not what was acknowledged.

    Attributes:
        reason: What is wrong.
        acknowledged: Entries that the fence knows, of all budgets; None without a fence.
        missing: The budgets that lost entries; what is not known without a fence.
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
    """Find what the database lacks of what the fence has.

    A chain that is longer in the database must follow from the end that the fence has, entry by entry. So each end
    that the fence ever gets vouches for all the ends before it.

    Args:
        kept: What the fence says. It was read before the database, which may therefore be ahead.
        ledger_id, life: Of the database; it has no life where it never had a fence.
        heads: The ends of the chains in the database, of the budgets in ``kept`` at least.
        entries_between: The hashes and the bytes of the entries in the database, by their budget, the first sequence
            and the last.
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
    """Return whether the entries from the mark's own on lead to the head."""
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
