"""Answers the requests to a witness (C2SP, tlog-witness).

The witness cosigns a tree if the tree continues the one that the witness cosigned before. It refuses any other tree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from epsilond_witness.notes import Key, Malformed, Note, Signature, cosign, read_hash, read_size
from epsilond_witness.state import Conflict, Known, Records, State, now
from epsilond_witness.trees import EMPTY_ROOT, begins_with

#: The most bytes of a request: a note of the largest size, and the longest proof.
MOST_BYTES = 64 * 1024
MOST_HASHES = 63
TEXT, SIZE = "text/plain; charset=utf-8", "text/x.tlog.size"


@dataclass(frozen=True)
class Answer:
    """An answer over HTTP. ``about`` says for the log of requests what was asked."""

    status: int
    body: str
    content_type: str = TEXT
    about: str = ""


@dataclass(frozen=True)
class _Request:
    """The parsed body of a request to ``add-checkpoint``."""

    old_size: int
    path: tuple[bytes, ...]
    note: Note


class Witness:
    """Cosigns checkpoints of the logs that it knows.

    Guarantees: two_histories_at_once_are_decided_one_after_the_other; killed_at_any_moment_it_never_goes_back: for one
    log, the witness never cosigns two roots of one size, a tree that does not begin with everything that it cosigned
    before, or a tree smaller than one that it cosigned before.

    Args:
        private, key: The two halves of its key.
        state: Stores what it has cosigned.
        logs: The keys of the logs; several keys with one name belong to one log.
        clock: Returns the seconds since 1970.
    """

    def __init__(
        self,
        private: Ed25519PrivateKey,
        key: Key,
        state: State,
        logs: Iterable[Key],
        clock: Callable[[], int] = now,
    ) -> None:
        self._private, self._key, self._state, self._clock = private, key, state, clock
        self._logs: dict[str, list[Key]] = {}
        for log in logs:
            self._logs.setdefault(log.name, []).append(log)
        self._origins = {hashlib.sha256(origin.encode()).hexdigest(): origin for origin in self._logs}

    def add_checkpoint(self, body: bytes) -> Answer:
        """Answer a request to cosign a checkpoint. The body has an old size, a proof of consistency, and a note."""
        try:
            request = _read(body)
        except Malformed as error:
            return Answer(400, f"{error}\n")
        note = request.note
        keys = self._logs.get(note.origin)
        if keys is None:
            return Answer(404, f"this witness does not know the log {note.origin}\n", about=note.origin)
        about = f"{note.origin} {note.size}"
        try:
            signed = [signature for key in keys if note.is_signed_by(key) for signature in note.of(key)]
        except Malformed as error:
            return Answer(403, f"{error}\n", about=about)
        if not signed:
            return Answer(403, f"this witness knows no key of {note.origin} that signed the note\n", about=about)
        if request.old_size > note.size:
            return Answer(400, "the old size exceeds the size of the checkpoint\n", about=about)
        with self._state.changing() as records:
            answer = self._decide(records, request, signed)
        return Answer(answer.status, answer.body, answer.content_type, about)

    def checkpoint(self, origin_hash: str) -> Answer:
        """Answer with the newest cosigned checkpoint of a log."""
        origin = self._origins.get(origin_hash)
        if origin is not None:
            with self._state.reading() as records:
                known = records.known(origin)
            if known.note:
                return Answer(200, known.note, about=origin)
        return Answer(404, "this witness has cosigned no checkpoint of a log whose name has this hash\n")

    def _decide(self, records: Records, request: _Request, signed: list[Signature]) -> Answer:
        note = request.note
        known = records.known(note.origin)
        offered = note.with_signatures(signed)
        if request.old_size != known.size:
            if note.size == known.size:
                self._remember(records, note, known, offered)
            return Answer(409, f"{known.size}\n", SIZE)
        if note.size == 0 and note.root != EMPTY_ROOT:
            return Answer(422, "a checkpoint of size 0 must have the root of the empty tree\n")
        if not begins_with((known.size, known.root), (note.size, note.root), request.path):
            self._remember(records, note, known, offered)
            return Answer(422, f"the proof does not show that the tree begins with the {known.size} cosigned leaves\n")
        signature = cosign(note.text, self._private, self._key, self._clock())
        # The checkpoint is on the disk before anybody sees the signature.
        records.keep(note.origin, Known(note.size, note.root, offered + signature.line))
        return Answer(200, signature.line)

    def _remember(self, records: Records, note: Note, known: Known, offered: str) -> None:
        """Keep the offered checkpoint if the log has signed it and it contradicts the one that was cosigned before."""
        is_proof = note.size == known.size and note.root != known.root
        if known.note and (is_proof or note.size > known.size):
            records.add_conflict(Conflict(note.origin, self._clock(), known.note, offered, is_proof))


def _read(body: bytes) -> _Request:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Malformed("the body must be a text in UTF-8") from None
    head, blank, note = text.partition("\n\n")
    old, *hashes = head.split("\n")
    if not blank or not old.startswith("old ") or len(hashes) > MOST_HASHES:
        raise Malformed("the body must be `old SIZE`, up to 63 lines of hashes, an empty line and a signed note")
    return _Request(read_size(old.removeprefix("old ")), tuple(map(read_hash, hashes)), Note.parse(note))
