"""Price charges of older engines again, and raise those for which the present engine finds a higher price.

Nothing is lowered, even if an older engine charged too much. Each raise is a correction in the ledger, with its reason,
and may leave a budget overdrawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from accounting import ENGINE_VERSION
from accounting.filters import PrivacyFilter
from app.context import Context
from app.entries.kinds import SERVICE
from app.ledger import rows
from app.ledger.amounts import amounts_in_words
from app.ledger.commands import Correct
from app.ledger.denials import Denial, DenialCode
from app.ledger.journal import Instruction, carry_out
from app.ledger.states import ReservationState
from app.ledger.transitions import Transition
from app.problems import Problem
from app.reservations import repository
from app.reservations.quotes import quote_again
from app.reservations.service import get_reservation

_READ_AT_ONCE = 200


@dataclass(frozen=True)
class Repriced:
    """A charge, and the result of pricing it again.

    Attributes:
        reservation_id, budget_id: The reservation and its budget.
        before: The amount that was charged or held.
        after: The new amount, if it was raised; None if the old one was enough.
        failure: The reason why there is no price; None if there is one.
    """

    reservation_id: str
    budget_id: str
    before: dict[str, Any]
    after: dict[str, Any] | None = None
    failure: str | None = None


def reprice(context: Context) -> Iterator[Repriced]:
    """Price everything again that another engine has priced, one charge or open hold after another."""
    place = ("", 0)
    while True:
        with context.database.read() as session:
            found = repository.priced_by_others(session, ENGINE_VERSION, place, _READ_AT_ONCE)
        if not found:
            return
        for budget_filter, row in found:
            yield _reprice(context, budget_filter, rows.reservation_state(row))
        place = (found[-1][1].budget_id, found[-1][1].sequence)


def _reprice(context: Context, budget_filter: PrivacyFilter, state: ReservationState) -> Repriced:
    paid = state.cost if state.charged is None else state.charged
    before = amounts_in_words(budget_filter, paid)
    try:
        price = quote_again(context, state)
    except Problem as problem:
        return Repriced(state.id, state.budget_id, before, failure=problem.detail)
    if all(new <= old for new, old in zip(price.amounts, paid, strict=True)):
        return Repriced(state.id, state.budget_id, before)
    reason = f"priced again: engine {ENGINE_VERSION} finds a higher price than engine {state.engine_version} did"
    instruction = Instruction(Correct(price, reason, priced=state.priced_events), SERVICE, state.id)
    with context.database.write() as session:
        (outcome,) = carry_out(session, context.database, [instruction], context.clock())
    if isinstance(outcome, Denial) and outcome.code is DenialCode.PRICE_OUTDATED:
        with context.database.read() as session:
            return _reprice(context, budget_filter, rows.reservation_state(get_reservation(session, state.id)))
    if not isinstance(outcome, Transition):
        # It was voided or released meanwhile, so nothing is charged.
        return Repriced(state.id, state.budget_id, before)
    return Repriced(state.id, state.budget_id, before, after=amounts_in_words(budget_filter, outcome.amounts))
