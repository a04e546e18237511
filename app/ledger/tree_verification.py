"""Verify the tree over all entries: every entry is in it once, and its nodes and roots follow from these entries alone.

The hashes of the entries are collected while the books are read. Then the leaves are read in the order of the tree, and
the tree is computed again from them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from app.ledger import tree_repository as repository
from app.ledger.books import BadPlace, StoredEntry
from app.ledger.checkpoints import Checkpoint, InvalidNote, VerifierKey, open_note, origin_of
from app.ledger.merkle import EMPTY_ROOT, WIDTH, Frontier, Node, leaf_hash
from app.ledger.verdicts import TreeHead


class TreeVerification:
    """Process all entries in the order of their leaf indices, and then compare the tree with them.

    Args:
        session: A read session on a fixed snapshot.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._leaf_indices = array("q")
        self._hashes = bytearray()

    def add(self, entry: StoredEntry) -> None:
        """Process the next verified entry."""
        self._leaf_indices.append(entry.leaf_index)
        self._hashes += bytes.fromhex(entry.hash)

    def check(self, kept: Checkpoint | None = None) -> TreeHead:
        """Return the tree, after checking that it is what integration and signing have made.

        Args:
            kept: A checkpoint that was kept elsewhere, with whose entries the tree must begin.

        Raises:
            BadPlace: names the first wrong leaf or node; if there is none, a fault of the tree's row or of a
                checkpoint; otherwise a contradiction with the kept checkpoint.
        """
        tree = repository.find(self._session)
        if tree is None:
            raise _beside("the row of the tree is missing")
        signed = repository.checkpoints(self._session)
        sizes = {row.tree_size for row in signed} | ({0} if kept is None else {kept.size})
        frontier, roots = self._make_again(sorted(sizes))
        self._check_nothing_is_left_out(tree.settled_leaf_index, is_short=frontier.size < tree.size)
        if (tree.size, tree.frontier) != (frontier.size, frontier.hashes()):
            raise _beside(f"the row of the tree differs from what its {frontier.size} leaves give")
        head = TreeHead(origin_of(tree.ledger_id), frontier.size, frontier.root())
        _check_checkpoints(tree.checkpoints, head.origin, signed, roots)
        if kept is not None:
            head.check_begins_with(kept, roots.get(kept.size))
        return head

    def _make_again(self, sizes: Sequence[int]) -> tuple[Frontier, dict[int, bytes]]:
        """Return the tree made from its leaves, and its roots at the given sizes, in ascending order, as far as it has
        these sizes."""
        stored = repository.nodes(self._session)
        frontier, roots = Frontier(), {0: EMPTY_ROOT}
        for hashes in self._leaves():
            before, done = frontier.size, 0
            for size in sizes[bisect_right(sizes, before) : bisect_right(sizes, before + len(hashes))]:
                _check_nodes(stored, frontier.extend(hashes[done : size - before]))
                roots[size], done = frontier.root(), size - before
            _check_nodes(stored, frontier.extend(hashes[done:]))
        if stored:
            level, index = min(stored)
            raise _beside(f"the node {index} of the level {level} of the tree has too few leaves under it")
        return frontier, roots

    def _leaves(self) -> Iterator[list[bytes]]:
        """Yield the hashes of the leaves in batches, after comparing each leaf with its entry."""
        leaf_indices, entries = self._leaf_indices, len(self._leaf_indices)
        self._seen = seen = bytearray(entries)
        position, place = -1, 0
        for rows in repository.leaves(self._session):
            hashes = []
            for tree_index, leaf_index, entry_hash in rows:
                if tree_index != place:
                    raise _beside(f"the place {place} of the tree is empty, or taken twice")
                position += 1
                if position >= entries or leaf_indices[position] != leaf_index:
                    position = bisect_left(leaf_indices, leaf_index)
                if position >= entries or leaf_indices[position] != leaf_index:
                    raise BadPlace(
                        None, None, leaf_index, (f"the entry is missing, although it was put into the tree, at {place}")
                    )
                if seen[position]:
                    raise self._bad(leaf_index, f"the entry is in the tree twice; the second place is {place}")
                seen[position] = 1
                if entry_hash != self._hashes[WIDTH * position : WIDTH * (position + 1)]:
                    raise self._bad(leaf_index, f"another entry was put into the tree at this place, {place}")
                hashes.append(leaf_hash(entry_hash))
                place += 1
            yield hashes

    def _check_nothing_is_left_out(self, settled: int, *, is_short: bool) -> None:
        """Check that the tree lacks only newer entries, which may still wait for their places."""
        position = self._seen.find(0)
        if position >= 0 and (is_short or self._leaf_indices[position] <= settled):
            raise self._bad(self._leaf_indices[position], "the entry is not in the tree")
        last = self._leaf_indices[-1] if self._leaf_indices else 0
        if settled > last:
            # Entries up to that place would never be integrated.
            raise _beside(
                f"the row of the tree says that all places up to {settled} are in the tree, but the last one is {last}"
            )

    def _bad(self, leaf_index: int, reason: str) -> BadPlace:
        entry = repository.entry_at(self._session, leaf_index)
        budget_id, sequence = (None, None) if entry is None else (entry.budget_id, entry.sequence)
        return BadPlace(budget_id, sequence, leaf_index, reason)


def _check_nodes(stored: dict[tuple[int, int], bytes], made: Sequence[Node]) -> None:
    for node in made:
        if stored.pop((node.level, node.index), None) != node.hash:
            first, count = node.index << 8 * node.level, 1 << 8 * node.level
            reason = f"the leaves {first} to {first + count - 1} of the tree do not give the node above them"
            raise _beside(reason)


def _check_checkpoints(count: int, origin: str, signed: Sequence[Row[Any]], roots: Mapping[int, bytes]) -> None:
    before = 0
    for number, row in enumerate(signed, start=1):
        which = f"the checkpoint {number}"
        if row.number != number:
            raise _beside(f"{which} is missing")
        if row.tree_size < before:
            raise _beside(f"{which} covers a smaller tree than the checkpoint before it")
        before = row.tree_size
        try:
            said = open_note(row.note, VerifierKey.parse(row.public_key))
        except InvalidNote as error:
            raise _beside(f"{which} is damaged: {error}") from None
        if said != Checkpoint(origin, row.tree_size, row.root_hash):
            raise _beside(f"{which} differs from what was signed")
        if roots.get(row.tree_size) != said.root:
            raise _beside(f"the first {row.tree_size} leaves of the tree do not give the root in {which}")
    if count != len(signed):
        raise _beside(f"the checkpoint {len(signed) + 1} is missing: {count} checkpoints were signed")


def _beside(reason: str) -> BadPlace:
    """Return a bad place that names no entry, because no single entry is wrong."""
    return BadPlace(None, None, None, reason)
