"""Answers: the service's JSON, read-only, with its fields as attributes.

Every field of an answer has its documented name, even if the field is newer than this package. The classes below state
the types of the most used fields; the fields of any other `Answer` are ``Any``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from epsilond_client import rendering

Event = Mapping[str, Any]
Amounts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval that contains the truth. Charge `upper`; `estimate` is for plots."""

    lower: float
    estimate: float
    upper: float


class Document(Mapping[str, Any]):
    """A JSON object: ``document["field"]`` is the plain JSON, and ``document.field`` the same with nested documents.

    It is a mapping, so fields with the names of a mapping's methods (`items`, `keys`, `values`, `get`) must be read in
    brackets.
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return rendering.line_of(type(self).__name__, self._fields)

    def _repr_html_(self) -> str:
        """Return a table of the fields, which notebooks show."""
        return rendering.table_of(type(self).__name__, self._fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._fields,)

    if not TYPE_CHECKING:  # Type checkers do not see this method, so they know only the fields that a class declares.

        def __getattr__(self, name: str) -> Any:
            try:
                value = self._fields[name]
            except KeyError:
                raise AttributeError(f"{type(self).__name__} has no field {name!r}") from None
            return _wrapped(name, value)


class Answer(Document):
    """An answer without a class of its own."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Calibration(Answer):
    """Noise for a target, and the plan of a run; it prints its numbers."""

    __slots__ = ()

    def __repr__(self) -> str:
        return rendering.line_of_calibration(self)


class Progress(Document):
    """The steps of a run, as a count."""

    __slots__ = ()
    if TYPE_CHECKING:
        done: int
        total: int
        unit: str


class ProgressMessage(Document):
    """A stream's message about a run, at most one per second."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        state: str
        progress: Progress
        problem: Answer | None


class Run(Document):
    """A private training."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        state: str
        algorithm: str
        progress: Progress
        dataset_id: str | None
        dataset_version: int | None
        budget_id: str | None
        reservation_id: str | None
        sweep_id: str | None
        plan_hash: str
        dtype: str | None
        dtype_reason: str | None
        choices: Sequence[Mapping[str, Any]]
        theorem_note: str | None
        plan: Answer | None
        charge: Amounts | None
        given_back: Amounts | None
        price: Answer | None
        result: Answer | None
        problem: Answer | None
        warnings: Sequence[str]

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


class Card(Answer):
    """The privacy card of a run: the guarantee in words and numbers, its basis, and what it does not cover."""

    __slots__ = ()
    if TYPE_CHECKING:
        run_id: str
        state: str
        statement: str
        privacy_unit: str
        neighbors: str
        algorithm: str
        plan_hash: str
        seeded: bool
        budget_id: str | None
        reservation_id: str | None
        events: Sequence[Event]
        caveats: Sequence[str]
        data: Answer
        scores: Sequence[Mapping[str, Any]]

    def __repr__(self) -> str:
        return f"<Card of {self._fields.get('run_id')}: {self._fields.get('statement')}>"

    def _repr_html_(self) -> str:
        return rendering.page_of_card(self)


class Budget(Document):
    """A limit on the privacy loss of everything that is released from one body of data."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        name: str
        neighboring_relation: str
        privacy_unit: str
        filter: Answer
        parent_id: str | None
        epsilon: Answer | None
        rho: Answer | None
        mu: Answer | None
        share: Answer
        amounts: Answer
        overdue: int
        overdrawn: bool
        labels: Mapping[str, str]
        report: Answer | None

    def __repr__(self) -> str:
        return rendering.line_of_budget(self)

    def _repr_html_(self) -> str:
        return rendering.table_of(rendering.usage(self) or "Budget", self)


class Reservation(Document):
    """A part of a budget that is held before noise is drawn."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        budget_id: str
        state: str
        overdue: bool
        cost: Answer
        charged: Answer | None
        given_back: Answer | None
        remaining: Answer
        events: Sequence[Event]
        charged_events: Sequence[Event] | None
        purpose: str
        run_id: str | None
        plan_hash: str | None
        certificate: str | None

    @property
    def expires_at(self) -> datetime:
        return datetime.fromisoformat(self["expires_at"])


class Entry(Document):
    """A step of the ledger that nobody changes or deletes."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        budget_id: str
        sequence: int
        leaf_index: int
        kind: str
        amount: Answer
        given_back: Answer | None
        events: Sequence[Event]
        reservation_id: str | None
        refers_to: str | None
        dataset: Answer | None
        principal_id: str
        principal_name: str | None
        purpose: str | None
        reason: str | None
        hash: str
        previous_hash: str


class DatasetVersion(Document):
    """A version of a data set, as its owner declared it; never its rows."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        dataset_id: str
        version: int
        change: str | None
        reason: str | None
        declared_size: int
        capacity: int
        erased: bool
        #: Only in the answer to whoever added the version; null if the service made the version without some persons.
        owner_report: Mapping[str, Any] | None


class Dataset(Document):
    """The owner's declaration of a data set; never its rows."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        name: str
        public: bool
        #: The newest version, which the sizes describe.
        version: int
        declared_size: int
        capacity: int
        #: The most memory that a run's rows take in a worker.
        run_memory_bytes: int
        privacy_unit: str
        columns: Sequence[Mapping[str, Any]]
        label: str
        person_column: str | None
        rows_per_person: int | None
        held_out_share: float | None
        budget_id: str | None
        #: Only the owner of the data set gets these.
        warnings: Sequence[Mapping[str, Any]]
        #: Only in the answer to an upload.
        owner_report: Answer


class Key(Document):
    """An API key. Only the answer that created it has its `token`, and no repr shows the token."""

    __slots__ = ()
    if TYPE_CHECKING:
        id: str
        name: str
        scopes: Sequence[str]
        budgets: Sequence[str] | None
        state: str

    @property
    def token(self) -> str | None:
        token: str | None = self.get("token")
        return token


#: The states that a run never leaves.
ENDED = frozenset({"succeeded", "failed", "cancelled"})
_CLASSES: Mapping[str, type[Document]] = {"progress": Progress}

D = TypeVar("D", bound=Document)


def _wrapped(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return Interval(**value) if value.keys() == rendering.INTERVAL else _CLASSES.get(name, Answer)(value)
    if isinstance(value, list):
        return tuple(_wrapped(name, item) for item in value)
    return value
