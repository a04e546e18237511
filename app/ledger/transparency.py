"""Evidence to be kept and checked elsewhere: signed checkpoints, and proofs that lead to their roots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Row
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from app.context import Context
from app.db.failures import busy_is_a_problem
from app.ledger import merkle, verification
from app.ledger import tree_repository as repository
from app.ledger.books import BadPlace, Charges
from app.ledger.checkpoints import (
    Checkpoint,
    InvalidNote,
    VerifierKey,
    is_signed_by,
    open_note,
    origin_of,
    read_note,
    sign,
)
from app.ledger.integration import STUCK, CannotIntegrate, integrate
from app.ledger.merkle import Frontier, Read, leaf_hash
from app.ledger.price_search import MOST_OVER_HTTP, SECONDS_OVER_HTTP, PriceSearch
from app.ledger.price_verification import PriceVerification
from app.ledger.stored_values import not_consistent, wrong_kinds_are_a_conflict
from app.ledger.verdicts import CertificateReport, NotAsKept, Past, Verdict
from app.observability.metrics import VerificationResult
from app.problems import Problem, ProblemItem, not_found, unprocessable
from app.secrets import versions
from app.secrets.material import Purpose


@dataclass(frozen=True)
class SignedCheckpoint:
    """A checkpoint as it was handed out.

    Attributes:
        checkpoint: What it says.
        note: The text to keep.
        public_key: What verifies it.
        issued_at: When it was signed.
    """

    checkpoint: Checkpoint
    note: str
    public_key: str
    issued_at: datetime


@dataclass(frozen=True)
class InclusionProof:
    """A proof that an entry has its place in the tree of some size.

    Attributes:
        entry_id, budget_id, entry_hash: Of the entry, whose hash in its budget's chain is the leaf.
        tree_index: Its place.
        size, root: Of the tree.
        path: Section 2.1.3.1 of RFC 9162.
        note: The checkpoint of that size; None where none was signed.
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
        """The hash of the leaf."""
        return leaf_hash(bytes.fromhex(self.entry_hash))


@dataclass(frozen=True)
class ConsistencyProof:
    """The hashes that prove that a larger tree begins with a smaller one.

    Attributes:
        sizes, roots: Of the smaller tree, and of the larger one.
        path: Section 2.1.4.1 of RFC 9162.
        notes: The checkpoints of these sizes; None where none was signed.
    """

    sizes: tuple[int, int]
    roots: tuple[bytes, bytes]
    path: list[bytes]
    notes: tuple[str | None, str | None]


@wrong_kinds_are_a_conflict()
def verifier_key(context: Context) -> VerifierKey:
    """The public key that verifies the checkpoints that are signed now."""
    with context.database.read() as session:
        return VerifierKey.of(_signing_key(session, context), origin_of(_tree(session).ledger_id))


@wrong_kinds_are_a_conflict()
def checkpoint(context: Context) -> SignedCheckpoint:
    """The checkpoint of all entries that are committed now; where nothing is new since the last one, that one.

    Raises:
        Problem: 409 ``ledger_not_consistent``: the tree does not begin with what was signed last.
    """
    _integrate(context)
    # Looked at in a read session first: whoever asks for what was signed already keeps nobody waiting.
    with context.database.read() as session:
        _, found = _state(session, context)
    if found is not None:
        return found
    with busy_is_a_problem(context.database), context.database.write() as session:
        return _checkpoint(session, context)


@wrong_kinds_are_a_conflict()
def inclusion(context: Context, entry_id: str, size: int | None = None) -> InclusionProof:
    """Return a proof that the entry is in the tree of a given size, or in the tree of a new checkpoint.

    Raises:
        Problem: 404: there is no such entry. 422: the tree is not that large, or the entry came later.
            409 ``ledger_not_consistent``.
    """
    size = _size(context, size)
    with context.database.read() as session:
        entry, tree = repository.leaf_of(session, entry_id), _tree(session)
        if entry is None:
            raise not_found("entry", entry_id)
        _check_size("tree_size", size, tree.size)
        if entry.tree_index is None or entry.tree_index >= size:
            detail = f"The entry has no place among the first {size}: ask for a larger tree, or leave tree_size out."
            raise _invalid_size("tree_size", detail)
        read = repository.tiles(session)
        _check_leaf(read, entry)
        return InclusionProof(
            entry_id=entry.id,
            budget_id=entry.budget_id,
            entry_hash=entry.hash,
            tree_index=entry.tree_index,
            size=size,
            root=_root(read, size),
            path=merkle.inclusion_path(read, entry.tree_index, size),
            note=_note(session, size),
        )


