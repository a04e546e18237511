"""Budgets as calibrations see them: what remains as a target, and what a plan would cost there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from accounting.events import Event
from accounting.relations import NeighboringRelation
from accounting.targets import BudgetTarget
from app.auth import reach
from app.auth.principal import Principal, Scope
from app.budgets import service as budgets
from app.context import Context
from app.kit.fields import Schema
from app.ledger.amounts import amounts_in_words, remaining_in_words
from app.ledger.states import BudgetState
from app.problems import Problem, unprocessable
from app.reservations.schemas import LedgerWarning


class CostInBudgetBody(Schema):
    """What the plan's events cost in a budget's filter, in the filter's own fields. Nothing is reserved."""

    budget_id: str
    cost: dict[str, Any]
    remaining: dict[str, Any] = Field(description="What remains before this cost.")
    fits: bool = Field(description="Whether the filter would admit it now.")
    warnings: list[LedgerWarning]


@dataclass
class BudgetReader:
    """Budgets as one request sees them: each is read once, so that a sweep's cells see the same amounts."""

    context: Context
    principal: Principal
    _states: dict[str, BudgetState] = field(default_factory=dict)

    def state(self, budget_id: str, relation: NeighboringRelation | None, *pointer: str) -> BudgetState:
        """The budget's filter and amounts.

        Args:
            relation: Of the request; None takes whichever the budget counts under.

        Raises:
            Problem: 403 for a key that may not read budgets; 422 ``unknown_budget`` at ``pointer``, or
                ``relation_mismatch``.
        """
        if not self.principal.may(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR):
            detail = "What remains of a budget is for a key with the scope admin or analyst or auditor or owner."
            raise Problem(403, "forbidden", detail)
        if budget_id not in self._states:
            try:
                with self.context.database.read() as session:
                    reach.check(session, self.principal, "budget_id", budget_id)
                    self._states[budget_id] = budgets.narrowed_state(session, budget_id)
            except Problem as problem:
                if problem.status != 404:
                    raise
                detail = f"there is no budget with the id {budget_id!r}"
                raise unprocessable("unknown_budget", detail, *pointer) from None
        state = self._states[budget_id]
        if relation is not None and state.relation is not relation:
            raise unprocessable(
                "relation_mismatch",
                f"the budget counts under {state.relation}, and this calibration is under {relation}: one says nothing "
                "about the other",
                "neighboring_relation",
            )
        return state


def cost_in_budget(
    budget_id: str, state: BudgetState, events: Sequence[Event], charge_delta: float | None
) -> CostInBudgetBody:
    """What the ledger would hold for these events.

    Raises:
        AccountingError: the filter has no price for them.
    """
    cost = state.filter.cost(events, state.relation, charge_delta)
    return CostInBudgetBody(
        budget_id=budget_id,
        cost=amounts_in_words(state.filter, cost.amounts),
        remaining=remaining_in_words((state,)),
        fits=state.filter.admits(state.filter.add(state.used, cost.amounts)),
        warnings=[LedgerWarning(code=warning.code, detail=warning.detail) for warning in cost.warnings],
    )


def budget_target(state: BudgetState, charge_delta: float | None) -> BudgetTarget:
    """What remains of the budget, as a target."""
    return BudgetTarget(state.filter, state.used, charge_delta)
