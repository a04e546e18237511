"""Carry out instructions on the stored ledger, each completely or not at all, in the caller's transaction.

The budgets that the instructions are about are locked together with their ancestors, in the order of their ids, and
their rows are read again. The transition machine (`app.ledger.transitions`) then decides one instruction after the
other. All changes are written together, so a group of instructions needs hardly more SQL statements than a single one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from accounting import ENGINE_VERSION
from accounting.events import Event
from app.db.database import Database
from app.entries.kinds import EntryKind
from app.entries.metering import Meter
from app.entries.records import EntryRecord
from app.entries.statements import entry_row, insert_entries
from app.fence.marks import Head
from app.fence.service import touch
from app.kit.hash_chain import GENESIS
from app.kit.ids import new_id
from app.ledger import news, repository, rows, statements
from app.ledger.commands import AskLimit, BudgetCommand, Command, LimitDecision, LimitRequestCommand, Reserve
from app.ledger.denials import Denial
from app.ledger.limit_requests import decide_limit_request
from app.ledger.news import Change, Decided
from app.ledger.recording import entry_record
from app.ledger.states import BudgetState, LimitRequestState, Path, ReservationState, exposed_counts
from app.ledger.transitions import Transition, decide
from app.problems import Problem
from app.tables.ledger import Budget

#: The largest number of ids in the cache of one database. When it is exceeded, the cache is emptied.
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class Instruction:
    """A command, with the principal who asks for it and the id of its target.

    Attributes:
        command: The command.
        principal_id: The principal who asks, whom the entry names.
        target_id: The id of the budget, of the request for another limit, or of the reservation that the command is
            about.
    """

    command: Command | LimitRequestCommand
    principal_id: str
    target_id: str


class NoTarget:
    """The outcome of an instruction whose target does not exist."""


#: The outcome of a command. A `Problem` means that a quota refused it: nothing was decided, so no answer is stored
#: under the idempotency key.
Outcome = Transition | Denial | NoTarget | Problem


def carry_out(
    session: Session, database: Database, instructions: Sequence[Instruction], now: datetime
) -> list[Outcome]:
    """Decide and write the instructions, one after the other.

    Args:
        session: A write session. The caller commits all changes with it.
        database: The session's database.
        instructions: The instructions, in the order in which they are decided.
        now: The time of the decisions.
    """
    transaction = Transaction(session.connection(), database, now)
    transaction.lock(instructions)
    outcomes = [transaction.decide(instruction) for instruction in instructions]
    transaction.write()
    return outcomes


def open_budget(session: Session, budget: Budget) -> None:
    """Insert a new budget of which nothing is spent, and its first entry.

    Raises:
        Problem: 429 ``quota_exceeded``.
    """
    zero = budget.filter.zero
    record = EntryRecord(
        id=new_id("ent"),
        budget_id=budget.id,
        sequence=1,
        kind=EntryKind.CREATE,
        principal_id=budget.principal_id,
        recorded_at=budget.created_at,
        engine_version=ENGINE_VERSION,
        amounts=budget.filter.caps,
        details={
            "name": budget.name,
            "neighboring_relation": budget.neighboring_relation,
            "privacy_unit": budget.privacy_unit,
            "filter": budget.filter.to_json(),
            "report_delta": budget.report_delta,
            "labels": budget.labels,
            "parent_id": budget.parent_id,
            "path": budget.path,
        },
    )
    row = entry_row(record, GENESIS)
    budget.spent = budget.started = budget.pending = zero
    budget.overdrawn, budget.headroom = False, budget.filter.headroom(zero)
    budget.sequence, budget.head_hash = record.sequence, row["hash"]
    session.add(budget)
    session.flush()
    meter = Meter(session.connection(), budget.created_at)
    meter.lock([budget.principal_id])
    refusal = meter.take(row)
    if refusal is not None:
        raise refusal
    insert_entries(session.connection(), [row], meter)
    touch(session.connection(), budget.id, None)


@dataclass
class _Head:
    """The head of a budget's chain: the place and the hash of its last entry."""

    sequence: int
    hash: str