@wrong_kinds_are_a_conflict()
def consistency(context: Context, first: int, second: int | None = None) -> ConsistencyProof:
    """A proof that the tree of a size begins with a smaller one; the second size None: that of a new checkpoint.

    Raises:
        Problem: 422: a tree is not that large, or the first one is larger. 409 ``ledger_not_consistent``.
    """
    second = _size(context, second)
    with context.database.read() as session:
        _check_size("to_size", second, _tree(session).size)
        _check_size("from_size", first, second)
        read = repository.tiles(session)
        return ConsistencyProof(
            sizes=(first, second),
            roots=(_root(read, first), _root(read, second)),
            path=merkle.consistency_path(read, first, second),
            notes=(_note(session, first), _note(session, second)),
        )


def verify(context: Context, root_id: str, note: str | None = None, *, prices: bool = False) -> Verdict:
    """Verify that the ledger wrote the books, and that they begin with the entries of a kept checkpoint; count it.

    Args:
        context: The process's context.
        root_id: The root of the tree of budgets to look at; "" for all, and for the tree over all entries.
        note: The checkpoint. A signature by a key of this ledger is verified, unless the key is retired; what others
            have signed, the caller has kept.
        prices: Whether charges are compared with today's prices, within the limits of `app.ledger.price_search`.

    Raises:
        Problem: 422 ``invalid_checkpoint``, or ``contradiction`` where it comes with a tree of budgets.
    """
    kept, is_ours = (None, False) if note is None else _kept(context, root_id, note)
    with context.verifications, busy_is_a_problem(context.database):
        search = PriceSearch(context.processes, most=MOST_OVER_HTTP, seconds=SECONDS_OVER_HTTP)
        charges = PriceVerification(search) if prices else None
        verdict = verified(context, root_id, kept=kept, charges=charges)
        if charges is not None:
            # No session is open any more: prices may take long.
            verdict = verdict.with_prices(charges)
    if not root_id:
        context.metrics.ledger_verified(_result(verdict, is_ours=is_ours))
    return verdict


def verified(
    context: Context,
    root_id: str = "",
    *,
    past: Past | None = None,
    kept: Checkpoint | None = None,
    charges: Charges | None = None,
    prove: Callable[[Session], CertificateReport] | None = None,
) -> Verdict:
    """The verdict on the books as they are now; what is committed is given its place in the tree before.

    Args:
        context: The process's context.
        root_id, past, kept: As in `app.ledger.verification.verify`.
        charges: As there.
        prove: Verifies certificates where the books are valid, in the session in which they were read.
    """
    is_stuck = False
    try:
        integrate(context.database)
    except CannotIntegrate:
        is_stuck = True  # and verification finds what is wrong
    with context.database.read() as session:
        verdict = verification.verify(session, root_id, past, kept, charges)
        if prove is not None and verdict.valid:
            verdict = verdict.with_certificates(prove(session))
    if is_stuck and verdict.valid and not root_id:
        return replace(verdict, head=None, tree=None, first_bad=BadPlace(None, None, None, STUCK))
    return verdict


def _result(verdict: Verdict, *, is_ours: bool) -> VerificationResult:
    if verdict.valid:
        return VerificationResult.VALID
    if isinstance(verdict.first_bad, NotAsKept) and not is_ours:
        return VerificationResult.OTHER_CHECKPOINT
    return VerificationResult.INVALID


def _kept(context: Context, root_id: str, note: str) -> tuple[Checkpoint, bool]:
    """The checkpoint that was given, and whether a key of this ledger has signed it."""
    if root_id:
        detail = "A checkpoint is of the entries of all budgets: leave budget_id out, or the checkpoint."
        raise unprocessable("contradiction", detail, "checkpoint")
    try:
        kept, signatures = read_note(note)
        own = [VerifierKey(kept.origin, key) for key in _public_keys(context)]
        # Asked of each, so that a signature that does not verify is never passed over.
        return kept, sum(is_signed_by(key, kept, signatures) for key in own) > 0
    except InvalidNote as error:
        raise unprocessable("invalid_checkpoint", f"The text is refused: {error}.", "checkpoint") from None


def _size(context: Context, given: int | None) -> int:
    if given is None:
        return checkpoint(context).checkpoint.size
    _integrate(context)
    return given


