"""Whatever is asked in whatever order, however often each request is sent: the answers are those of a small model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from accounting.events import Event, ZcDp
from app.budgets import service, storage
from app.budgets.schemas import BudgetRequest
from app.kit.context import Context
from app.kit.idempotency import Answer, run_once
from app.problems import Problem
from tests.app.budgets.conftest import Clock
from tests.app.ledger.audit import audit

LIMIT = 100
UNIT = 10**7  # rho 0.01 in nano-units


@dataclass
class Hold:
    units: int
    expires: int
    state: str = "pending"
    charged: int = 0


@dataclass
class Model:
    """The ledger of one budget, in units, with nothing but integers."""

    now: int = 0
    holds: list[Hold] = field(default_factory=list)

    def used(self) -> int:
        held = sum(hold.units for hold in self.holds if hold.state in ("pending", "started"))
        return held + sum(hold.charged for hold in self.holds)

    def reserve(self, units: int, expires_in: int) -> str:
        stale = [hold for hold in self.holds if hold.state == "pending" and hold.expires <= self.now]
        if units > LIMIT - self.used() + sum(hold.units for hold in stale):
            return "budget_exceeded"
        for hold in sorted(stale, key=lambda hold: hold.expires):
            if units <= LIMIT - self.used():
                break
            hold.state = "expired"
        self.holds.append(Hold(units, self.now + expires_in))
        return "pending"

    def resolve(self, hold: Hold, command: str, part: int | None = None) -> str:
        if hold.state in ("committed", "voided"):
            return "already_resolved"
        late = hold.state == "pending" and hold.expires <= self.now
        if hold.state == "expired" or (late and command != "void"):
            return "expired"
        if hold.state == "started" and command != "commit":
            return "already_started"
        if part is not None and part > hold.units:
            return "not_a_prefix"
        if command == "commit":
            hold.charged = hold.units if part is None else part
        hold.state = {"start": "started", "commit": "committed", "void": "voided"}[command]
        return hold.state


class Ledger(RuleBasedStateMachine):
    """The real ledger and the model side by side. Every request is sent one to three times with the same key."""

    def __init__(self, context: Context, clock: Clock) -> None:
        super().__init__()
        self.context, self.clock, self.model = context, clock, Model()
        self.ids: list[str] = []
        self.keys = 0
        request = BudgetRequest.model_validate(
            {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1}}
        )
        with context.database.write() as session:
            self.budget_id = service.create_budget(session, context, request, "alice").id
        self.key_prefix = self.budget_id

    def send(self, command: Any, times: int) -> str:
        self.keys += 1
        answers = []
        for _ in range(times):
            try:
                answer = run_once(self.context, "alice", f"{self.key_prefix}{self.keys}", b"same", command)
                answers.append(answer.body["outcome"])
            except Problem as problem:
                answers.append(problem.code)
        assert len(set(answers)) == 1, answers
        return str(answers[0])

    @rule(units=st.integers(1, 45), expires_in=st.integers(1, 40), times=st.integers(1, 3))
    def reserve(self, units: int, expires_in: int, times: int) -> None:
        def command(session: Any) -> Answer:
            state = service.reserve(
                session,
                self.context,
                budget_id=self.budget_id,
                events=[Event(ZcDp(0.01), count=units)],
                purpose="p",
                principal_id="alice",
                expires_in=expires_in,
            )
            self.ids.append(state.id)
            return Answer(201, {"outcome": str(state.status)})

        assert self.send(command, times) == self.model.reserve(units, expires_in)
        assert len(self.ids) == len(self.model.holds)

    @precondition(lambda self: self.ids)
    @rule(
        which=st.integers(0, 10**6),
        name=st.sampled_from(["start", "commit", "void"]),
        part=st.none() | st.integers(1, 45),
        times=st.integers(1, 3),
    )
    def resolve(self, which: int, name: str, part: int | None, times: int) -> None:
        index = which % len(self.ids)
        taken = part if name == "commit" else None

        def command(session: Any) -> Answer:
            arguments = [] if taken is None else [[Event(ZcDp(0.01), count=taken)]]
            state = getattr(service, name)(session, self.context, self.ids[index], *arguments)
            return Answer(200, {"outcome": str(state.status)})

        assert self.send(command, times) == self.model.resolve(self.model.holds[index], name, taken)

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model.now += seconds

    def teardown(self) -> None:
        with self.context.database.read() as session:
            history = audit(session, self.budget_id)
            amounts = storage.budget_state(service.get_budget(session, self.budget_id))
        assert sum(amounts.used) == self.model.used() * UNIT
        assert amounts.spent == (sum(hold.charged for hold in self.model.holds) * UNIT,)
        states = [str(history.reservations[identifier].status) for identifier in self.ids]
        assert states == [hold.state for hold in self.model.holds]


def test_the_ledger_answers_as_the_model_does(context: Context, clock: Clock) -> None:
    run_state_machine_as_test(
        lambda: Ledger(context, clock),
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            database=None,
            # A failure is at most 25 requests long as it is; making it shorter would take minutes.
            phases=[Phase.generate],
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
