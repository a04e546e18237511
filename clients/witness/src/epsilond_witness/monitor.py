"""A monitor of a service's ledger: it keeps the newest checkpoint, and checks that each later one continues it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from epsilond_witness.asking import Refused, Unreachable, ask
from epsilond_witness.notes import WIDTH, Key, Malformed, Note
from epsilond_witness.state import now, sync
from epsilond_witness.trees import begins_with

_CHECKPOINT = "/v1/ledger/checkpoint"
#: The clocks of two machines may differ by _CLOCKS_DIFFER_S seconds. At most _MOST_CONTRADICTIONS pairs are kept.
_CLOCKS_DIFFER_S = 120
_MOST_CONTRADICTIONS = 100


class Alert(StrEnum):
    """A fault of a ledger, or a reason why the monitor could not check it."""

    INCONSISTENT = "inconsistent"
    """The history was rewritten: a checkpoint does not continue the previous one."""
    SMALLER = "smaller"
    """The ledger has fewer entries than before."""
    UNSIGNED = "unsigned"
    """The answer is not a checkpoint, belongs to another ledger, or lacks a signature of the ledger's key."""
    NOT_WITNESSED = "not_witnessed"
    """No checkpoint has the cosignatures of enough witnesses."""
    STALE = "stale"
    """The witnesses' last cosignatures are too old."""
    UNREACHABLE = "unreachable"
    """The service gives no answer, or refuses the request."""


class _Wrong(Exception):
    def __init__(self, alert: Alert, detail: str, notes: tuple[Note, ...] = ()) -> None:
        super().__init__(detail)
        self.alert, self.detail, self.notes = alert, detail, notes


@dataclass(frozen=True)
class Look:
    """The findings of one look at a ledger.

    Attributes:
        at: The time of the look, in seconds since 1970.
        size: The number of entries of the newest accepted checkpoint; None if there is none.
        cosigned_at: When enough witnesses had cosigned; None if no witnesses are required, or if there were not enough.
        alerts: The faults, each with a description in words; empty if there are none.
    """

    at: int
    size: int | None
    cosigned_at: int | None
    alerts: Mapping[Alert, str]

    def body(self) -> dict[str, Any]:
        """Return the findings in JSON's own types."""
        return {
            "at": self.at,
            "size": self.size,
            "cosigned_at": self.cosigned_at,
            "alerts": [{"alert": str(alert), "detail": detail} for alert, detail in self.alerts.items()],
        }


