"""Concurrent histories of the ledger are those of some serial order that respects real time, and the search that says
so refuses histories that are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from anyio.from_thread import BlockingPortal

from app.context import Context
from tests.app.ledger.model import Command, Model, Outcome
from tests.concurrency.histories import record_history
from tests.concurrency.linearization import Operation, serial_order

HISTORIES = 30

#: A parent with a limit of 10, and two children that may have 8 each.
MODEL = Model((None, 0, 0), (10, 8, 8))
RESERVE = Command("reserve", 1, 6, 60)


def operation(name: str, command: Command, between: tuple[int, int], outcome: Outcome) -> Operation:
    return Operation(name, command, *between, outcome)


def hold(name: str, between: tuple[int, int], outcome: Outcome, budget: int = 1) -> Operation:
    return operation(name, replace(RESERVE, target=budget), between, outcome)


DENIED = ("budget_exceeded", 2)
HELD = ("pending", 2)
#: The first was admitted; the names are in the order that explains them.
SERIAL = {
    "one after the other": [hold("a", (0, 1), HELD), hold("b", (2, 3), DENIED)],
    "the later request was first": [hold("b", (1, 4), HELD), hold("a", (0, 5), DENIED)],
    "a look at the same time sees what was before": [
        operation("look", Command("look", 0), (0, 9), ("seen", (0, 0, 0))),
        hold("a", (1, 2), HELD),
    ],
    "what is due may be released by nobody's command": [
        operation("short", Command("reserve", 1, 6, 0), (0, 1), HELD),
        operation("late", Command("void", "short"), (2, 3), ("expired", None)),
        hold("a", (4, 5), HELD),
    ],
    "and a hold that is due can still be voided": [
        operation("short", Command("reserve", 1, 6, 0), (0, 1), HELD),
        operation("late", Command("void", "short"), (2, 3), ("voided", 8)),
    ],
}
NOT_SERIAL = {
    "both were admitted": [hold("a", (0, 5), HELD), hold("b", (1, 4), HELD)],
    "both were admitted, by two children": [hold("a", (0, 5), HELD), hold("b", (1, 4), HELD, budget=2)],
    "both were denied": [hold("a", (0, 5), DENIED), hold("b", (1, 4), DENIED)],
    "denied before anything was asked that took the room": [hold("a", (0, 1), DENIED), hold("b", (2, 3), HELD)],
    "a look does not see what was answered before": [
        hold("a", (0, 1), HELD),
        operation("look", Command("look", 0), (2, 3), ("seen", (0, 0, 0))),
    ],
    "two looks see a hold come and go": [
        hold("a", (0, 9), HELD),
        operation("look", Command("look", 0), (1, 2), ("seen", (0, 0, 6))),
        operation("look again", Command("look", 0), (3, 4), ("seen", (0, 0, 0))),
    ],
    "two answers that each forget the other": [
        operation("a", Command("reserve", 1, 2, 60), (0, 5), ("pending", 6)),
        operation("b", Command("reserve", 1, 3, 60), (0, 5), ("pending", 5)),
    ],
    "resolved twice": [
        hold("a", (0, 1), HELD),
        operation("commit", Command("commit", "a"), (2, 9), ("committed", 2)),
        operation("void", Command("void", "a"), (2, 9), ("voided", 8)),
    ],
    "a hold that is not due was released": [
        hold("a", (0, 1), HELD),
        operation("void", Command("void", "a"), (2, 9), ("expired", None)),
    ],
    "a limit that forgets what is held": [
        hold("a", (0, 1), HELD),
        operation("lower", Command("limit", 0, 4), (2, 3), ("changed", 4)),
    ],
}


@pytest.mark.parametrize("name", SERIAL)
def test_a_history_is_explained_by_an_order(name: str) -> None:
    order = serial_order(MODEL, SERIAL[name])
    assert order == [operation.name for operation in SERIAL[name]]


@pytest.mark.parametrize("name", NOT_SERIAL)
def test_a_doctored_history_has_no_order(name: str) -> None:
    assert serial_order(MODEL, NOT_SERIAL[name]) is None


def check_histories(context: Context, loop: BlockingPortal, seeds: Iterable[int]) -> None:
    for seed in seeds:
        model, history = record_history(context, loop, seed)
        assert serial_order(model, history) is not None, "\n".join(map(repr, [seed, model, *history]))


def test_small_histories_of_the_ledger_are_serial(context: Context, loop: BlockingPortal) -> None:
    check_histories(context, loop, range(HISTORIES))
