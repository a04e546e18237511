"""`/v1/budgets/{id}/spending`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from app.auth.names import names_of
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.budgets.spending import GroupBy, Period, spending
from app.context import CurrentContext
from app.kit.fields import Schema
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import repository as ledger
from app.ledger.amounts import amounts_in_words

router = APIRouter(prefix="/v1/budgets", tags=["Budgets"], dependencies=[KnownParametersOnly])

Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]


class SpendingBody(Schema):
    """The charges of one key, added up."""

    key: str = Field(
        description="A day (`2026-05-01`) or a month (`2026-05`) in UTC, a purpose, a principal, or the kinds of "
        "mechanism that were reserved (`gaussian,laplace`)."
    )
    name: str | None = Field(description="The name of the principal; null for other keys.")
    amount: dict[str, Any] = Field(description="What was charged, in the filter's own fields.")
    charges: int
    first_at: datetime = Field(description="When the first of these charges was committed.")
    cumulative: dict[str, Any] | None = Field(
        description="Everything since `after`, up to and including this day or month; null for other keys."
    )


@router.get("/{budget_id}/spending", operation_id="get_spending", summary="Show who has spent what, and when")
def get_spending(
    context: CurrentContext,
    _: Reader,
    budget_id: str,
    group_by: Annotated[GroupBy, Query(description="What the charges are added up by.")] = GroupBy.DAY,
    after: Annotated[AwareDatetime | None, Query(description="List only charges at this moment or later.")] = None,
    before: Annotated[AwareDatetime | None, Query(description="List only charges before this moment.")] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[SpendingBody]:
    """What was committed in this budget and in those under it, corrections included, sorted by the key. A charge counts
    at the time of its commit, even if it was corrected later. Reservations that are started and not committed do not
    count.
    """
    last = decode_cursor(cursor, str)
    with context.database.read() as session:
        budget = ledger.get_budget(session, budget_id)
        found = spending(
            session,
            budget,
            group_by,
            Period(after, before),
            after_key=None if last is None else last[0],
            limit=limit + 1,
        )
        shown, next_cursor = cut_page(found, limit, lambda spent: (spent.key,))
        names = names_of(session, (spent.key for spent in shown)) if group_by is GroupBy.PRINCIPAL else {}
    items = [
        SpendingBody(
            key=spent.key.strip(",") if group_by is GroupBy.MECHANISM else spent.key,
            name=names.get(spent.key),
            amount=amounts_in_words(budget.filter, spent.amounts),
            charges=spent.charges,
            first_at=spent.first_at,
            cumulative=None if spent.cumulative is None else amounts_in_words(budget.filter, spent.cumulative),
        )
        for spent in shown
    ]
    return Page(items=items, next_cursor=next_cursor)