@dataclass(frozen=True)
class Monitor:
    """Follows one ledger.

    Attributes:
        folder: The folder for the newest checkpoint, and for pairs of checkpoints that contradict each other.
        url: The address of the service.
        logs: The keys that sign the ledger's checkpoints; all have the same name.
        token: An API key of the service with the scope ``auditor``.
        witnesses, quorum: A good checkpoint has cosignatures of ``quorum`` of these keys.
        max_age_s: The age in seconds up to which a cosignature counts towards the quorum without an alert.
        clock: Returns the seconds since 1970.
    """

    folder: Path
    url: str
    logs: tuple[Key, ...]
    token: str = ""
    witnesses: tuple[Key, ...] = ()
    quorum: int = 0
    max_age_s: int = 600
    clock: Callable[[], int] = field(default=now)

    def __post_init__(self) -> None:
        if len({log.name for log in self.logs}) != 1:
            raise ValueError("all keys of the ledger must have the same name")
        if len({witness.public for witness in self.witnesses}) < len(self.witnesses):
            raise ValueError("two of the witnesses have the same key; name each witness once")
        if not 0 <= self.quorum <= len(self.witnesses):
            raise ValueError(f"{self.quorum} witnesses cannot cosign if there are only {len(self.witnesses)}")

    def look(self) -> Look:
        """Ask the service for its checkpoints, and compare them with what was seen before."""
        alerts: dict[Alert, str] = {}
        cosigned_at = None
        kept = self._kept()
        try:
            # The witnesses are asked first, since the ledger may grow between the two requests.
            witnessed = self._witnessed(alerts) if self.quorum else None
            newest = self._checkpoint({})
            for before in (kept, witnessed):
                if before is not None:
                    self._check(before, newest)
            self._keep("newest.txt", newest.with_signatures(newest.signatures))
            kept = newest
            if witnessed is not None:
                cosigned_at = self._quorum_at(witnessed)
                age = self.clock() - cosigned_at
                if age > self.max_age_s:
                    alerts[Alert.STALE] = (
                        f"{self.quorum} witnesses last cosigned {age} seconds ago, and that is too long"
                    )
        except _Wrong as wrong:
            alerts[wrong.alert] = wrong.detail
            self._keep_contradiction(wrong.notes)
        except Refused as error:
            is_inconsistent = error.code == "ledger_not_consistent"
            alerts[Alert.INCONSISTENT if is_inconsistent else Alert.UNREACHABLE] = str(error)
        except Unreachable as error:
            alerts[Alert.UNREACHABLE] = str(error)
        return Look(self.clock(), None if kept is None else kept.size, cosigned_at, alerts)

    def _witnessed(self, alerts: dict[Alert, str]) -> Note | None:
        """Return the newest checkpoint that enough witnesses have cosigned."""
        try:
            return self._checkpoint({"witnessed": "true"})
        except Refused as error:
            if error.code != "not_witnessed":
                raise
        alerts[Alert.NOT_WITNESSED] = "the service has no checkpoint that enough of its witnesses have cosigned"
        return None

    def _checkpoint(self, query: Mapping[str, str]) -> Note:
        text = self._ask(_CHECKPOINT, query, "text/plain")
        try:
            note = Note.parse(text.decode())
            if note.origin != self.logs[0].name:
                raise Malformed(f"it belongs to {note.origin}, not to {self.logs[0].name}")
            if not sum(note.is_signed_by(log) for log in self.logs):
                raise Malformed(f"none of the given keys of {note.origin} has signed it")
        except (Malformed, UnicodeDecodeError) as error:
            reason = "it is not a text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            raise _Wrong(Alert.UNSIGNED, f"the checkpoint is refused: {reason}") from None
        return note

    def _check(self, before: Note, after: Note) -> None:
        """Check that a checkpoint continues another one.

        Raises:
            _Wrong: the checkpoint does not.
        """
        notes = (before, after)
        if after.size < before.size:
            detail = f"the ledger had {before.size} entries, and now has only {after.size}"
            raise _Wrong(Alert.SMALLER, detail, notes)
        path = () if before.size in (0, after.size) else self._path(before.size, after.size)
        if not begins_with((before.size, before.root), (after.size, after.root), path):
            detail = f"no proof shows that the {after.size} entries begin with the earlier {before.size} entries"
            raise _Wrong(Alert.INCONSISTENT, detail, notes)

    def _path(self, first: int, second: int) -> tuple[bytes, ...]:
        text = self._ask("/v1/ledger/consistency", {"from_size": str(first), "to_size": str(second)})
        try:
            path = tuple(bytes.fromhex(node) for node in json.loads(text)["path"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Unreachable("the service answered with something other than a proof of consistency") from None
        return path if all(len(node) == WIDTH for node in path) else ()

    def _quorum_at(self, note: Note) -> int:
        """Return the time at which enough witnesses had cosigned a note.

        Of the newest cosignatures that make the quorum, the time of the oldest counts.

        Raises:
            _Wrong: too few witnesses have cosigned.
        """
        try:
            times = [time for each in self.witnesses if (time := note.cosigned_at(each)) is not None]
        except Malformed as error:
            raise _Wrong(Alert.NOT_WITNESSED, str(error)) from None
        latest = self.clock() + _CLOCKS_DIFFER_S
        past = sorted((time for time in times if time <= latest), reverse=True)
        if len(past) < self.quorum:
            others = f", and {len(times) - len(past)} gave a time in the future" if len(past) < len(times) else ""
            raise _Wrong(Alert.NOT_WITNESSED, f"{self.quorum} witnesses must cosign, but {len(past)} did{others}")
        return past[self.quorum - 1]

    def _ask(self, path: str, query: Mapping[str, str], accept: str = "application/json") -> bytes:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        headers = {"Accept": accept} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        return ask(f"{self.url.rstrip('/')}{path}{f'?{asked}' if asked else ''}", headers)

    def _kept(self) -> Note | None:
        path = self.folder / "newest.txt"
        return Note.parse(path.read_text()) if path.exists() else None

    def _keep_contradiction(self, notes: tuple[Note, ...]) -> None:
        """Keep notes that contradict each other. Each pair is kept once, and the number of pairs is limited."""
        name = f"contradiction-{hashlib.sha256(''.join(note.text for note in notes).encode()).hexdigest()[:16]}.txt"
        kept = {path.name for path in self.folder.glob("contradiction-*.txt")}
        if notes and name not in kept and len(kept) < _MOST_CONTRADICTIONS:
            self._keep(name, "\n".join(note.with_signatures(note.signatures) for note in notes))

    def _keep(self, name: str, text: str) -> None:
        """Write a file, replacing an existing one, so that it is complete even after a power cut."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.folder / f"{name}.part"
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.folder / name)
        sync(self.folder)
