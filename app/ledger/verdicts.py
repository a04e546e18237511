"""The findings of a verification, and an older export with which it may compare the books."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from app.ledger.books import BadPlace, Books, StoredEntry
from app.ledger.checkpoints import Checkpoint
from app.ledger.price_verification import PriceReport, PriceVerification
from app.tables.states import REGISTER


class NotAsKept(BadPlace):
    """The tree does not begin with a checkpoint from elsewhere, although it may be consistent by itself."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, None, None, reason)


@dataclass(frozen=True)
class TreeHead:
    """The tree over all entries.

    Attributes:
        origin: The name of the ledger.
        size: How many entries it has.
        root: The root of the tree.
    """

    origin: str
    size: int
    root: bytes

    def check_begins_with(self, kept: Checkpoint, root: bytes | None) -> None:
        """Compare a checkpoint that was kept elsewhere with the tree.

        Args:
            kept: The checkpoint.
            root: The root of as many of the tree's entries as the checkpoint has; None if the tree has fewer.

        Raises:
            NotAsKept: the tree does not begin with it.
        """
        if kept.origin != self.origin:
            raise NotAsKept(f"the kept checkpoint belongs to {kept.origin}, and this ledger is {self.origin}")
        if kept.size > self.size:
            raise NotAsKept(
                f"the kept checkpoint has {kept.size} entries, and the tree has only {self.size}: some entries are "
                "missing"
            )
        if root != kept.root:
            raise NotAsKept(f"the first {kept.size} entries differ from the entries of the kept checkpoint")


@dataclass(frozen=True)
class CertificateReport:
    """The outcome of verifying certificates.

    Attributes:
        reservations: How many reservations were made with a certificate; all were examined if nothing is wrong.
        certificates: How many different certificates there are.
        first_bad: The first one that does not prove its charge.
    """

    reservations: int
    certificates: int
    first_bad: BadPlace | None

    def in_words(self) -> str:
        """Return the verdict in one line."""
        return f"{self.certificates} certificates of {self.reservations} reservations are verified"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a verification.

    Attributes:
        entries, budgets: How many were examined; all, if the books are valid.
        head: `app.ledger.books.digest_of` the ends of all chains; None if the books are not valid.
        first_bad: The first place that is not what the ledger wrote.
        tree: The tree over all entries; None if it was not examined, or something is not valid.
        prices: The result for the charges; None if they were not compared with prices, or the books are not valid
            for another reason.
        certificates: The result for the certificates; None if they were not verified, or the books are not valid.
    """

    entries: int
    budgets: int
    head: str | None
    first_bad: BadPlace | None
    tree: TreeHead | None = None
    prices: PriceReport | None = None
    certificates: CertificateReport | None = None

    @classmethod
    def bad(cls, books: Books, first_bad: BadPlace) -> Verdict:
        """Return the verdict on books with a bad place."""
        return cls(books.entries, len(books.accounts), None, first_bad)

    @classmethod
    def good(cls, books: Books, tree: TreeHead | None) -> Verdict:
        """Return the verdict on books without a bad place."""
        return cls(books.entries, len(books.accounts), books.digest(), None, tree)

    @property
    def valid(self) -> bool:
        return self.first_bad is None

    def with_prices(self, verification: PriceVerification) -> Verdict:
        """Return the verdict with the result for the charges; a charge that is too low is a bad place.

        Args:
            verification: It has taken all entries, if they are valid.
        """
        if not self.valid:
            return self
        report = verification.finish()
        too_low = report.first_too_low
        if too_low is None:
            return replace(self, prices=report)
        return replace(self, head=None, tree=None, first_bad=too_low.bad_place, prices=report)

    def with_certificates(self, report: CertificateReport) -> Verdict:
        """Return the verdict on valid books with the result for their certificates."""
        if report.first_bad is None:
            return replace(self, certificates=report)
        return replace(self, head=None, tree=None, first_bad=report.first_bad)

    def in_words(self) -> str:
        """Return the verdict in one line."""
        proofs = "" if self.certificates is None else f"; {self.certificates.in_words()}"
        prices = "" if self.prices is None else f"; {self.prices.in_words()}"
        if self.first_bad is None:
            tree = "" if self.tree is None else f"; tree of {self.tree.size}, root {self.tree.root.hex()}"
            return f"valid: {self.entries} entries of {self.budgets} budgets, head {self.head}{tree}{prices}{proofs}"
        return f"not valid: {describe(self.first_bad)}{prices}"


def describe(bad: BadPlace) -> str:
    """Return the place and the reason."""
    chain = "chain" if bad.budget_id == REGISTER else "budget"
    places = ((chain, bad.budget_id), ("entry", bad.sequence), ("leaf index", bad.leaf_index))
    where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
    return f"{where}{': ' if where else ''}{bad.reason}"


class Past:
    """The hashes of all entries of an older export, 32 bytes each.

    A ledger that was rolled back, or rewritten from some place on with intact chains, differs from it.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, bytearray] = defaultdict(bytearray)

    def add(self, entry: StoredEntry) -> None:
        """Process the next verified entry of the older export."""
        self._hashes[entry.budget_id] += bytes.fromhex(entry.hash)

    def check(self, entry: StoredEntry) -> None:
        """Compare an entry with the older export's entry in the same place.

        Raises:
            BadPlace: the two differ.
        """
        hashes = self._hashes.get(entry.budget_id, b"")
        was = hashes[32 * (entry.sequence - 1) : 32 * entry.sequence]
        if was and was != bytes.fromhex(entry.hash):
            reason = "the older export has another entry in this place"
            raise BadPlace(entry.budget_id, entry.sequence, entry.leaf_index, reason)

    def check_nothing_is_missing(self, books: Books) -> None:
        """Check that every entry of the older export is still there.

        Raises:
            BadPlace: names the first missing entry.
        """
        for budget_id, hashes in self._hashes.items():
            end = books.end_of(budget_id)
            found = 0 if end is None else end.sequence
            if 32 * found < len(hashes):
                raise BadPlace(budget_id, found + 1, None, "the entry is missing, although the older export has it")
