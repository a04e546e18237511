"""Evidence to keep and check elsewhere: signed checkpoints, and proofs that lead to their roots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Row
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from app.context import Context
from app.db.failures import busy_is_a_problem
from app.ledger import cosignature_repository, merkle, verification
from app.ledger import tree_repository as repository
from app.ledger.books import BadPlace, Charges
from app.ledger.checkpoints import (
    Checkpoint,
    InvalidNote,
    Signature,
    VerifierKey,
    is_signed_by,
    open_note,
    origin_of,
    read_note,
    sign,
)
from app.ledger.cosignatures import WitnessKey, cosigned_by
from app.ledger.integration import STUCK, CannotIntegrate, integrate
from app.ledger.merkle import Frontier, Read
from app.ledger.price_search import MOST_OVER_HTTP, SECONDS_OVER_HTTP, PriceSearch
from app.ledger.price_verification import PriceVerification
from app.ledger.stored_values import not_consistent, wrong_kinds_are_a_conflict
from app.ledger.verdicts import CertificateReport, NotAsKept, Past, Verdict
from app.ledger.witnesses import witnesses_of
from app.observability.metrics import VerificationResult
from app.problems import Problem, unprocessable
from app.secrets import versions
from app.secrets.material import Purpose


@dataclass(frozen=True)
class SignedCheckpoint:
    """A checkpoint as it was handed out.

    Attributes:
        checkpoint: What it says.
        note: The text to keep, with the cosignatures.
        public_key: The key that verifies it.
        issued_at: When it was signed.
        cosignatures: The cosignatures of the witnesses that the settings name.
    """

    checkpoint: Checkpoint
    note: str
    public_key: str
    issued_at: datetime
    cosignatures: tuple[Signature, ...] = ()

    @property
    def own_note(self) -> str:
        """Return the note without cosignatures."""
        return self.note.removesuffix("".join(each.line for each in self.cosignatures))


@wrong_kinds_are_a_conflict()
def verifier_key(context: Context) -> VerifierKey:
    """Return the public key that verifies the checkpoints that are signed now."""
    with context.database.read() as session:
        return VerifierKey.of(_signing_key(session, context), origin_of(tree_of(session).ledger_id))


@wrong_kinds_are_a_conflict()
def checkpoint(context: Context) -> SignedCheckpoint:
    """Return the checkpoint of all committed entries; if nothing is new since the last checkpoint, return that one.

    Raises:
        Problem: 409 ``ledger_not_consistent``: the tree does not begin with what was signed last.
    """
    integrated(context)
    # This looks in a read session first: a request for the signed checkpoint must block nobody.
    with context.database.read() as session:
        _, found = _state(session, context)
    if found is not None:
        return found
    with busy_is_a_problem(context.database), context.database.write() as session:
        return _checkpoint(session, context)


@wrong_kinds_are_a_conflict()
def witnessed(context: Context) -> SignedCheckpoint:
    """Return the newest checkpoint that enough witnesses have cosigned.

    Raises:
        Problem: 409 ``not_witnessed``: there is none. 409 ``ledger_not_consistent``.
    """
    witnesses = witnesses_of(context.settings)
    with context.database.read() as session:
        size = cosignature_repository.newest_size(session, witnesses.keys, witnesses.quorum)
        if size is None:
            reason = f"{witnesses.quorum} of {len(witnesses.members)} witnesses must cosign one"
            if not witnesses.members:
                reason = "EPSILOND_WITNESSES names no witness"
            raise Problem(409, "not_witnessed", f"There is no witnessed checkpoint: {reason}.")
        found = repository.checkpoint_at(session, size)
        origin, read = origin_of(tree_of(session).ledger_id), repository.tiles(session)
        if found is None or root_of(read, size) != found.root_hash:
            raise not_consistent(f"{size} entries were cosigned, but the tree does not begin with them")
        current = Checkpoint(origin, size, found.root_hash)
        key = _key(found.public_key)
        _check_note(found.note, key, current)
        signed = _cosigned(session, context, SignedCheckpoint(current, found.note, str(key), found.issued_at))
    if len(signed.cosignatures) < witnesses.quorum:
        raise not_consistent(f"fewer of the stored cosignatures of {size} entries are valid than the quorum requires")
    return signed


def verify(context: Context, root_id: str, note: str | None = None, *, prices: bool = False) -> Verdict:
    """Verify that the ledger wrote the books, and that they begin with the entries of a kept checkpoint. Metrics count
    the result.

    Args:
        context: The process's context.
        root_id: The root of the tree of budgets to look at; "" for all, and for the tree over all entries.
        note: The checkpoint. A signature by a key of this ledger is verified, unless the key is retired. A checkpoint
            that only others have signed is accepted as the caller kept it.
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
            # This runs after the session is closed, since prices may take long.
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
    """Return the verdict on the books as they are now. Committed entries get their places in the tree first.

    Args:
        context: The process's context.
        root_id, past, kept: As in `app.ledger.verification.verify`.
        charges: As in `app.ledger.verification.verify`.
        prove: A function that verifies certificates if the books are valid, in the same session.
    """
    is_stuck = False
    try:
        integrate(context.database)
    except CannotIntegrate:
        is_stuck = True  # verification will find out what is wrong
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
    """Return the given checkpoint, and whether a key of this ledger has signed it."""
    if root_id:
        detail = "A checkpoint covers the entries of all budgets: leave out either budget_id or the checkpoint."
        raise unprocessable("contradiction", detail, "checkpoint")
    try:
        kept, signatures = read_note(note)
        own = [VerifierKey(kept.origin, key) for key in _public_keys(context)]
        # Every key is checked, so that a signature that does not verify is never passed over.
        return kept, sum(is_signed_by(key, kept, signatures) for key in own) > 0
    except InvalidNote as error:
        raise unprocessable("invalid_checkpoint", f"The text is refused: {error}.", "checkpoint") from None


