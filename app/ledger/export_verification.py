"""Verify an export from the file alone, without database, settings or secrets."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.ledger.books import BadPlace, Books, Charges
from app.ledger.checkpoints import Checkpoint
from app.ledger.export_format import ExportedEntry, ExportReader
from app.ledger.merkle import WIDTH, Frontier, leaf_hash
from app.ledger.verdicts import Past, TreeHead, Verdict
from app.tables.states import REGISTER


def verify_export(
    path: Path, past: Past | None = None, kept: Checkpoint | None = None, charges: Charges | None = None
) -> Verdict:
    """Return whether the file is what an export wrote, whole, and its entries are what a ledger would have written.

    Args:
        path: An export in the NDJSON format.
        past: The entries of an older export.
        kept: A checkpoint whose signature is verified. The entries must begin with those that it covers.
        charges: The observer of every entry about a reservation, such as `app.ledger.price_verification`.

    Raises:
        OSError: the file cannot be read.
    """
    return _verify(path, past, None, kept, charges)


def read_past(path: Path) -> tuple[Past, Verdict]:
    """Read an export to compare a later state with it, and return whether the export is valid itself.

    Raises:
        OSError: the file cannot be read.
    """
    past = Past()
    return past, _verify(path, None, past, None)


def _verify(
    path: Path,
    past: Past | None,
    recorded: Past | None,
    kept: Checkpoint | None,
    charges: Charges | None = None,
) -> Verdict:
    books = Books(charges=charges)
    try:
        return Verdict.good(books, _check(ExportReader(path), books, past, recorded, kept))
    except BadPlace as bad:
        return Verdict.bad(books, bad)


def _check(
    reader: ExportReader, books: Books, past: Past | None, recorded: Past | None, kept: Checkpoint | None
) -> TreeHead | None:
    tree, registered = _Leaves(), _Registered()
    for entry in reader.entries():
        record = books.read(entry)
        if past is not None:
            past.check(entry)
        books.enter(entry, record)
        registered.add(entry, record)
        tree.add(entry)
        if recorded is not None:
            recorded.add(entry)
    books.check_ends(reader.ends, "the last line of the file")
    if past is not None:
        past.check_nothing_is_missing(books)
    if reader.tree is not None:
        tree.check(reader.tree, kept)
    elif kept is not None:
        reason = "a checkpoint covers all entries, but the file is of version 1 or lacks budgets: export it again"
        raise BadPlace(None, None, None, reason)
    return reader.tree


class _Registered:
    """Check that nothing is registered twice. The register itself forgets subjects that have ended."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def add(self, entry: ExportedEntry, record: EntryRecord) -> None:
        """Process the next entry, once it is verified.

        Raises:
            BadPlace: an earlier entry has registered the same subject.
        """
        if record.budget_id != REGISTER or record.kind is not EntryKind.REGISTER:
            return
        short = blake2b(str(record.subject_id).encode(), digest_size=16).digest()
        if short in self._seen:
            reason = f"{record.subject_id} is registered already"
            raise BadPlace(entry.budget_id, entry.sequence, entry.leaf_index, reason)
        self._seen.add(short)


class _Leaves:
    """The entries of the file and their places in the tree."""

    def __init__(self) -> None:
        self._places, self._leaf_indices, self._hashes = array("q"), array("q"), bytearray()

    def add(self, entry: ExportedEntry) -> None:
        """Process the next verified entry."""
        if entry.tree_index is None:
            return
        for name, place in (("tree_index", entry.tree_index), ("leaf_index", entry.leaf_index)):
            if not 0 <= place < 1 << 62:
                fault = f"its {name} is not a place of an entry"
                raise BadPlace(entry.budget_id, entry.sequence, entry.leaf_index, fault)
        self._places.append(entry.tree_index)
        self._leaf_indices.append(entry.leaf_index)
        self._hashes += bytes.fromhex(entry.hash)

    def check(self, head: TreeHead, kept: Checkpoint | None) -> None:
        """Check that the entries make the tree that the file names, and begin with the entries of a checkpoint."""
        order = sorted(range(len(self._places)), key=self._places.__getitem__)
        for place, position in enumerate(order):
            if self._places[position] != place:
                reason = (
                    f"the entry's tree_index is {self._places[position]}, but the next place in the tree is {place}"
                )
                raise BadPlace(None, None, self._leaf_indices[position], reason)
        leaves = (leaf_hash(bytes(self._hashes[WIDTH * each : WIDTH * (each + 1)])) for each in order)
        tree, root = Frontier(), None
        if kept is not None and kept.size <= len(order):
            tree.extend(islice(leaves, kept.size))
            root = tree.root()
        tree.extend(leaves)
        if (tree.size, tree.root()) != (head.size, head.root):
            raise BadPlace(None, None, None, "the last line of the file gives another tree than the entries have")
        if kept is not None:
            head.check_begins_with(kept, root)
