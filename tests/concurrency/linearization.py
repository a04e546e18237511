"""Whether what concurrent callers saw could have happened one after the other (Wing & Gong, 1993; Lowe's memory).

The order that is searched for must answer every command as it was answered, and respect real time: what was answered
before something else was asked comes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.app.ledger.model import Command, Model, Outcome


@dataclass(frozen=True)
class Operation:
    """A command as its caller saw it: when it was asked, when it was answered, and what."""

    name: str
    command: Command
    asked_at: int
    answered_at: int
    outcome: Outcome


def serial_order(model: Model, history: Sequence[Operation]) -> list[str] | None:
    """The names of the operations in an order that explains them; None if there is none.

    Args:
        model: The state before.
        history: What was seen. Holds that are due may be released at any moment, by nobody's command.
    """
    failed: set[tuple[Model, frozenset[Operation]]] = set()

    def search(state: Model, left: frozenset[Operation]) -> list[str] | None:
        if not left:
            return []
        if (state, left) in failed:
            return None
        first_answer = min(operation.answered_at for operation in left)
        for operation in left:
            if operation.asked_at > first_answer:
                continue
            for before in _with_releases(state):
                outcome, after = before.apply(operation.name, operation.command)
                if outcome == operation.outcome:
                    rest = search(after, left - {operation})
                    if rest is not None:
                        return [operation.name, *rest]
        failed.add((state, left))
        return None

    return search(model, frozenset(history))


def _with_releases(model: Model) -> set[Model]:
    """The state as it is, and as it is after some of what is due was released."""
    found = {model}
    for budget in range(len(model.limits)):
        found |= {state.released(budget) for state in found}
    return found