def integrated(context: Context) -> None:
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
    return _cosigned(session, context, signed)


def _state(session: Session, context: Context) -> tuple[Checkpoint, SignedCheckpoint | None]:
    """Return the present tree, after checking that it begins with what was signed last, and its checkpoint, if the key
    has signed one."""
    tree = tree_of(session)
    try:
        frontier = Frontier(tree.size, tree.frontier)
    except ValueError:
        raise not_consistent("the row of the tree differs from what its leaves give") from None
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
    return current, _cosigned(session, context, SignedCheckpoint(current, found.note, str(key), found.issued_at))


def _cosigned(session: Session, context: Context, signed: SignedCheckpoint) -> SignedCheckpoint:
    """Return the checkpoint with the cosignatures of witnesses; one that does not verify is left out."""
    keys = witnesses_of(context.settings).keys
    stored = cosignature_repository.of_size(session, signed.checkpoint.size, keys) if keys else []
    good = tuple(each for each in stored if _is_good(keys, signed.checkpoint, each))
    return replace(signed, note=signed.note + "".join(each.line for each in good), cosignatures=good)


def _is_good(keys: Sequence[WitnessKey], checkpoint: Checkpoint, signature: Signature) -> bool:
    try:
        return bool(cosigned_by(keys, checkpoint, [signature]))
    except InvalidNote:
        return False


def _signing_key(session: Session, context: Context) -> Ed25519PrivateKey:
    """Return the key that signs now."""
    return context.secrets.signing_key(versions.newest(session, Purpose.SIGNATURES))


def _public_keys(context: Context) -> list[bytes]:
    """Return the keys of this ledger that are not retired."""
    with context.database.read() as session:
        known = versions.public_keys(session)
    return known or [context.secrets.signing_key(1).public_key().public_bytes_raw()]


def _check_note(note: str, key: VerifierKey, current: Checkpoint) -> None:
    try:
        said = open_note(note, key)
    except InvalidNote:
        said = None
    if said != current:
        raise not_consistent(f"the checkpoint of {current.size} entries differs from the one that was signed")


def _check_consistency(read: Read, newest: Row[Any], current: Checkpoint) -> None:
    """Check that the tree begins with the one that was signed last, by computing both roots from the same nodes."""
    if not 0 <= newest.tree_size <= current.size:
        raise not_consistent(f"a checkpoint of {newest.tree_size} entries was signed, and the tree has {current.size}")
    for size, root in ((newest.tree_size, newest.root_hash), (current.size, current.root)):
        if root_of(read, size) != root:
            raise not_consistent(f"the first {size} entries of the tree do not give the root that was kept")


def root_of(read: Read, size: int) -> bytes:
    try:
        return merkle.root(read, size)
    except LookupError:
        raise not_consistent(f"the tree of {size} entries has nodes that are missing") from None


def tree_of(session: Session) -> Row[Any]:
    tree = repository.find(session)
    if tree is None:
        raise not_consistent("the tree is missing")
    return tree


def note_of(session: Session, context: Context, size: int) -> str | None:
    """Return the note of the newest checkpoint of a size, with the cosignatures of witnesses."""
    found = repository.checkpoint_at(session, size)
    if found is None:
        return None
    current = Checkpoint(origin_of(tree_of(session).ledger_id), size, found.root_hash)
    return _cosigned(session, context, SignedCheckpoint(current, found.note, found.public_key, found.issued_at)).note


def _key(text: str) -> VerifierKey:
    try:
        return VerifierKey.parse(text)
    except InvalidNote:
        raise not_consistent("a checkpoint names a malformed key") from None
