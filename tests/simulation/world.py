"""A world: clients, processes and a database, and an auditor who looks at every commit.

The auditor knows what was asked under each key, and applies it to the model at the moment of its commit. What the model
answers must be what was recorded; what the entries add up to (`app.ledger.books`) must be what the tables have.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import count
from threading import BoundedSemaphore
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from sqlalchemy.exc import DBAPIError

from accounting.canonical import sha256_hex
from accounting.events import Event, ZcDp
from accounting.filters import ZcdpFilter
from app.db.failures import Unfenced
from app.entries import metering
from app.entries.quotas import day_of
from app.fence import service as fences
from app.idempotency import once
from app.idempotency import records as remembered
from app.idempotency.once import Keyed, refuse, run_once
from app.idempotency.records import Answer
from app.ledger import executor, journal, news
from app.ledger.books import BadPlace, Books
from app.ledger.commands import (
    ApproveLimit,
    AskLimit,
    ChangeLimit,
    Charge,
    Commit,
    Correct,
    Extend,
    Quote,
    RefuseLimit,
    Reserve,
    Start,
    Void,
    WithdrawLimit,
)
from app.ledger.executor import Exceeded
from app.ledger.journal import Instruction, open_budget
from app.ledger.rows import reservation_state
from app.ledger.tables import limit_request_rows
from app.ledger.transitions import Transition
from app.outbox.writing import Subscription
from app.problems import Problem
from app.reservations import service as reservations
from app.settings import Settings
from app.tables.ledger import Budget
from tests.simulation import storage as simulated
from tests.simulation.model import Command, Model, Quotas
from tests.simulation.scheduler import Crashed, Fault, Scheduler, Task
from tests.simulation.storage import Connection, SimulatedDatabase, SimulatedFence, Storage, Tables, busy, lost

UNIT = 10**7
STEP = Event(ZcDp(0.01))
#: A world lasts about a second for each command: the day of the quotas ends in it.
BEGINNING = datetime(2026, 5, 1, 23, 30, tzinfo=UTC)
SETTINGS = Settings()
#: Who asks: whoever shows the local token has no quotas, and keys have.
PRINCIPALS = ("loopback", "key_a", "key_b", "key_c")
#: In budgets that a webhook is told of: shares of the limit.
FRACTIONS = (0.5, 0.8)
#: How many requests are under way at once, at most.
WIDTH = 6
#: Of a group that is decided in one transaction.
LARGEST_GROUP = 4
PROCESSES = 2
#: Everything in the tables is compared with the entries after so many commits.
COMPARED_AFTER = 500

#: For each step of the scheduler, or for each place where it may happen.
FAULTS: Mapping[str, float] = {
    "process is killed": 0.0008,
    "database is restarted": 0.0003,
    "clock jumps": 0.001,
    "lock is not given in time": 0.002,
    "commit fails": 0.01,
    "answer of a commit is lost": 0.02,
    "fence cannot be reached": 0.01,
    "answer is dropped": 0.1,
    "command is sent again later": 0.03,
}
_KINDS = {
    "reserve": 30, "start": 16, "commit": 14, "commit part": 5, "void": 5, "extend": 5, "correct": 4,
    "correct price": 2, "charge": 2, "limit": 5, "open": 1, "release": 6,
    "ask": 4, "approve": 6, "refuse": 1, "withdraw": 2,
}  # fmt: skip
_DENIED_WITHOUT_RECORD = frozenset({"not_a_prefix", "correction_lowers", "own_request", "not_your_request"})
#: What webhooks are told of a request for another limit, by the command.
_TOLD = {"ask": "limit_requested", "approve": "limit_decided", "refuse": "limit_decided", "withdraw": "limit_decided"}


@dataclass
class Asked:
    """A command under its key.

    Attributes:
        attempts: How often it was sent.
        first: The first answer that reached the client.
    """

    key: str
    command: Command
    attempts: int = 0
    first: Any = None


class Process:
    """A server's process: it forgets everything when it dies."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        #: Seconds that its clock is off.
        self.offset = 0
        self.database = SimulatedDatabase(world.storage, self)
        self.database.watch(lambda: SimulatedFence(self.database, self.clock))
        self.context: Any = SimpleNamespace(
            database=self.database,
            clock=self.clock,
            ledger_commits=_Groups(world.scheduler),
            patience=BoundedSemaphore(8),
            keyed_hash=lambda label, data, version=1: sha256_hex(label.encode() + data),
        )

    def clock(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.world.seconds + self.offset)

    def serve(self, asked: Asked) -> Answer:
        """Carry out a command as the endpoints do."""
        command = asked.command
        keyed = Keyed(("client", asked.key), sha256_hex(asked.key.encode()))
        if command.kind == "open":
            return run_once(self.context, keyed, lambda session: self._open(session, asked))

        def execute() -> Answer:
            return executor.execute(self.context, keyed, lambda: self._instruction(asked), answer_of)

        try:
            return execute()
        except Exceeded as full:
            budget_id = full.denial.budget_id
            if full.room_can_be_made:
                reservations.release_due_holds(self.context, budget_id)
                try:
                    return execute()
                except Exceeded:
                    pass
            # Remembered under the key, with what a repetition is answered.
            return refuse(self.context, keyed, Problem(409, "budget_exceeded", "no room"))

    def release(self) -> None:
        """Release what is due, as a server does from time to time."""
        reservations.release_due_holds(self.context)

    def _instruction(self, asked: Asked) -> Instruction:
        command = asked.command
        units, now = command.units or 0, self.clock()
        events = (Event(STEP.mechanism, count=units),) if units else ()
        quote = Quote((units * UNIT,), "engine")
        until = BEGINNING + timedelta(seconds=command.until)
        made = f"{asked.key}.{asked.attempts}"
        kind = command.kind
        what: Any
        if kind == "reserve":
            what = Reserve(made, events, quote, until, purpose="p")
        elif kind == "charge":
            what = Charge(made, events, quote, "told late")
        elif kind == "limit":
            what = ChangeLimit(ZcdpFilter(units / 100), "other")
        elif kind == "ask":
            what = AskLimit(made, ZcdpFilter(units / 100), "why", command.needed)
        elif kind == "approve":
            what = ApproveLimit("why", command.needed)
        elif kind == "refuse":
            what = RefuseLimit("why")
        elif kind == "withdraw":
            what = WithdrawLimit()
        elif kind == "start":
            what = Start()
        elif kind == "void":
            what = Void()
        elif kind == "extend":
            what = Extend(until)
        elif kind == "commit":
            what = Commit() if command.units is None else Commit(events, quote)
        elif command.units is None:
            what = self._price_again(command)
        else:
            what = Correct(quote, "other", events, may_lower=command.may_lower)
        assert now.tzinfo is not None
        return Instruction(what, command.principal, command.target)

    def _price_again(self, command: Command) -> Correct:
        """The right price of what is stored now; before its lock is taken it may be that of something else."""
        state = reservation_state(SimpleNamespace(**self.world.storage.tables.reservations[command.target]))  # type: ignore[arg-type]
        self.world.scheduler.step("price")
        units = sum(event.count for event in state.priced_events)
        return Correct(Quote((units * UNIT,), "engine"), "again", priced=state.priced_events)

    def _open(self, session: Any, asked: Asked) -> Answer:
        command, budget_id = asked.command, f"{asked.key}.{asked.attempts}"
        path = budget_id
        if command.parent is not None:
            parent = simulated.find_budget(session, command.parent)
            assert parent is not None
            path = f"{parent.path}/{budget_id}"
        budget = Budget(
            id=budget_id,
            name="b",
            neighboring_relation="add_or_remove_one",
            privacy_unit="record",
            filter=ZcdpFilter((command.units or 0) / 100),
            report_delta=None,
            labels={},
            principal_id=command.principal,
            created_at=self.clock(),
            parent_id=command.parent,
            path=path,
        )
        open_budget(session, budget)
        return Answer(201, {"id": budget_id, "state": "opened"})