@dataclass
class Transaction:
    """The locked budgets of one transaction, and the changes that are not written yet. Use an instance once: call
    `lock`, then `decide` for each instruction, then `write`."""

    connection: Connection
    database: Database
    now: datetime
    _places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _budgets: dict[str, BudgetState] = field(default_factory=dict)
    _heads: dict[str, _Head] = field(default_factory=dict)
    _reservations: dict[str, ReservationState] = field(default_factory=dict)
    _changed_budgets: set[str] = field(default_factory=set)
    _changed_reservations: set[str] = field(default_factory=set)
    _limit_requests: dict[str, LimitRequestState] = field(default_factory=dict)
    _changed_limit_requests: set[str] = field(default_factory=set)
    _new_limit_requests: set[str] = field(default_factory=set)
    _new_reservations: dict[str, tuple[int, str]] = field(default_factory=dict)
    _entries: list[dict[str, Any]] = field(default_factory=list)
    _exposed: dict[str, Counter[Event]] = field(default_factory=dict)
    _locked: dict[str, BudgetState] = field(default_factory=dict)
    _decided: list[Decided] = field(default_factory=list)
    _certificates: dict[str, bytes] = field(default_factory=dict)
    _meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        self._meter = Meter(self.connection, self.now)

    def lock(self, instructions: Sequence[Instruction]) -> None:
        """Lock the budgets of the instructions and their ancestors, in the order of their ids, and read their current
        rows."""
        targets = {instruction.target_id for instruction in instructions}
        self._places = _places(self.connection, self.database, targets)
        ids = sorted({budget_id for place in self._places.values() for budget_id in place})
        for row in statements.lock_budgets(self.connection, ids):
            self._budgets[row.id] = self._locked[row.id] = rows.budget_state(row)
            self._heads[row.id] = _Head(row.sequence, row.head_hash)
        # A cached place may come from a transaction that created the budget and was rolled back.
        self._places = {target: place for target, place in self._places.items() if place[0] in self._budgets}
        for place in self._places.values():
            head = self._heads[place[0]]
            touch(self.connection, place[0], Head(head.sequence, head.hash))
        about = [target for target, place in self._places.items() if target not in place]
        for row in statements.reservations(self.connection, about):
            self._reservations[row.id] = rows.reservation_state(row)
        self._read_limit_requests(instructions)
        self._meter.lock(instruction.principal_id for instruction in instructions)

    def _read_limit_requests(self, instructions: Sequence[Instruction]) -> None:
        decided = [each.target_id for each in instructions if isinstance(each.command, LimitDecision)]
        asked = [each.target_id for each in instructions if isinstance(each.command, AskLimit)]
        for row in statements.limit_requests(self.connection, decided, asked):
            self._limit_requests[row.id] = rows.limit_request_state(row)

    def decide(self, instruction: Instruction) -> Outcome:
        """Decide one instruction, given the states that the instructions before it produced."""
        target, command = instruction.target_id, instruction.command
        place = self._places.get(target, ())
        if not self._exists(target, place, command):
            return NoTarget()
        path = tuple(self._budgets[budget_id] for budget_id in place)
        if isinstance(command, LimitRequestCommand):
            outcome = self._decide_limit_request(path, target, command, instruction.principal_id)
        else:
            outcome = decide(path, self._reservations.get(target), command, self.now, ENGINE_VERSION)
        if not isinstance(outcome, Transition):
            return outcome
        refusal = self._keep(outcome, instruction.principal_id)
        if refusal is None and isinstance(command, Reserve) and (found := command.quote.certificate) is not None:
            self._certificates[found.sha256] = found.data
        return refusal or outcome

    def _exists(self, target: str, place: tuple[str, ...], command: Command | LimitRequestCommand) -> bool:
        if isinstance(command, BudgetCommand | AskLimit):
            return target in place
        return target in (self._limit_requests if isinstance(command, LimitDecision) else self._reservations)

    def _decide_limit_request(
        self, path: Path, target: str, command: LimitRequestCommand, principal_id: str
    ) -> Transition | Denial:
        whose = (target, principal_id)
        is_open = [each for each in self._limit_requests.values() if each.is_open]
        return decide_limit_request(
            path,
            self._limit_requests.get(target),
            command,
            principal_id,
            self.now,
            ENGINE_VERSION,
            open_requests=sum((each.budget_id, each.principal_id) == whose for each in is_open),
        )

    def path(self, target: str) -> Path:
        """Return the states of a target's budget and of its ancestors, after all decisions so far."""
        return tuple(self._budgets[budget_id] for budget_id in self._places[target])

    def _keep(self, transition: Transition, principal_id: str) -> Problem | None:
        """Keep a transition for `write`, or return the refusal if a quota refuses its entry. After a refusal nothing
        has changed."""
        head = self._heads[transition.budget.id]
        record = entry_record(
            transition,
            entry_id=new_id("ent"),
            sequence=head.sequence + 1,
            principal_id=principal_id,
            recorded_at=self.now,
        )
        row = entry_row(record, head.hash, transition.events)
        refusal = self._meter.take(row)
        if refusal is not None:
            return refusal
        self._entries.append(row)
        head.sequence, head.hash = record.sequence, row["hash"]
        if transition.limit_request is not None:
            self._keep_limit_request(transition.limit_request, record)
            self._decided.append(Decided(transition.limit_request, tuple(level.id for level in transition.path)))
        for level in transition.path:
            self._budgets[level.id] = level
            self._changed_budgets.add(level.id)
        self._keep_reservation(transition, head, principal_id)
        return None

    def _keep_reservation(self, transition: Transition, head: _Head, principal_id: str) -> None:
        after = transition.reservation
        if after is None:
            return
        if transition.before is None:
            after = replace(after, entry_hash=head.hash)
            self._new_reservations[after.id] = (head.sequence, principal_id)
            _remember(self.database, after.id, tuple(level.id for level in transition.path))
        else:
            self._changed_reservations.add(after.id)
        self._reservations[after.id] = after
        self._expose(transition)

    def _keep_limit_request(self, request: LimitRequestState, record: EntryRecord) -> None:
        if record.kind is EntryKind.ASK:
            request = replace(request, sequence=record.sequence)
            self._new_limit_requests.add(request.id)
        self._limit_requests[request.id] = request
        self._changed_limit_requests.add(request.id)

    def _expose(self, transition: Transition) -> None:
        before, after = transition.before, transition.reservation
        assert after is not None, "asked for reservations alone"
        was = () if before is None else before.exposed_events
        if was == after.exposed_events:
            return
        exposed, relation = self._exposed.setdefault(transition.budget.id, Counter()), transition.budget.relation
        exposed.subtract(exposed_counts(was, relation))
        exposed.update(exposed_counts(after.exposed_events, relation))

    def write(self) -> None:
        """Write everything that was decided."""
        connection = self.connection
        statements.update_budgets(
            connection,
            [
                {
                    "b_id": budget_id,
                    "sequence": self._heads[budget_id].sequence,
                    "head_hash": self._heads[budget_id].hash,
                    **rows.budget_amounts(self._budgets[budget_id]),
                }
                for budget_id in sorted(self._changed_budgets)
            ],
        )
        statements.insert_certificates(
            connection, [{"sha256": hashed, "data": data} for hashed, data in sorted(self._certificates.items())]
        )
        statements.insert_reservations(
            connection,
            [
                rows.new_reservation(self._reservations[reservation_id], sequence=sequence, principal_id=principal_id)
                for reservation_id, (sequence, principal_id) in self._new_reservations.items()
            ],
        )
        statements.update_reservations(
            connection,
            [
                {"b_id": reservation_id, **rows.reservation_changes(self._reservations[reservation_id])}
                for reservation_id in sorted(self._changed_reservations - self._new_reservations.keys())
            ],
        )
        statements.insert_limit_requests(
            connection,
            [rows.new_limit_request(self._limit_requests[request_id]) for request_id in self._new_limit_requests],
        )
        statements.update_limit_requests(
            connection,
            [
                {"b_id": request_id, **rows.limit_request_changes(self._limit_requests[request_id])}
                for request_id in sorted(self._changed_limit_requests - self._new_limit_requests)
            ],
        )
        insert_entries(connection, self._entries, self._meter)
        statements.add_exposed_steps(
            connection,
            [
                (budget_id, step, count)
                for budget_id, counts in self._exposed.items()
                for step, count in counts.items()
                if count
            ],
        )
        changes = {each: Change(self._locked[each], self._budgets[each]) for each in self._changed_budgets}
        news.tell(connection, changes, self._decided, self.now)


