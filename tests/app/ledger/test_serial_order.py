"""Whatever is asked in whatever order, however often each request is sent: the answers are those of a small model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from app.context import Context
from app.reservations.service import release_due_holds
from tests.app.budgets.conftest import Clock
from tests.app.ledger.audit import audit
from tests.app.ledger.client import UNIT, Client, open_tree
from tests.app.ledger.model import Command, Model

#: A child, or two of one parent, or a child with a child of its own.
TREES = [(None,), (None, 0), (None, 0, 0), (None, 0, 1)]
UNITS = st.integers(1, 40)
SECONDS = st.integers(1, 25)
TIMES = st.integers(1, 3)
WHICH = st.integers(0, 10**6)


class Ledger(RuleBasedStateMachine):
    """The real ledger and the model side by side. Every request is sent one to three times with the same key."""

    def __init__(self, context: Context, clock: Clock, loop: BlockingPortal) -> None:
        super().__init__()
        self.context, self.clock, self.loop, self.keys = context, clock, loop, 0

    @initialize(parents=st.sampled_from(TREES), limits=st.tuples(*[st.integers(30, 100)] * 3))
    def open_budgets(self, parents: tuple[int | None, ...], limits: tuple[int, ...]) -> None:
        self.model = Model(parents, limits[: len(parents)])
        self.client = Client(self.context, self.loop, open_tree(self.context, parents, self.model.limits))

    def send(self, command: Command, times: int) -> None:
        self.keys += 1
        name = f"{self.client.budgets[0]}-{self.keys}"
        answers = [self.client.send(name, command) for _ in range(times)]
        expected, self.model = self.model.apply(name, command)
        assert answers == [expected] * times

    def budget(self, which: int) -> int:
        return which % len(self.model.limits)

    @rule(which=WHICH, units=UNITS, seconds=SECONDS, times=TIMES)
    def reserve(self, which: int, units: int, seconds: int, times: int) -> None:
        self.send(Command("reserve", self.budget(which), units, seconds), times)

    @rule(which=WHICH, units=UNITS, seconds=st.integers(1, 5))
    def hold_for_a_short_time(self, which: int, units: int, seconds: int) -> None:
        self.send(Command("reserve", self.budget(which), units, seconds), 1)

    @precondition(lambda self: self.client.ids)
    @rule(
        which=WHICH,
        kind=st.sampled_from(["start", "start", "commit", "commit", "void", "extend"]),
        part=st.none() | UNITS,
        seconds=SECONDS,
        times=TIMES,
    )
    def resolve(self, which: int, kind: str, part: int | None, seconds: int, times: int) -> None:
        taken = part if kind == "commit" else None
        self.send(Command(kind, self.some_hold(which), taken, seconds), times)

    @precondition(lambda self: self.client.ids)
    @rule(which=WHICH, units=st.none() | st.integers(0, 40), may_lower=st.booleans(), times=TIMES)
    def correct(self, which: int, units: int | None, may_lower: bool, times: int) -> None:
        self.send(Command("correct", self.some_hold(which), units, may_lower=may_lower), times)

    def some_hold(self, which: int) -> str:
        return sorted(self.client.ids)[which % len(self.client.ids)]

    @rule(which=WHICH, units=st.integers(1, 8), times=TIMES)
    def charge(self, which: int, units: int, times: int) -> None:
        self.send(Command("charge", self.budget(which), units), times)

    @rule(which=WHICH, units=st.integers(1, 160), times=TIMES)
    def change_the_limit(self, which: int, units: int, times: int) -> None:
        self.send(Command("limit", self.budget(which), units), times)

    @rule(which=WHICH)
    def look(self, which: int) -> None:
        self.send(Command("look", self.budget(which)), 1)

    @rule(seconds=st.integers(1, 30))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.model = replace(self.model, now=self.model.now + seconds)

    @rule()
    def sweep(self) -> None:
        released = self.model.released(0)
        assert release_due_holds(self.context, self.client.budgets[0]) == len(released.holds - self.model.holds)
        self.model = released

    def teardown(self) -> None:
        with self.context.database.read() as session:
            histories = [audit(session, budget_id) for budget_id in self.client.budgets]
        states = {
            name: str(history.reservations[identifier].status)
            for history in histories
            for name, identifier in self.client.ids.items()
            if identifier in history.reservations
        }
        assert states == {hold.name: hold.state for hold in self.model.holds}
        for number, history in enumerate(histories):
            own = sum(hold.used for hold in self.model.holds if hold.budget == number)
            assert history.used == (own * UNIT,)


@pytest.fixture
def loop() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.mark.thorough
def test_the_ledger_answers_as_the_model_does(context: Context, clock: Clock, loop: BlockingPortal) -> None:
    class LedgerHere(Ledger):
        def __init__(self) -> None:
            super().__init__(context, clock, loop)

    run_state_machine_as_test(
        LedgerHere,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            database=None,
            # A failure is at most 30 requests long as it is; making it shorter would take minutes.
            phases=[Phase.generate],
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_due_holds_make_room_in_every_budget_that_stands_in_the_way(
    context: Context, clock: Clock, loop: BlockingPortal
) -> None:
    """One after the other: first below the child that denies, then, in another child, below the root that does."""
    model = Model((None, 0, 0), (50, 40, 50))
    client = Client(context, loop, open_tree(context, model.parents, model.limits))
    for name, command in (
        ("in the child", Command("reserve", 1, 30, 5)),
        ("in the other", Command("reserve", 2, 20, 5)),
    ):
        expected, model = model.apply(name, command)
        assert client.send(name, command) == expected
    clock.advance(10)
    late = Command("reserve", 1, 35, 60)
    expected, _ = replace(model, now=10).apply("late", late)
    assert client.send("late", late) == expected == ("pending", 5)
    assert client.send("look", Command("look", 0)) == ("seen", (0, 0, 35))
