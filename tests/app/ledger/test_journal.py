"""Storage of the ledger: many instructions in one transaction leave what the same instructions leave one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as with_settings
from hypothesis import strategies as st

from accounting.events import Event, ZcDp
from accounting.filters import ZcdpFilter
from accounting.relations import NeighboringRelation
from app.budgets.schemas import BudgetRequest
from app.budgets.service import create_budget
from app.context import Context
from app.entries.records import record_from_canonical
from app.kit.ids import new_id
from app.ledger import pricing, repository, rows
from app.ledger.commands import (
    ChangeLimit,
    Charge,
    Command,
    Commit,
    Correct,
    Expire,
    Extend,
    Quote,
    Reserve,
    Start,
    Void,
)
from app.ledger.denials import Denial
from app.ledger.journal import Instruction, NoTarget, Outcome, carry_out
from app.ledger.transitions import Transition
from app.reservations import service
from app.tables.ledger import Budget
from tests.app.budgets.conftest import Clock
from tests.app.ledger.audit import audit
from tests.app.ledger.client import open_tree

#: Two trees: a root with two children, one of which has a child; and a root alone.
PARENTS, LIMITS = [None, 0, 0, 1, None], [50, 40, 40, 30, 20]
#: What every example begins with: holds of a few units, by budget; every third is due when the instructions come.
HOLDS = [(budget, 1 + number % 4, 10 if number % 3 == 0 else 1000) for number, budget in enumerate([0, 1, 2, 3, 4] * 2)]

Asked = tuple[str, int, int]


def events(units: int) -> tuple[Event, ...]:
    return (Event(ZcDp(0.01), count=units),)


@dataclass
class Forest:
    """The same budgets and holds, once more."""

    context: Context
    budgets: list[str]
    holds: list[str]

    def instruction(self, asked: Asked) -> Instruction:
        """What is asked, about this forest: a kind, a number that says about what (or about nothing), and units."""
        kind, which, units = asked
        quote, later = price(units), self.context.clock() + timedelta(seconds=100 * units)
        about_budgets: dict[str, Command] = {
            "reserve": Reserve(new_id("res"), events(units), quote, later, purpose="p"),
            "charge": Charge(new_id("res"), events(units), quote, "r"),
            "limit": ChangeLimit(ZcdpFilter((10 + 2 * units) / 100), "r"),
        }
        about_holds: dict[str, Command] = {
            "start": Start(),
            "extend": Extend(later),
            "commit": Commit(),
            "commit a part": Commit(events(units), quote),
            "void": Void(),
            "expire": Expire(),
            "reprice": Correct(quote, "r", priced=events(HOLDS[which % len(HOLDS)][1])),
            "correct": Correct(quote, "r", events(units), may_lower=units % 2 == 0),
        }
        targets = [*(self.budgets if kind in about_budgets else self.holds), "nothing"]
        return Instruction({**about_budgets, **about_holds}[kind], "loopback", targets[which % len(targets)])

    def carry_out(self, asked: Sequence[Asked]) -> list[Outcome]:
        """In one transaction."""
        with self.context.database.write() as session:
            instructions = [self.instruction(each) for each in asked]
            return carry_out(session, self.context.database, instructions, self.context.clock())

    def told(self, outcomes: Sequence[Outcome]) -> list[Any]:
        """The outcomes in words that do not depend on the ids of this forest."""
        return [
            self.named(outcome.code, outcome.state, outcome.budget_id)
            if isinstance(outcome, Denial)
            else self.named(outcome.kind, outcome.amounts, [level.used for level in outcome.path])
            if isinstance(outcome, Transition)
            else "no target"
            for outcome in outcomes
        ]

    def books(self) -> list[Any]:
        """Every entry, and every budget's amounts, without the ids of this forest."""
        found: list[Any] = []
        with self.context.database.read() as session:
            for budget_id in self.budgets:
                audit(session, budget_id)
                state = rows.budget_state(session.get_one(Budget, budget_id))
                found.append(self.named(state))
                for entry in repository.chain(session, budget_id):
                    record = record_from_canonical(entry.canonical)
                    reservation_id = record.reservation_id and self.place(session, record.reservation_id)
                    found.append(self.named(replace(record, id="", reservation_id=reservation_id, refers_to=None)))
        return found

    def place(self, session: Any, reservation_id: str) -> str:
        """The reservation by the entry that made it."""
        reservation = service.get_reservation(session, reservation_id)
        return f"{reservation.budget_id} {reservation.sequence}"

    def named(self, *values: object) -> str:
        text = repr(values)
        for number, budget_id in enumerate(self.budgets):
            text = text.replace(budget_id, f"budget {number}")
        return text


