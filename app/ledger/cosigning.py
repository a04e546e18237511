"""Ask witnesses to cosign the newest checkpoint (C2SP, tlog-witness). This happens outside the transactions of
commands, so a witness that is away keeps nobody waiting.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import structlog
from sqlalchemy.orm import Session

from app.context import Context
from app.db.failures import DATABASE_FAILURES, busy_is_a_problem
from app.fence.watching import fence_of
from app.kit.asking import NoAnswer, Reply, ask
from app.ledger import cosignature_repository as repository
from app.ledger import proving, transparency
from app.ledger.checkpoints import Checkpoint, InvalidNote, read_signatures
from app.ledger.cosignatures import signatures_of
from app.ledger.transparency import SignedCheckpoint
from app.ledger.witnesses import Witness, witnesses_of
from app.observability.stack import stack_lines
from app.problems import Problem

log = structlog.get_logger("epsilond.witnesses")

#: The seconds between two checks of which witnesses are due.
LOOK_S = 1.0
#: The number of witnesses that are asked at the same time.
_AT_ONCE = 8
#: A witness whose clock is further away than this is not believed.
_CLOCKS_DIFFER = timedelta(hours=1)
#: The most requests to one witness in a row: another server of this database may have had a newer size cosigned.
_TRIES = 4


class Result(StrEnum):
    """The result of asking a witness."""

    COSIGNED = "cosigned"
    UNREACHABLE = "unreachable"
    """It does not answer."""
    REFUSED = "refused"
    """It does not know this ledger or its key, or its answer has a status or a size that the protocol does not "
    "allow."""
    INVALID = "invalid"
    """Its cosignature does not verify, or its clock is wrong."""
    AHEAD = "ahead"
    """It has cosigned more entries than there are: entries are lost, or this is not the database that it knows."""
    INCONSISTENT = "inconsistent"
    """The tree does not begin with what it has cosigned: the history was rewritten."""


#: The results that no network failure explains.
CONTRADICTIONS = (Result.AHEAD, Result.INCONSISTENT)


@dataclass(frozen=True)
class Asked:
    """A witness, the result of asking it, and the status of its answer, if there was one."""

    witness: Witness
    result: Result
    status: int | None = None


@dataclass(frozen=True)
class Standing:
    """The last cosignature of a witness.

    Attributes:
        witness: The witness.
        size: The number of entries that it has cosigned; None if it has cosigned nothing.
        cosigned_at: The time of the cosignature, by the witness's clock.
        is_fresh: Whether this time is recent enough to count.
    """

    witness: Witness
    size: int | None
    cosigned_at: datetime | None
    is_fresh: bool


def standings(session: Session, context: Context) -> list[Standing]:
    """Return what each witness has cosigned last."""
    witnesses, now = witnesses_of(context.settings), context.clock()
    last = repository.last(session, witnesses.keys)
    found = []
    for witness in witnesses.members:
        size, at = last.get(str(witness.key), (None, None))
        is_fresh = at is not None and (now - at).total_seconds() <= witnesses.fresh_s
        found.append(Standing(witness, size, at, is_fresh))
    return found


def ask_all(context: Context, witnesses: Sequence[Witness]) -> list[Asked]:
    """Ask each witness to cosign all entries so far, and store the cosignatures.

    Raises:
        Problem: 409 ``ledger_not_consistent``: there is no checkpoint to be cosigned.
    """
    signed = transparency.checkpoint(context)
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(lambda witness: _asked(context, witness, signed), witnesses))


