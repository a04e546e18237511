"""What a verification found, and what it may compare the books with: an export that was kept elsewhere."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from app.ledger.books import BadPlace, Books, StoredEntry


@dataclass(frozen=True)
class Verdict:
    """What a verification found.

    Attributes:
        entries, budgets: How many were looked at; all, where the books are valid.
        head: `app.ledger.books.digest_of` the ends of all chains; None where the books are not valid.
        first_bad: The first place that is not what the ledger wrote.
    """

    entries: int
    budgets: int
    head: str | None
    first_bad: BadPlace | None

    @classmethod
    def on(cls, books: Books, first_bad: BadPlace | None = None) -> Verdict:
        """On books that were read to the end, or to the first bad place."""
        return cls(books.entries, len(books.accounts), books.digest() if first_bad is None else None, first_bad)

    @property
    def valid(self) -> bool:
        return self.first_bad is None

    def in_words(self) -> str:
        """One line."""
        if self.first_bad is None:
            return f"valid: {self.entries} entries of {self.budgets} budgets, head {self.head}"
        return f"not valid: {describe(self.first_bad)}"


def describe(bad: BadPlace) -> str:
    """The place and the reason."""
    places = (("budget", bad.budget_id), ("entry", bad.sequence), ("leaf index", bad.leaf_index))
    where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
    return f"{where}{': ' if where else ''}{bad.reason}"


class Past:
    """The hashes of all entries that there were once, 32 bytes each, as an older export has them.

    A ledger that is rolled back, or written anew from some place on with chains that are whole, differs from it.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, bytearray] = defaultdict(bytearray)

    def add(self, entry: StoredEntry) -> None:
        """The next entry of the older export, once it is verified."""
        self._hashes[entry.budget_id] += bytes.fromhex(entry.hash)

    def check(self, entry: StoredEntry) -> None:
        """Compare an entry with the one that stood in its place.

        Raises:
            BadPlace: it is another one.
        """
        hashes = self._hashes.get(entry.budget_id, b"")
        was = hashes[32 * (entry.sequence - 1) : 32 * entry.sequence]
        if was and was != bytes.fromhex(entry.hash):
            reason = "it is another entry than the older export has in this place"
            raise BadPlace(entry.budget_id, entry.sequence, entry.leaf_index, reason)

    def check_nothing_is_missing(self, books: Books) -> None:
        """See that every entry that there was is still there.

        Raises:
            BadPlace: the first one that is not.
        """
        for budget_id, hashes in self._hashes.items():
            account = books.accounts.get(budget_id)
            found = 0 if account is None else account.history.sequence
            if 32 * found < len(hashes):
                raise BadPlace(budget_id, found + 1, None, "it is missing: the older export has it")
