"""Make proofs that lead from entries, or from smaller trees, to roots of checkpoints; `app.ledger.proofs` checks
them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from app.context import Context
from app.ledger import merkle
from app.ledger import tree_repository as repository
from app.ledger.merkle import Read, leaf_hash
from app.ledger.stored_values import not_consistent, wrong_kinds_are_a_conflict
from app.ledger.transparency import checkpoint, integrated, note_of, root_of, tree_of
from app.problems import Problem, ProblemItem, not_found


@dataclass(frozen=True)
class InclusionProof:
    """A proof that an entry has its place in the tree of some size.

    Attributes:
        entry_id, budget_id, entry_hash: The entry; its hash in its budget's chain is the leaf.
        tree_index: The entry's place in the tree.
        size, root: The size and the root of the tree.
        path: The hashes of section 2.1.3.1 of RFC 9162.
        note: The checkpoint of that size; None if none was signed.
    """

    entry_id: str
    budget_id: str
    entry_hash: str
    tree_index: int
    size: int
    root: bytes
    path: list[bytes]
    note: str | None

    @property
    def leaf(self) -> bytes:
        """Return the hash of the leaf."""
        return leaf_hash(bytes.fromhex(self.entry_hash))


@dataclass(frozen=True)
class ConsistencyProof:
    """The hashes that prove that a larger tree begins with a smaller one.

    Attributes:
        sizes, roots: Those of the smaller and of the larger tree.
        path: The hashes of section 2.1.4.1 of RFC 9162.
        notes: The checkpoints of these sizes; None if none was signed.
    """

    sizes: tuple[int, int]
    roots: tuple[bytes, bytes]
    path: list[bytes]
    notes: tuple[str | None, str | None]


@wrong_kinds_are_a_conflict()
def inclusion(context: Context, entry_id: str, size: int | None = None) -> InclusionProof:
    """Return a proof that the entry is in the tree of a given size, or in the tree of a new checkpoint.

    Raises:
        Problem: 404: there is no such entry. 422: the tree is not that large, or the entry came later.
            409 ``ledger_not_consistent``.
    """
    size = _size(context, size)
    with context.database.read() as session:
        entry, tree = repository.leaf_of(session, entry_id), tree_of(session)
        if entry is None:
            raise not_found("entry", entry_id)
        _check_size("tree_size", size, tree.size)
        if entry.tree_index is None or entry.tree_index >= size:
            detail = f"The entry is not among the first {size} entries: ask for a larger tree, or leave tree_size out."
            raise _invalid_size("tree_size", detail)
        read = repository.tiles(session)
        _check_leaf(read, entry)
        return InclusionProof(
            entry_id=entry.id,
            budget_id=entry.budget_id,
            entry_hash=entry.hash,
            tree_index=entry.tree_index,
            size=size,
            root=root_of(read, size),
            path=merkle.inclusion_path(read, entry.tree_index, size),
            note=note_of(session, context, size),
        )


@wrong_kinds_are_a_conflict()
def consistency(context: Context, first: int, second: int | None = None) -> ConsistencyProof:
    """Return a proof that a tree begins with a smaller one. If the second size is None, it is that of a new checkpoint.

    Raises:
        Problem: 422: a tree is not that large, or the first one is larger. 409 ``ledger_not_consistent``.
    """
    second = _size(context, second)
    with context.database.read() as session:
        _check_size("to_size", second, tree_of(session).size)
        _check_size("from_size", first, second)
        read = repository.tiles(session)
        return ConsistencyProof(
            sizes=(first, second),
            roots=(root_of(read, first), root_of(read, second)),
            path=merkle.consistency_path(read, first, second),
            notes=(note_of(session, context, first), note_of(session, context, second)),
        )


@wrong_kinds_are_a_conflict()
def consistency_path(context: Context, first: int, second: int) -> list[bytes]:
    """Return only the hashes of a proof between two sizes that the tree has.

    Raises:
        Problem: 409 ``ledger_not_consistent``.
    """
    with context.database.read() as session:
        try:
            return merkle.consistency_path(repository.tiles(session), first, second)
        except LookupError:
            raise not_consistent("the tree lacks hashes of entries that were integrated") from None


def _size(context: Context, given: int | None) -> int:
    if given is None:
        return checkpoint(context).checkpoint.size
    integrated(context)
    return given


def _check_leaf(read: Read, entry: Row[Any]) -> None:
    """Check that an entry is the one that was put into its place in the tree."""
    try:
        leaf = leaf_hash(bytes.fromhex(entry.hash))
    except ValueError:
        raise not_consistent("the entry's hash is malformed") from None
    if entry.tree_index < 0 or list(read(0, entry.tree_index, 1)) != [leaf]:
        raise not_consistent("the entry differs from the entry that was put into the tree")


def _check_size(name: str, size: int, largest: int) -> None:
    if size > largest:
        raise _invalid_size(name, f"{name} is {size}; the largest possible value here is {largest}.")


def _invalid_size(name: str, detail: str) -> Problem:
    item = ProblemItem(pointer=f"/query/{name}", code="out_of_range", detail=detail)
    return Problem(422, "invalid_request", detail, errors=[item])
