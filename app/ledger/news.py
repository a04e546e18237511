"""Webhook messages about a ledger transaction: shares of limits that were reached, and requests for limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.ledger.amounts import amounts_in_words, limit_in_words, share_used
from app.ledger.states import BudgetState, LimitRequestState
from app.outbox import writing
from app.outbox.writing import Message, Subscription
from app.tables.states import WebhookEvent


@dataclass(frozen=True)
class Change:
    """A budget before and after a transaction."""

    before: BudgetState
    after: BudgetState


@dataclass(frozen=True)
class Decided:
    """A request for another limit after a decision, with the ids of its budget and of those above it."""

    request: LimitRequestState
    path: tuple[str, ...]


def tell(connection: Connection, changes: Mapping[str, Change], decided: Sequence[Decided], now: datetime) -> None:
    """Write the messages that webhooks asked for into the outbox, as a part of the transaction."""
    budget_ids = sorted({*changes, *(budget_id for each in decided for budget_id in each.path)})
    subscribed = writing.subscriptions(connection, budget_ids)
    if subscribed:
        writing.write(connection, messages(subscribed, changes, decided), now)


def messages(
    subscribed: Sequence[Subscription], changes: Mapping[str, Change], decided: Sequence[Decided]
) -> Iterator[Message]:
    """Yield the messages, webhook by webhook."""
    for each in subscribed:
        if WebhookEvent.SPENDING_THRESHOLD in each.events and each.budget_id in changes:
            yield from _of_spending(each, changes[each.budget_id])
        for one in decided:
            if one.request.is_open and one.request.approvals:
                continue  # only the last approval decides
            event = WebhookEvent.LIMIT_REQUESTED if one.request.is_open else WebhookEvent.LIMIT_DECIDED
            if event in each.events and each.budget_id in one.path:
                yield Message(each.webhook_id, event, _of_request(one.request))


def _of_spending(subscription: Subscription, change: Change) -> Iterator[Message]:
    """Yield each share that has just been reached. A correction or a new limit may take a budget below a share, which
    may then be reached again."""
    before, after = (share_used(state.filter, state.exposed) for state in (change.before, change.after))
    state = change.after
    for fraction in sorted(subscription.fractions):
        if before < fraction <= after:
            data = {
                "budget_id": state.id,
                "fraction": fraction,
                "limit": limit_in_words(state.filter),
                "spent": amounts_in_words(state.filter, state.spent),
                "started": amounts_in_words(state.filter, state.started),
            }
            yield Message(subscription.webhook_id, WebhookEvent.SPENDING_THRESHOLD, data)


def _of_request(request: LimitRequestState) -> dict[str, str]:
    return {"budget_id": request.budget_id, "limit_request_id": request.id, "state": str(request.status)}