def _integrate(context: Context) -> None:
    with busy_is_a_problem(context.database):
        try:
            integrate(context.database)
        except CannotIntegrate as error:
            raise not_consistent(str(error)) from None


def _checkpoint(session: Session, context: Context) -> SignedCheckpoint:
    tree = repository.lock(session)
    current, found = _state(session, context)
    if found is not None:
        return found
    private = _signing_key(session, context)
    key = str(VerifierKey.of(private, current.origin))
    signed = SignedCheckpoint(current, sign(current, private), key, context.clock())
    number = tree.checkpoints + 1
    values = {
        "number": number,
        "tree_size": current.size,
        "root_hash": current.root,
        "public_key": key,
        "note": signed.note,
        "issued_at": signed.issued_at,
    }
    try:
        repository.update_tree(session, checkpoints=number)
        repository.insert_checkpoint(session, values)
    except (IntegrityError, DataError, OverflowError):
        raise not_consistent(f"the row of the tree says that {tree.checkpoints} checkpoints were signed") from None
    return signed


def _state(session: Session, context: Context) -> tuple[Checkpoint, SignedCheckpoint | None]:
    """The tree as it is now, which begins with what was signed last; and its checkpoint, if the key has signed one."""
    tree = _tree(session)
    try:
        frontier = Frontier(tree.size, tree.frontier)
    except ValueError:
        raise not_consistent("the row of the tree does not say what its leaves make") from None
    current = Checkpoint(origin_of(tree.ledger_id), tree.size, frontier.root())
    newest = repository.newest_checkpoint(session)
    if newest is None:
        return current, None
    _check_consistency(repository.tiles(session), newest, current)
    key = VerifierKey.of(_signing_key(session, context), current.origin)
    found = repository.checkpoint_at(session, tree.size, str(key))
    if found is None:
        return current, None
    _check_note(found.note, key, current)
    return current, SignedCheckpoint(current, found.note, str(key), found.issued_at)


def _signing_key(session: Session, context: Context) -> Ed25519PrivateKey:
    """The key that signs now."""
    return context.secrets.signing_key(versions.newest(session, Purpose.SIGNATURES))


def _public_keys(context: Context) -> list[bytes]:
    """The keys of this ledger that are not retired."""
    with context.database.read() as session:
        known = versions.public_keys(session)
    return known or [context.secrets.signing_key(1).public_key().public_bytes_raw()]


def _check_note(note: str, key: VerifierKey, current: Checkpoint) -> None:
    try:
        said = open_note(note, key)
    except InvalidNote:
        said = None
    if said != current:
        raise not_consistent(f"the checkpoint of {current.size} entries is not the one that was signed")


def _check_consistency(read: Read, newest: Row[Any], current: Checkpoint) -> None:
    """Make both roots from the same nodes: if they agree, the tree begins with the one that was signed."""
    if not 0 <= newest.tree_size <= current.size:
        raise not_consistent(f"a checkpoint of {newest.tree_size} entries was signed, and the tree has {current.size}")
    for size, root in ((newest.tree_size, newest.root_hash), (current.size, current.root)):
        if _root(read, size) != root:
            raise not_consistent(f"the first {size} entries of the tree do not make the root that was kept of them")


def _check_leaf(read: Read, entry: Row[Any]) -> None:
    """See that an entry is what has its place in the tree."""
    try:
        leaf = leaf_hash(bytes.fromhex(entry.hash))
    except ValueError:
        raise not_consistent("the entry has a hash that is none") from None
    if entry.tree_index < 0 or list(read(0, entry.tree_index, 1)) != [leaf]:
        raise not_consistent("the entry is another one than was put into the tree")


def _root(read: Read, size: int) -> bytes:
    try:
        return merkle.root(read, size)
    except LookupError:
        raise not_consistent(f"the tree of {size} entries has nodes that are missing") from None


def _tree(session: Session) -> Row[Any]:
    tree = repository.find(session)
    if tree is None:
        raise not_consistent("the tree is missing")
    return tree


def _note(session: Session, size: int) -> str | None:
    found = repository.checkpoint_at(session, size)
    return None if found is None else str(found.note)


def _check_size(name: str, size: int, largest: int) -> None:
    if size > largest:
        raise _invalid_size(name, f"{name} is {size}; the largest that can be asked for here is {largest}.")


def _invalid_size(name: str, detail: str) -> Problem:
    item = ProblemItem(pointer=f"/query/{name}", code="out_of_range", detail=detail)
    return Problem(422, "invalid_request", detail, errors=[item])
