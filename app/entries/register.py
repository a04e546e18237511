"""The register as its entries describe it. This module is pure.

Its entries are in the tree over all entries, in a chain of their own. The first entry about a subject has the columns
of its row, a later one says what has changed, and no entry follows the end of a subject.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from accounting.canonical import Json
from app.entries.kinds import EntryKind
from app.entries.records import EntryRecord
from app.entries.subjects import FIRST_SUBJECTS, LATER, Subject
from app.kit.hash_chain import GENESIS
from app.tables.states import REGISTER


class Refused(Exception):
    """An entry says something that the service would not have entered; the message says what."""


#: The errors that malformed bytes cause in the code that reads entries of the register.
UNREADABLE = (Refused, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass
class Told:
    """A subject of the register, as its entries describe it.

    Attributes:
        subject, id: The kind of the subject and its id.
        columns: The columns of its row, with their last values.
        has_ended: Whether its last entry was its end.
    """

    subject: Subject
    id: str
    columns: dict[str, Json]
    has_ended: bool = False

    @property
    def is_final(self) -> bool:
        """Return whether no further entry about the subject can follow."""
        return self.has_ended or not LATER[self.subject]


@dataclass
class Register:
    """Process the entries of the register in order.

    Attributes:
        sequence, head_hash: Those of the last entry.
        told: The subjects that may still change, by id.
    """

    sequence: int = 0
    head_hash: str = GENESIS
    told: dict[str, Told] = field(default_factory=dict)

    @property
    def subjects(self) -> frozenset[Subject]:
        """Return the subjects of which every row is registered."""
        itself = self.told.get(REGISTER)
        if itself is not None:
            return subjects_in(itself.columns)
        return FIRST_SUBJECTS if self.sequence else frozenset()

    def enter(self, record: EntryRecord, hashed: str) -> Told | None:
        """Apply the next entry.

        Returns:
            The subject, if this was its last possible entry; it is forgotten here.

        Raises:
            Refused: the service would not have entered it.
            KeyError, TypeError, ValueError: it lacks what an entry of the register must say.
        """
        told = self._after(record)
        self.sequence, self.head_hash = record.sequence, hashed
        if told.is_final:
            self.told.pop(told.id, None)
            return told
        self.told[told.id] = told
        return None

    def _after(self, record: EntryRecord) -> Told:
        if record.amounts or record.events or record.reservation_id is not None or record.subject_id is None:
            raise Refused("a register entry must be about one subject and must charge nothing")
        details = record.details or {}
        subject, said = Subject(str(details["subject"])), details["says"]
        if not isinstance(said, Mapping):
            raise TypeError("a register entry must list the columns of a row")
        later, before = LATER[subject], self.told.get(record.subject_id)
        if record.kind is EntryKind.REGISTER:
            if before is not None:
                raise Refused(f"the {subject} {record.subject_id} is registered already")
            if said.get("id") != record.subject_id:
                raise Refused("the row that the entry describes belongs to another subject")
            if subject is Subject.REGISTER and record.subject_id != REGISTER:
                raise Refused("the ledger has only one register")
            return Told(subject, record.subject_id, dict(said))
        if before is None or before.subject is not subject:
            raise Refused(f"no {subject} {record.subject_id} is registered, or it has ended")
        if record.kind not in later:
            raise Refused(f"an entry about a {subject} cannot be of the kind {record.kind}")
        if not said.keys() <= set(later[record.kind]):
            raise Refused(f"the entry changes a column that the first entry about a {subject} fixed for ever")
        now = Told(subject, before.id, {**before.columns, **said}, has_ended=record.kind is EntryKind.END)
        if subject is Subject.REGISTER and not subjects_in(now.columns) > subjects_in(before.columns):
            raise Refused("an entry about the register may only add subjects, and this one removes some")
        return now


def subjects_in(columns: Mapping[str, Json]) -> frozenset[Subject]:
    """Return the subjects that an entry about the register itself lists.

    Raises:
        KeyError, TypeError, ValueError: it has no list, or lists an unknown subject.
    """
    listed = columns["subjects"]
    if not isinstance(listed, list):
        raise TypeError("subjects must be a list")
    return frozenset(map(Subject, listed))


def told_by(entries: Iterable[tuple[EntryRecord, str]]) -> Told | None:
    """Return a subject as all entries about it describe it in the end; None if there are none.

    Args:
        entries: The entries with their hashes, oldest first.

    Raises:
        Refused: the service would not have entered one of them.
        KeyError, TypeError, ValueError: one of them lacks what an entry of the register must say.
    """
    register, told = Register(), None
    for record, hashed in entries:
        if told is not None and told.is_final:
            raise Refused(f"the register has another entry about {told.id} after its end")
        told = register.enter(record, hashed) or register.told[str(record.subject_id)]
    return told
