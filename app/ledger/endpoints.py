"""`/v1/budgets/{id}/entries`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from accounting.filters import PrivacyFilter
from app.auth.principal import Principal, Scope, requires
from app.budgets import service as budgets
from app.budgets import storage
from app.budgets.amounts import numbers
from app.budgets.schemas import PRINTABLE
from app.kit.context import CurrentContext
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import repository
from app.ledger.models import Entry
from app.ledger.schemas import EntryBody
from app.ledger.states import EntryKind
from app.privacy.schemas import EventSchema

router = APIRouter(prefix="/v1", tags=["Ledger"], dependencies=[KnownParametersOnly])

Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]


@router.get("/budgets/{budget_id}/entries", operation_id="list_entries", summary="A budget's history, oldest first")
def list_entries(
    context: CurrentContext,
    _: Reader,
    budget_id: str,
    kind: EntryKind | None = None,
    after: Annotated[AwareDatetime | None, Query(description="Recorded at this moment or later.")] = None,
    before: Annotated[AwareDatetime | None, Query(description="Recorded earlier than this moment.")] = None,
    purpose: Annotated[
        str | None, Query(max_length=200, pattern=PRINTABLE, description="Exactly this purpose of a reservation.")
    ] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[EntryBody]:
    """Everything that was ever decided about the budget, with the hashes that chain it."""
    behind = decode_cursor(cursor, int)
    with context.database.read() as session:
        budget_filter = storage.filter_of(budgets.get_budget(session, budget_id))
        found = repository.page(
            session,
            budget_id,
            from_sequence=0 if behind is None else behind[0],
            limit=limit + 1,
            kind=kind,
            after=after,
            before=before,
            purpose=purpose,
        )
        rows, next_cursor = cut_page(found, limit, lambda entry: (entry.sequence,))
        return Page(items=[entry_body(row, budget_filter) for row in rows], next_cursor=next_cursor)


def entry_body(entry: Entry, budget_filter: PrivacyFilter) -> EntryBody:
    """The entry as the contract writes it."""
    is_limit = entry.kind == EntryKind.CREATE
    return EntryBody(
        id=entry.id,
        budget_id=entry.budget_id,
        sequence=entry.sequence,
        leaf_index=entry.leaf_index,
        kind=EntryKind(entry.kind),
        amount=numbers(budget_filter.describe_limit() if is_limit else budget_filter.describe(tuple(entry.amounts))),
        events=[EventSchema.model_validate(event) for event in entry.events],
        reservation_id=entry.reservation_id,
        principal_id=entry.principal_id,
        purpose=entry.purpose,
        engine_version=entry.engine_version,
        recorded_at=entry.recorded_at,
        previous_hash=entry.previous_hash,
        hash=entry.hash,
    )