def answer_of(transition: Transition) -> Answer:
    """The answer of a command: a word, and what is left."""
    after, request = transition.reservation, transition.limit_request
    made = after or request
    left = max(0, min(level.headroom for level in transition.path))
    assert left % UNIT == 0
    return Answer(
        200,
        {
            "id": None if made is None else made.id,
            "state": "changed" if made is None else str(made.status),
            "remaining": left // UNIT,
        },
    )


class _Groups:
    """Commands that come at once, in groups, as `app.kit.group_commit` makes them, without its threads."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[dict[str, Any]] = []
        self._is_at_work = False

    def submit(self, item: Any, do: Callable[[Any], Any], rescue: Callable[[Any, BaseException], Any]) -> Future[Any]:
        ticket: dict[str, Any] = {"item": item, "task": self._scheduler.current}
        self._waiting.append(ticket)
        while "result" not in ticket and "error" not in ticket:
            if self._is_at_work:
                self._scheduler.block("group")
            else:
                self._lead(do)
        future: Future[Any] = Future()
        if "error" in ticket:
            try:
                future.set_result(rescue(item, ticket["error"]))
            except Exception as failure:
                future.set_exception(failure)
        else:
            future.set_result(ticket["result"])
        return future

    def _lead(self, do: Callable[[Any], Any]) -> None:
        self._is_at_work, group = True, list[dict[str, Any]]()
        try:
            self._scheduler.step("group")
            group, self._waiting = self._waiting[:LARGEST_GROUP], self._waiting[LARGEST_GROUP:]
            if len(group) > 1:
                self._scheduler.happened["group of several commands"] += 1
            try:
                for ticket, result in zip(group, do([each["item"] for each in group]), strict=True):
                    ticket["result"] = result
            except Exception as error:
                for ticket in group:
                    ticket["error"] = error
        finally:
            self._is_at_work = False
            for ticket in [*group, *self._waiting]:
                self._scheduler.wake(ticket["task"])


@dataclass
class Report:
    """The figures of a world that has ended."""

    commands: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    steps: int = 0
    entries: int = 0
    refused_after_restore: int = 0
    trace_hash: str = ""


class World:
    """One run of the simulation. Use it once."""

    def __init__(self, seed: int, commands: int, faults: Mapping[str, float] = FAULTS) -> None:
        self.seed, self.to_ask, self.faults = seed, commands, faults
        self.rng = random.Random(f"world {seed}")
        self.scheduler = Scheduler(self.rng)
        self.storage = Storage(self.scheduler, bool(seed % 2), self.audit, faults)
        self.seconds = 0
        self.processes = [Process(self, number) for number in range(PROCESSES)]
        self.model = Model(quotas=Quotas(max(20, commands // 40), 16, 1))
        self.settings = SETTINGS.model_copy(
            update={
                "entries_per_day": self.model.quotas.entries,
                "entry_bytes_per_day": 0,
                "open_reservations_per_key": self.model.quotas.open_reservations,
                "extensions_per_reservation": self.model.quotas.extensions,
            }
        )
        self.books = Books()
        self.asked: dict[str, Asked] = {}
        self.pending: list[Asked] = []
        self.later: list[Asked] = []
        #: Of each key that has a record: the budget's end at that moment.
        self.recorded: dict[str, tuple[str, int, str]] = {}
        self.acknowledged: list[str] = []
        self.budgets: list[str] = []
        self.holds: list[str] = []
        self.requests: list[str] = []
        #: Of each key: the day of its last reservation.
        self.reserved_on: dict[str, date] = {}
        #: What webhooks are to be told of the transaction that is looked at.
        self.to_tell: Counter[tuple[object, ...]] = Counter()
        self.commits = 0
        self.report = Report()
        self._keys = count(1)
        self._snapshot: tuple[int, Tables] | None = None
        self._is_to_compare = False
        self.fault: Exception | None = None

    # Clients.

    def run(self) -> Report:
        """Carry out all commands; what came out.

        Raises:
            Fault: the ledger did what it must not do. The text says how to repeat it.
        """
        try:
            with self._in_place_of_a_database():
                self._begin()
                snapshot_at = self.rng.randrange(self.to_ask // 2, self.to_ask)
                while len(self.asked) < self.to_ask or self.scheduler.tasks or self.pending or self.later:
                    if self._snapshot is None and len(self.asked) >= snapshot_at:
                        self._snapshot = (len(self.acknowledged), self.storage.tables.copy())
                    self._turn()
                self.compare()
                self._restore()
        except (AssertionError, BadPlace) as fault:
            raise Fault(
                f"{fault} (step {self.scheduler.steps}, command {len(self.asked)}). Run it again: "
                f"python -m tests.simulation --seed {self.seed} --commands {self.to_ask}"
            ) from fault
        self.report.happened = self.scheduler.happened
        self.report.steps, self.report.trace_hash = self.scheduler.steps, self.scheduler.trace_hash
        self.report.entries = len(self.storage.tables.entries)
        return self.report

    def _begin(self) -> None:
        """Open the first budget, so that others and holds have one to be under."""
        self._ask(Command("open", "", self.rng.randrange(40, 400)))
        while not self.budgets:
            self._turn()

    def _turn(self) -> None:
        """Let one thing happen."""
        if self.fault is not None:
            raise self.fault
        if self._is_to_compare:
            self._is_to_compare = False
            self.compare()
        rng, scheduler = self.rng, self.scheduler
        if len(scheduler.tasks) < WIDTH and rng.random() < 0.4:
            self._send()
        tasks = scheduler.runnable()
        chance = rng.random()
        for what, happens in (
            ("process is killed", self._kill),
            ("database is restarted", self._restart_database),
            ("clock jumps", self._turn_a_clock),
            ("lock is not given in time", self._give_up_a_lock),
        ):
            chance -= self.faults.get(what, 0.0)
            if chance < 0:
                happens()
                return
        if tasks:
            self._go_on(tasks[rng.randrange(len(tasks))])
        elif scheduler.tasks and len(scheduler.tasks) >= WIDTH:
            raise Fault("nobody can go on")

    def _send(self) -> None:
        """Send a command: a new one, or one that has no answer yet, or has had one."""
        rng = self.rng
        if self.pending and rng.random() < 0.7:
            asked = self.pending.pop(rng.randrange(len(self.pending)))
        elif self.later and (rng.random() < 0.1 or len(self.asked) >= self.to_ask):
            asked = self.later.pop(rng.randrange(len(self.later)))
        elif len(self.asked) < self.to_ask and self.budgets:
            self.seconds += rng.randrange(3)
            kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
            if kind == "release":
                process = rng.choice(self.processes)
                self.scheduler.begin(process, None, process.release)
                return
            self._ask(self._command(kind))
            return
        else:
            return
        self._attempt(asked)

    def _command(self, kind: str) -> Command:
        return replace(self._what(kind), principal=self.rng.choice(PRINCIPALS))

    def _what(self, kind: str) -> Command:
        rng = self.rng
        budget = rng.choice(self.budgets)
        now = self.seconds
        if kind == "open" and len(self.budgets) < 12:
            parent = budget if rng.random() < 0.8 and len(list(self.model.path(budget))) < 4 else None
            return Command("open", "", rng.randrange(20, 200), parent=parent)
        if kind in ("reserve", "open") or not self.holds:
            return Command("reserve", budget, rng.randrange(1, 25), until=now + rng.choice([5, 60, 600, 6000]))
        if kind == "ask" or (kind in _TOLD and not self.requests):
            wanted = self.model.limits[budget] + rng.randrange(-20, 200)
            return Command("ask", budget, max(1, wanted), needed=rng.choice([1, 1, 2]))
        if kind in _TOLD:
            newest = self.requests[-12:] if rng.random() < 0.9 else self.requests
            return Command(kind, rng.choice(newest), needed=rng.choice([1, 1, 2]))
        if kind == "charge":
            return Command("charge", budget, rng.randrange(1, 8))
        if kind == "limit":
            # Mostly more: what is spent is spent for ever, and a world that is full denies everything.
            used = self.model.used[budget]
            return Command("limit", budget, rng.randrange(max(1, used - 10), used + 400))
        # The newest ones are those to which something may still happen.
        newest = self.holds[-30:] if rng.random() < 0.9 else self.holds
        hold = rng.choice(newest)
        if kind == "commit part":
            return Command("commit", hold, rng.randrange(30))
        if kind == "correct":
            return Command("correct", hold, rng.randrange(30), may_lower=rng.random() < 0.5)
        if kind == "correct price":
            return Command("correct", hold)
        return Command(kind, hold, until=now + rng.randrange(1, 90) if kind == "extend" else 0)

    def _ask(self, command: Command) -> None:
        asked = Asked(f"k{next(self._keys)}", command)
        self.asked[asked.key] = asked
        self.report.commands[command.kind] += 1
        self._attempt(asked)

    def _attempt(self, asked: Asked) -> None:
        asked.attempts += 1
        self.report.attempts += 1
        process = self.rng.choice(self.processes)
        self.scheduler.begin(process, asked, lambda: process.serve(asked))

    def _go_on(self, task: Task, error: BaseException | None = None) -> None:
        try:
            is_over, value = self.scheduler.go_on(task, error)
        except Problem as problem:
            is_over, value = True, problem
            self.scheduler.tasks.remove(task)
        except DBAPIError as failure:
            is_over, value = True, failure
            self.scheduler.tasks.remove(task)
        if is_over and task.about is not None:
            self._hear(task.about, value)

    def _hear(self, asked: Asked, value: Any) -> None:
        """Handle the answer to a request, or its absence."""
        is_answer = isinstance(value, Answer)
        if isinstance(value, Problem) and value.code == "quota_exceeded":
            if asked.key in self.recorded:
                raise Fault(f"{asked.key} was refused for a quota, and it was carried out")
            # Whoever has used up a quota gives up.
            self.report.outcomes[value.code] += 1
            return
        is_denial = isinstance(value, Problem) and value.status in (403, 409, 422)
        if isinstance(value, Problem) and value.code == "request_in_progress":
            is_denial = False
        if not is_answer and not is_denial:
            what = value.code if isinstance(value, Problem) else type(value).__name__
            if what == "database_behind_fence":
                raise Fault(f"{asked.key} was refused for what the database had lost, and it has lost nothing")
            self.scheduler.happened[f"no answer: {what}"] += 1
            self.pending.append(asked)
            return
        said = value.body if is_answer else {"code": value.code}
        if self.scheduler.rng.random() < self.faults.get("answer is dropped", 0.0):
            self.scheduler.note("answer is dropped")
            self.pending.append(asked)
            return
        self._believe(asked, said, has_record=is_answer or value.status == 409)
        if self.rng.random() < self.faults.get("command is sent again later", 0.0):
            self.scheduler.note("command is sent again later")
            self.later.append(asked)

    def _believe(self, asked: Asked, said: dict[str, Any], *, has_record: bool) -> None:
        """An answer has reached the client: it is durable, fenced, and the same each time."""
        word = said.get("code") or said["state"]
        if asked.first is None:
            self.report.outcomes[word] += 1
        if not has_record:
            if word not in _DENIED_WITHOUT_RECORD:
                raise Fault(f"{asked.key} was answered {word} without a record")
            return
        if asked.first is not None and asked.first != said:
            raise Fault(f"{asked.key} was answered {asked.first}, and then {said}")
        if ("client", asked.key) not in self.storage.tables.records:
            raise Fault(f"{asked.key} was answered {word}, and no record of it is committed")
        budget_id, sequence, _ = self.recorded[asked.key]
        kept = self.storage.kept
        head = None if kept is None else kept.heads.get(budget_id)
        if sequence and (head is None or head.sequence < sequence):
            raise Fault(f"{asked.key} was acknowledged, and the fence does not know entry {sequence} of {budget_id}")
        if asked.first is None:
            asked.first = said
            self.acknowledged.append(asked.key)

    # Faults.

    def _kill(self) -> None:
        process = self.rng.choice(self.processes)
        self.scheduler.note("process is killed", process.number)
        for task in [task for task in self.scheduler.tasks if task.process is process]:
            self.scheduler.go_on(task, Crashed())
            if task in self.scheduler.tasks:
                raise Fault("a task goes on in a process that is gone")
            if task.about is not None:
                self.pending.append(task.about)
        self.processes[process.number] = Process(self, process.number)

    def _restart_database(self) -> None:
        """Every transaction that is open is rolled back."""
        self.scheduler.note("database is restarted")
        for task in [connection.task for connection in self.storage.open]:
            if task is not None and task in self.scheduler.tasks:
                self._go_on(task, lost())

    def _turn_a_clock(self) -> None:
        process = self.rng.choice(self.processes)
        far = self.rng.choice([5, 60, 86_400, 315_360_000])
        # Mostly back again: under a clock that is years ahead every hold is due at once.
        process.offset = self.rng.choice([0, 0, 0, -far, far])
        self.scheduler.note("clock jumps", process.number, process.offset)

    def _give_up_a_lock(self) -> None:
        if self.storage.waiting:
            task = self.storage.waiting[self.rng.randrange(len(self.storage.waiting))][0]
            self.scheduler.note("lock is not given in time")
            self._go_on(task, busy())

    # The auditor.

    def audit(self, connection: Connection) -> None:
        """Look at what is about to be committed."""
        try:
            self._audit(connection)
        except (AssertionError, BadPlace) as fault:
            # The code that commits may take it for a failure of its own, and try again.
            self.fault = self.fault or fault
            raise

    def _audit(self, connection: Connection) -> None:
        self.commits += 1
        self.to_tell.clear()
        shares = {budget: self._share(budget) for budget in self.storage.tables.webhooks}
        for (principal, day), counts in connection.uses.items():
            if counts is None:
                del self.model.written[principal, day]
        entries = list(connection.entries)
        for row in connection.entries:
            self._enter(row)
        for (_, key), record in connection.records.items():
            self._audit_record(key, record, entries)
        for row in entries:
            # What nobody asked for: the release of a hold.
            said = json.loads(row["canonical"])
            if said["kind"] != "expire":
                raise Fault(
                    f"an entry '{said['kind']}' of {row['budget_id']} is committed without the record of its key"
                )
            self._expect(Command("expire", said["reservation_id"]), _second(row["recorded_at"]), "expired", None)
        for row in connection.entries:
            if row["kind"] == "reserve":
                self.reserved_on[row["principal_id"]] = day_of(row["recorded_at"])
        self._audit_messages(connection, shares)
        if self.commits % COMPARED_AFTER == 0:
            self.scheduler.happened["comparisons of everything"] += 1
            self._is_to_compare = True

    def _enter(self, row: dict[str, Any]) -> None:
        entry = SimpleNamespace(**row)
        self.books.enter(entry, self.books.read(entry))  # type: ignore[arg-type]

    def _share(self, budget: str) -> Fraction:
        return Fraction(self.model.released[budget], self.model.limits[budget])

    def _audit_messages(self, connection: Connection, shares: Mapping[str, Fraction]) -> None:
        """Compare what is written into the outbox with what webhooks are to be told."""
        for budget, before in shares.items():
            for fraction in FRACTIONS:
                if before < Fraction(str(fraction)) <= self._share(budget):
                    self.to_tell[f"whk_{budget}", "spending_threshold", budget, fraction, None] += 1
        found = Counter(
            (
                each.webhook_id,
                str(each.event),
                each.data["budget_id"],
                each.data.get("fraction", each.data.get("limit_request_id")),
                each.data.get("state"),
            )
            for each in connection.messages
        )
        self.scheduler.happened["messages to webhooks"] += found.total()
        if found != self.to_tell:
            raise Fault(f"webhooks are told {dict(found)}, and are to be told {dict(self.to_tell)}")

    def refused(self, meter: Any, row: Mapping[str, Any], refusal: Problem) -> None:
        """See a quota refuse an entry, under the locks of what it counts."""
        quota, principal = str(refusal.members["quota"]), row["principal_id"]
        self.scheduler.happened[f"quota refuses: {quota}"] += 1
        use = meter._uses[principal]
        if quota == "entries":
            written = self.model.written[principal, day_of(row["recorded_at"])]
            if written + use.more_entries < self.model.quotas.entries:
                raise Fault(f"{principal} was refused for its entries, and has written {written}")
        elif quota == "extensions":
            found = self.model.extended[row["reservation_id"]]
            if found + LARGEST_GROUP < self.model.quotas.extensions:
                raise Fault(f"{row['reservation_id']} was refused for its extensions, and has {found}")

    def _audit_record(self, key: str, record: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        asked = self.asked[key]
        if key in self.recorded:
            raise Fault(f"{key} is recorded twice")
        body = record["answer"].get("body") or {}
        command, now = asked.command, _second(record["recorded_at"])
        word = record["answer"]["code"] if record["status"] == 409 else body["state"]
        target, made = self._budget_of(command, body), body.get("id")
        if record["status"] != 409:
            mine = next((row for row in entries if row["budget_id"] == target), None)
            if mine is None:
                raise Fault(f"the record of {key} is committed without its entry")
            entries.remove(mine)
            day = day_of(mine["recorded_at"])
            if mine["principal_id"] != command.principal:
                raise Fault(f"the entry of {key} is in another name")
            who = mine["principal_id"]
            is_alone = self.reserved_on.get(who, day) == day
            if not is_alone and mine["kind"] == "reserve":
                self.scheduler.happened["reservations of one key on two days"] += 1
            self.model.write(mine["kind"], who, day, mine["reservation_id"], is_alone=is_alone)
            if command.kind in ("reserve", "charge") and mine["reservation_id"] != made:
                raise Fault(f"the entry of {key} is about another reservation than its answer")
        elif word == "budget_exceeded":
            # It was decided in a transaction before this one, which `exceeds` has looked at, and which was fenced.
            self.recorded[key] = (target, 0, "")
            return
        self._expect(command, now, word, body.get("remaining"), made)
        if command.kind == "open":
            self.budgets.append(made)
            if len(self.budgets) % 2:
                told = frozenset(_TOLD.values()) | {"spending_threshold"}
                self.storage.tables.webhooks[made] = Subscription(f"whk_{made}", made, told, FRACTIONS)
        elif command.kind == "ask" and record["status"] != 409:
            self.requests.append(made)
        elif command.kind in ("reserve", "charge") and record["status"] != 409:
            self.holds.append(made)
        self._record(key, target)

    def _record(self, key: str, budget_id: str) -> None:
        head = self.books.accounts[budget_id].head
        self.recorded[key] = (budget_id, head.sequence, head.hash)

    def _budget_of(self, command: Command, body: dict[str, Any]) -> str:
        if command.kind == "open":
            return str(body["id"])
        about = self.model.holds.get(command.target) or self.model.requests.get(command.target)
        return command.target if about is None else about.budget

    def _expect(self, command: Command, now: int, word: str, left: int | None, made: str | None = None) -> None:
        expected, remaining = self.model.apply(command, now, made)
        if word != expected or (left is not None and left != remaining):
            raise Fault(f"{command} was decided '{word}', {left} left; the model says '{expected}', {remaining} left")
        is_told = word == "open" if command.kind == "ask" else word in ("approved", "refused", "withdrawn")
        if command.kind in _TOLD and is_told:
            request_id = made if command.kind == "ask" else command.target
            for level in self.model.path(self.model.requests[str(request_id)].budget):
                if level in self.storage.tables.webhooks:
                    about = self.model.requests[str(request_id)].budget
                    self.to_tell[f"whk_{level}", _TOLD[command.kind], about, request_id, word] += 1

    def exceeds(self, transaction: Any, denial: Any, path: Any) -> bool:
        """Return whether expired holds prevent a reservation that is denied under its locks."""
        for level in path:
            if self.model.used[level.id] * UNIT != level.used[0] and len(transaction._entries) == 0:
                raise Fault(
                    f"{level.id} was denied with {level.used[0]}, and the model has {self.model.used[level.id]}"
                )
        ids = [level.id for level in path]
        from_the_root = "/".join(reversed(ids[ids.index(denial.budget_id) :]))
        session: Any = simulated.Session(transaction.connection)
        return bool(simulated.due_holds(session, from_the_root, transaction.now, 1))

    def compare(self) -> None:
        """Compare everything in the tables with the entries, and with the model."""
        tables, states = self.storage.tables, self.books.states()
        if states.keys() != tables.budgets.keys():
            raise Fault("the tables have other budgets than the entries")
        for budget_id, row in tables.budgets.items():
            state, head = states[budget_id], self.books.accounts[budget_id].head
            found = tuple(row[name] for name in ("spent", "started", "pending", "overdrawn", "filter", "headroom"))
            said = (state.spent, state.started, state.pending, state.overdrawn, state.filter, state.headroom)
            if found != said or (row["sequence"], row["head_hash"]) != (head.sequence, head.hash):
                raise Fault(f"the row of {budget_id} is not what its entries add up to")
            if self.model.used[budget_id] * UNIT != sum(state.used):
                raise Fault(f"{budget_id} uses {state.used}, and the model says {self.model.used[budget_id]}")
            if sum(state.used) > state.filter.caps[0] and budget_id not in self.model.overdrawn:
                raise Fault(f"{budget_id} is over its limit")
            exposed = self.books.accounts[budget_id].exposed
            counts = {sha256_hex(text.encode()): number for text, number in exposed.items() if number}
            kept = {step: number for (of, step), number in tables.exposed.items() if of == budget_id and number}
            if counts != kept:
                raise Fault(f"the exposed steps of {budget_id} are not those of its entries")
        for reservation_id, hold in self.model.holds.items():
            row = tables.reservations[reservation_id]
            held = row["cost"][0] if row["charged"] is None else row["charged"][0]
            expected = hold.charged if hold.state == "committed" else hold.units
            if row["state"] != hold.state or held != expected * UNIT:
                raise Fault(f"the row of {reservation_id} is '{row['state']}', {held}; the model has {hold}")
        expected_rows = limit_request_rows(self.books)
        if tables.limit_requests != expected_rows:
            raise Fault("the rows of requests for limits are not what their entries add up to")
        states_of = {each: row["state"] for each, row in tables.limit_requests.items()}
        if states_of != {each: request.state for each, request in self.model.requests.items()}:
            raise Fault("requests for limits are in other states than in the model")
        uses = {use: entries for use, (entries, _) in tables.uses.items() if entries}
        if uses != {use: entries for use, entries in self.model.written.items() if entries}:
            raise Fault(f"the uses of keys are {uses}, and the model has {self.model.written}")
        if len(tables.reservations) != len(self.model.holds):
            raise Fault("there are reservations that nobody asked for")
        for key in self.acknowledged:
            if ("client", key) not in tables.records:
                raise Fault(f"{key} was acknowledged, and is gone")

    def _restore(self) -> None:
        """At the end, the database is restored from an older copy: nothing is acknowledged on it."""
        if self._snapshot is None:
            return
        known, tables = self._snapshot
        lost_keys = self.acknowledged[known:]
        missing = any(
            self.recorded[key][1] > tables.budgets.get(self.recorded[key][0], {"sequence": 0})["sequence"]
            for key in lost_keys
        )
        self.storage.tables = tables
        if not missing:
            return
        self.storage.faults = {}
        self.scheduler.note("database is restored")
        for number in range(20):
            process = Process(self, 0)
            asked = Asked(f"restored {number}", Command("charge", self.rng.choice(list(tables.budgets)), 1))
            self.scheduler.begin(process, asked, lambda process=process, asked=asked: process.serve(asked))
            (task,) = self.scheduler.tasks
            try:
                while not self.scheduler.go_on(task)[0]:
                    pass
            except Unfenced:
                self.scheduler.tasks.remove(task)
                self.report.refused_after_restore += 1
                continue
            raise Fault("a database that lost what was acknowledged takes commands")

    def _watched(self, take: Callable[[Any, Any], Problem | None]) -> Callable[[Any, Any], Problem | None]:
        def watched(meter: Any, row: Any) -> Problem | None:
            refusal = take(meter, row)
            if refusal is not None:
                self.refused(meter, row, refusal)
            return refusal

        return watched

    @contextmanager
    def _in_place_of_a_database(self) -> Iterator[None]:
        numbers = count(1)
        repository = SimpleNamespace(
            **{
                name: getattr(simulated, name)
                for name in (
                    "has_own_schema",
                    "ledger_id",
                    "newest_life",
                    "enter_first_life",
                    "heads",
                    "entries_between",
                )
            }
        )
        holds = SimpleNamespace(find_budget=simulated.find_budget, due_holds=simulated.due_holds)
        statements = {
            name: getattr(simulated, name)
            for name in (
                "paths", "lock_budgets", "reservations", "update_budgets", "insert_reservations",
                "update_reservations", "limit_requests", "insert_limit_requests", "update_limit_requests",
                "add_exposed_steps",
            )
        }  # fmt: skip
        with ExitStack() as stack:
            for name, function in statements.items():
                stack.enter_context(patch.object(journal.statements, name, function))
            for owner, name, function in (
                (journal, "insert_entries", simulated.insert_entries),
                (news.writing, "subscriptions", simulated.subscriptions),
                (news.writing, "write", simulated.write_messages),
                (metering, "settings_of", lambda connection: self.settings),
                (metering.Meter, "take", self._watched(metering.Meter.take)),
                (journal, "new_id", lambda prefix: f"{prefix}_{next(numbers)}"),
                (once, "find", simulated.find),
                (remembered, "find", simulated.find),
                (once, "insert_all", simulated.insert_all),
                (executor, "_holds_are_due", self.exceeds),
                (reservations, "ledger", holds),
                (fences, "repository", repository),
            ):
                stack.enter_context(patch.object(owner, name, function))
            yield


def _second(moment: datetime) -> int:
    return round((moment - BEGINNING).total_seconds())


def run(seed: int, commands: int) -> Report:
    """One world."""
    return World(seed, commands).run()


def timed(seed: int, commands: int) -> tuple[Report, float]:
    """One world, and the seconds that it took."""
    began = time.perf_counter()
    return run(seed, commands), time.perf_counter() - began