def price(units: int) -> Quote:
    return pricing.price(ZcdpFilter(1.0), events(units), NeighboringRelation.REPLACE_ONE)


def hold(clock: Clock, units: int = 1, seconds: int = 100) -> Reserve:
    return Reserve(new_id("res"), events(units), price(units), clock() + timedelta(seconds=seconds))


def plant(context: Context, clock: Clock) -> Forest:
    budgets = open_tree(context, PARENTS, LIMITS)
    made = {hold(clock, units, seconds): budgets[budget] for budget, units, seconds in HOLDS}
    instructions = [Instruction(command, "loopback", budget_id) for command, budget_id in made.items()]
    with context.database.write() as session:
        outcomes = carry_out(session, context.database, instructions, clock())
    assert all(isinstance(outcome, Transition) for outcome in outcomes)
    return Forest(context, budgets, [command.reservation_id for command in made])


KINDS = ["reserve", "reserve", "charge", "limit", "start", "extend", "commit", "commit a part", "void", "expire"]
ASKED = st.tuples(st.sampled_from([*KINDS, "reprice", "correct"]), st.integers(0, 40), st.integers(1, 12))


@pytest.mark.thorough
def test_a_batch_leaves_what_its_instructions_leave_one_by_one(context: Context, clock: Clock) -> None:
    @with_settings(
        max_examples=15,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(ASKED, min_size=8, max_size=20))
    def check(asked: list[Asked]) -> None:
        together, apart = plant(context, clock), plant(context, clock)
        made_at = clock()
        clock.advance(20)
        try:
            at_once = together.told(together.carry_out(asked))
            one_by_one = [outcome for each in asked for outcome in apart.told(apart.carry_out([each]))]
            assert at_once == one_by_one
            assert together.books() == apart.books()
        finally:
            clock.now = made_at

    check()


def test_what_was_rolled_back_does_not_exist(context: Context, clock: Clock) -> None:
    """Also for the process that made it, which remembers where budgets and reservations belong."""
    forest = plant(context, clock)
    command = hold(clock)
    with context.database.write() as session:
        carry_out(session, context.database, [Instruction(command, "loopback", forest.budgets[0])], clock())
        session.rollback()
    for about in (Start(), Commit(), Void(), Correct(price(1), "r", priced=events(1))):
        with context.database.write() as session:
            instruction = Instruction(about, "loopback", command.reservation_id)
            (outcome,) = carry_out(session, context.database, [instruction], clock())
        assert isinstance(outcome, NoTarget)
    with context.database.read() as session:
        audit(session, forest.budgets[0])


def test_a_budget_that_was_rolled_back_does_not_exist(context: Context, clock: Clock) -> None:
    request = BudgetRequest.model_validate(
        {"name": "b", "neighboring_relation": "replace_one", "filter": {"kind": "zcdp", "rho": 1}}
    )

    def reserve(session: Any, budget_id: str) -> Outcome:
        command = hold(clock)
        (outcome,) = carry_out(session, context.database, [Instruction(command, "loopback", budget_id)], clock())
        return outcome

    with context.database.write() as session:
        budget_id = create_budget(session, context, request, "alice").id
        assert isinstance(reserve(session, budget_id), Transition)
        session.rollback()
    with context.database.write() as session:
        assert isinstance(reserve(session, budget_id), NoTarget)


def test_a_command_about_a_budget_is_not_one_about_a_reservation(context: Context, clock: Clock) -> None:
    forest = plant(context, clock)
    command = hold(clock)
    mixed_up = [Instruction(command, "loopback", forest.holds[0]), Instruction(Start(), "alice", forest.budgets[0])]
    with context.database.write() as session:
        outcomes = carry_out(session, context.database, mixed_up, clock())
    assert [type(outcome) for outcome in outcomes] == [NoTarget, NoTarget]
