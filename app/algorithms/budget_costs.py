"""Budgets in calibrations: the remaining amount as a target, and the cost of a plan in the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from accounting.errors import AccountingError
from accounting.events import Event
from accounting.filters.comparison import price_alone
from accounting.relations import NeighboringRelation
from accounting.targets import BudgetTarget
from accounting.units import Amounts
from app.auth import reach
from app.auth.principal import Principal, Scope
from app.budgets import service as budgets
from app.context import Context
from app.kit.fields import Schema
from app.ledger import repository as ledger
from app.ledger.amounts import amounts_in_words, remaining_in_words
from app.ledger.states import BudgetState, Path, narrowed
from app.problems import Problem, unprocessable
from app.reservations import prices
from app.reservations.schemas import LedgerWarning, PriceHereBody


class CostInBudgetBody(Schema):
    """The cost of the plan's events in a budget's filter, in the filter's own fields. Nothing is reserved."""

    budget_id: str
    cost: dict[str, Any]
    remaining: dict[str, Any] = Field(description="What remains before this cost.")
    price: PriceHereBody | None = Field(
        description="The cost as epsilons; null if neither the budget nor its reports have a delta, or if the plan "
        "has no tight epsilon there."
    )
    fits: bool = Field(description="Whether the filter would admit it now.")
    warnings: list[LedgerWarning]


@dataclass(frozen=True)
class KnownBudget:
    """A budget, read once for a request.

    Attributes:
        path: The amounts of the budget and of the budgets above it.
        report_delta: The delta at which the budget's reports are stated.
    """

    path: Path
    report_delta: float | None

    @property
    def state(self) -> BudgetState:
        """Return the amounts of the budget itself."""
        return self.path[0]


@dataclass
class BudgetReader:
    """Reads budgets for one request. Each budget is read once, so that all cells of a sweep see the same amounts."""

    context: Context
    principal: Principal
    _known: dict[str, KnownBudget] = field(default_factory=dict)

    def find(self, budget_id: str, relation: NeighboringRelation | None, *pointer: str) -> KnownBudget:
        """Return the budget's filter and amounts.

        Args:
            relation: The relation of the request; None accepts the budget's own.

        Raises:
            Problem: 403 for a key that may not read budgets; 422 ``unknown_budget`` at ``pointer``, or
                ``relation_mismatch``.
        """
        if not self.principal.may(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR):
            detail = "Only a key with the scope admin, analyst, auditor or owner may see what remains of a budget."
            raise Problem(403, "forbidden", detail)
        if budget_id not in self._known:
            try:
                with self.context.database.read() as session:
                    reach.check(session, self.principal, "budget_id", budget_id)
                    self._known[budget_id] = KnownBudget(
                        budgets.path(session, budget_id), ledger.report_delta(session, budget_id)
                    )
            except Problem as problem:
                if problem.status != 404:
                    raise
                detail = f"there is no budget with the id {budget_id!r}"
                raise unprocessable("unknown_budget", detail, *pointer) from None
        known = self._known[budget_id]
        state = known.state
        if relation is not None and state.relation is not relation:
            raise unprocessable(
                "relation_mismatch",
                f"the budget uses the relation {state.relation} and this calibration uses {relation}: a cost under "
                "one relation says nothing about the other",
                "neighboring_relation",
            )
        return known


def fits_in_budget(budget: KnownBudget, events: Sequence[Event], charge_delta: float | None) -> bool:
    """Return whether the ledger would admit these events now.

    Raises:
        AccountingError: the filter has no price for them.
    """
    return _fits(budget, budget.state.filter.cost(events, budget.state.relation, charge_delta).amounts)


def cost_in_budget(budget: KnownBudget, events: Sequence[Event], charge_delta: float | None) -> CostInBudgetBody:
    """Return the amounts that the ledger would hold for these events.

    Raises:
        AccountingError: the filter has no price for them.
    """
    state = budget.state
    cost = state.filter.cost(events, state.relation, charge_delta)
    return CostInBudgetBody(
        budget_id=state.id,
        cost=amounts_in_words(state.filter, cost.amounts),
        remaining=remaining_in_words(budget.path),
        price=_price(budget, tuple(events), cost.amounts),
        fits=_fits(budget, cost.amounts),
        warnings=[LedgerWarning(code=warning.code, detail=warning.detail) for warning in cost.warnings],
    )


def budget_target(budget: KnownBudget, charge_delta: float | None) -> BudgetTarget:
    """Return what remains of the budget and of those above it, as a calibration target."""
    state = narrowed(budget.path)
    return BudgetTarget(state.filter, state.used, charge_delta)


def _fits(budget: KnownBudget, amounts: Amounts) -> bool:
    return all(level.filter.admits(level.filter.add(level.used, amounts)) for level in budget.path)


def _price(budget: KnownBudget, events: tuple[Event, ...], amounts: Amounts) -> PriceHereBody | None:
    state = budget.state
    delta = prices.delta_of(state.filter, budget.report_delta)
    if delta is None:
        return None
    try:
        alone = price_alone(state.filter, amounts, events, state.relation, delta)
    except AccountingError:
        return None
    said: dict[str, Any] = prices.plan_price(alone, state.filter.kind, delta)
    return PriceHereBody(**said, **prices.room_for(budget.path, amounts, delta))