# A budget's place in its tree never changes, and neither does the budget of a reservation. So each is read once and
# then cached.
_PLACES: WeakKeyDictionary[Database, dict[str, tuple[str, ...]]] = WeakKeyDictionary()


def _places(connection: Connection, database: Database, targets: set[str]) -> dict[str, tuple[str, ...]]:
    """Return, for each target that exists, the ids of its budget and of the ancestors, the root last."""
    known = _PLACES.setdefault(database, {})
    # Another thread may clear this cache at any moment, so each place is looked up only once.
    places = {target: place for target in targets if (place := known.get(target)) is not None}
    for target, path in statements.paths(connection, [target for target in targets if target not in places]):
        places[target] = tuple(reversed(path.split("/")))
        _remember(database, target, places[target])
    return places


def _remember(database: Database, target: str, place: tuple[str, ...]) -> None:
    known = _PLACES.setdefault(database, {})
    if len(known) >= _MOST_REMEMBERED:
        known.clear()
    known[target] = place


def path_of(session: Session, budget_id: str) -> Path | None:
    """Return the states of a budget and of its ancestors, for display only; None if there is no such budget. Decisions
    need states that were read under the lock."""
    row = repository.find_budget(session, budget_id)
    if row is None:
        return None
    ids = list(reversed(row.path.split("/")))
    states = {found.id: rows.budget_state(found) for found in repository.budgets(session, ids)}
    return tuple(states[each] for each in ids)