class Cosigner:
    """The thread of a server that asks each witness once in an interval. Several servers share the work."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked: dict[Witness, datetime] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cosigning", daemon=True)

    def start(self) -> None:
        for witness in witnesses_of(self._context.settings).members:
            for result in Result:
                self._context.metrics.witness_asked(witness.key.name, result, 0)
        self._thread.start()

    def stop(self) -> None:
        """Stop asking. A request under way ends by its time limit, or with the process."""
        self._stopping.set()

    def ask_due(self) -> list[Asked]:
        """Ask the witnesses whose newest cosignature is older than the interval and that were not asked within it."""
        context, now = self._context, self._context.clock()
        before = now - timedelta(seconds=context.settings.witness_interval_s)
        with context.database.read() as session:
            old = [each.witness for each in standings(session, context) if (each.cosigned_at or before) <= before]
        due = [witness for witness in old if self._asked.get(witness, before) <= before]
        if not due:
            return []
        self._asked.update(dict.fromkeys(due, now))
        asked = ask_all(context, due)
        for each in asked:
            context.metrics.witness_asked(each.witness.key.name, each.result)
            if each.result is not Result.COSIGNED:
                say = log.error if each.result in CONTRADICTIONS else log.warning
                say("not_cosigned", witness=each.witness.key.name, result=str(each.result), status=each.status)
        return asked

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                # A database that may have lost entries is not shown to witnesses.
                if fence_of(self._context).look():
                    self.ask_due()
            except (Problem, *DATABASE_FAILURES) as error:
                log.warning("witnesses_not_asked", error_type=type(error).__name__)
            except Exception as error:
                log.error("cosigning_failed", error_type=type(error).__name__, raised_at=stack_lines(error))


def _asked(context: Context, witness: Witness, signed: SignedCheckpoint) -> Asked:
    with context.database.read() as session:
        known, _ = repository.last(session, [witness.key]).get(str(witness.key), (0, None))
    reply = None
    try:
        for _ in range(_TRIES):
            if known > signed.checkpoint.size:
                # Another server of this database may have had more entries cosigned meanwhile.
                signed = transparency.checkpoint(context)
                if known > signed.checkpoint.size:
                    return Asked(witness, Result.AHEAD, None if reply is None else reply.status)
            body = _request(context, known, signed)
            reply = ask(f"{witness.address}/add-checkpoint", body=body, headers={"Content-Type": "text/plain"})
            if reply.status != 409:
                break
            known = _size_in(reply)
    except NoAnswer:
        return Asked(witness, Result.UNREACHABLE)
    except ValueError:
        return Asked(witness, Result.REFUSED, None if reply is None else reply.status)
    assert reply is not None
    if reply.status == 422:
        return Asked(witness, Result.INCONSISTENT, reply.status)
    if reply.status != 200:
        return Asked(witness, Result.REFUSED, reply.status)
    return Asked(witness, _kept(context, witness, signed.checkpoint, reply), reply.status)


def _request(context: Context, known: int, signed: SignedCheckpoint) -> bytes:
    path = proving.consistency_path(context, known, signed.checkpoint.size)
    lines = [f"old {known}", *(base64.b64encode(node).decode() for node in path)]
    return "\n".join([*lines, "", signed.own_note]).encode()


def _size_in(reply: Reply) -> int:
    """Return the size in an answer of status 409.

    Raises:
        ValueError: the answer has no size.
    """
    text = reply.body.decode("ascii").removesuffix("\n")
    if not text.isdigit() or len(text) > 18:
        raise ValueError("the answer is not a number of entries")
    return int(text)


def _kept(context: Context, witness: Witness, checkpoint: Checkpoint, reply: Reply) -> Result:
    """Store the cosignature in an answer, if it has a valid one."""
    key = witness.key
    try:
        signatures = signatures_of(key, read_signatures(reply.body.decode()))
        times = {key.cosigned_at(checkpoint, signature): signature for signature in signatures}
        newest = max(times)
        at = datetime.fromtimestamp(newest, UTC)
    except (InvalidNote, ValueError, OverflowError, OSError):
        return Result.INVALID
    if abs(at - context.clock()) > _CLOCKS_DIFFER:
        return Result.INVALID
    with busy_is_a_problem(context.database), context.database.write() as session:
        repository.keep(session, checkpoint.size, key, at, times[newest])
    return Result.COSIGNED
