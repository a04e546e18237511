"""Messages to webhooks, written in the transaction of the events that they report.

A message says nothing that a reader of the webhook's budget could not see: budgets at or under it, their amounts, and
ids of reservations and requests. It names no principal, and no budget above.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import Connection, Table, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from app.db.lists import among, as_list
from app.kit.ids import new_id
from app.tables.states import DeliveryState, WebhookEvent, WebhookState
from app.tables.webhooks import Webhook, WebhookMessage

#: The most messages of one webhook that may wait; further ones are counted, and not written.
MOST_WAITING = 1000
#: Denials within this many seconds make one message.
DENIALS_TOGETHER_S = 60

WEBHOOKS = cast(Table, Webhook.__table__)
MESSAGES = cast(Table, WebhookMessage.__table__)
#: A message that nobody has begun to send, so that its contents may still change.
_IS_UNTOUCHED = (
    (MESSAGES.c.state == str(DeliveryState.PENDING)) & (MESSAGES.c.attempts == 0) & MESSAGES.c.leased_until.is_(None)
)
_SUBSCRIPTIONS = {
    dialect: select(WEBHOOKS.c.id, WEBHOOKS.c.budget_id, WEBHOOKS.c.events, WEBHOOKS.c.fractions).where(
        among(dialect, WEBHOOKS.c.budget_id, "ids"), WEBHOOKS.c.state == str(WebhookState.ACTIVE)
    )
    for dialect in ("sqlite", "postgresql")
}


@dataclass(frozen=True)
class Subscription:
    """The events that an active webhook wants.

    Attributes:
        webhook_id: The webhook's id.
        budget_id: The budget whose events are reported, with those of all budgets under it.
        events: The kinds of events that it wants.
        fractions: The fractions of the limit, for `WebhookEvent.SPENDING_THRESHOLD`.
    """

    webhook_id: str
    budget_id: str
    events: frozenset[str]
    fractions: tuple[float, ...]


@dataclass(frozen=True)
class Message:
    """A message to one webhook.

    Attributes:
        webhook_id: The webhook.
        event: What has happened.
        data: The rest of the message, as JSON.
        subject: What the message is about. A webhook gets one message about each subject.
    """

    webhook_id: str
    event: WebhookEvent
    data: Mapping[str, Any]
    subject: str | None = None


def subscriptions(connection: Connection, budget_ids: Sequence[str]) -> list[Subscription]:
    """Return the active webhooks of budgets."""
    if not budget_ids:
        return []
    dialect = connection.dialect.name
    rows = connection.execute(_SUBSCRIPTIONS[dialect], {"ids": as_list(dialect, budget_ids)})
    return [Subscription(row[0], row[1], frozenset(row[2]), tuple(row[3])) for row in rows]


def write(connection: Connection, messages: Iterable[Message], now: datetime) -> None:
    """Put messages into the outbox. They are delivered once the caller's transaction is committed."""
    to_write = list(messages)
    there = _kept(connection, {message.webhook_id for message in to_write})
    for message in to_write:
        if message.webhook_id in there and _has_room(connection, message.webhook_id):
            _insert(connection, message, now, now)


def write_denial(connection: Connection, path: Sequence[str], now: datetime) -> None:
    """Write messages about a reservation that was refused because the budget lacks room. Many refusals make one message
    a minute.

    Args:
        connection: The connection of the transaction that stores the refusal.
        path: The ids of the budget that refused and of the budgets above it.
        now: The time of the refusal.
    """
    wanted = [each for each in subscriptions(connection, path) if WebhookEvent.DENIED in each.events]
    for webhook_id in sorted(each.webhook_id for each in wanted):
        # The webhooks are locked in turn, so that two simultaneous denials do not make two messages.
        locked = select(WEBHOOKS.c.id).where(WEBHOOKS.c.id == webhook_id).with_for_update(key_share=True)
        if connection.scalar(locked) is not None:
            _add_denial(connection, webhook_id, path[0], now)


def _kept(connection: Connection, webhook_ids: Collection[str]) -> set[str]:
    """Return the webhooks that still exist, and lock them until the transaction ends.

    Otherwise, deleting a webhook at this moment would make the caller's transaction fail, which may be a start or a
    commit.
    """
    if not webhook_ids:
        return set()
    kept = select(WEBHOOKS.c.id).where(WEBHOOKS.c.id.in_(webhook_ids)).order_by(WEBHOOKS.c.id)
    return set(connection.scalars(kept.with_for_update(read=True, key_share=True)))


def _add_denial(connection: Connection, webhook_id: str, budget_id: str, now: datetime) -> None:
    of_denials = (MESSAGES.c.webhook_id == webhook_id) & (MESSAGES.c.event == str(WebhookEvent.DENIED))
    waiting = select(MESSAGES.c.id, MESSAGES.c.data).where(of_denials, _IS_UNTOUCHED)
    for row in connection.execute(waiting).all():
        if row.data["budget_id"] == budget_id and _joined(connection, row.id):
            return
    last_due = connection.scalar(select(func.max(MESSAGES.c.due_at)).where(of_denials))
    together = timedelta(seconds=DENIALS_TOGETHER_S)
    due_at = now if last_due is None or last_due <= now - together else now + together
    if _has_room(connection, webhook_id):
        data = {"budget_id": budget_id, "code": "budget_exceeded"}
        _insert(connection, Message(webhook_id, WebhookEvent.DENIED, data), now, due_at)


def _joined(connection: Connection, message_id: str) -> bool:
    """Count one more denial in a message, unless somebody has begun to send it. Return whether it was counted."""
    joined = update(MESSAGES).where(MESSAGES.c.id == message_id, _IS_UNTOUCHED).values(count=MESSAGES.c.count + 1)
    return connection.execute(joined).rowcount == 1


def _has_room(connection: Connection, webhook_id: str) -> bool:
    is_waiting = (MESSAGES.c.webhook_id == webhook_id) & (MESSAGES.c.state == str(DeliveryState.PENDING))
    waiting = connection.scalar(select(func.count()).select_from(MESSAGES).where(is_waiting)) or 0
    if waiting < MOST_WAITING:
        return True
    dropped = update(WEBHOOKS).where(WEBHOOKS.c.id == webhook_id).values(dropped=WEBHOOKS.c.dropped + 1)
    connection.execute(dropped)
    return False


def _insert(connection: Connection, message: Message, now: datetime, due_at: datetime) -> None:
    row = {
        "id": new_id("msg"),
        "webhook_id": message.webhook_id,
        "event": str(message.event),
        "subject": message.subject,
        "data": dict(message.data),
        "count": 1,
        "state": str(DeliveryState.PENDING),
        "attempts": 0,
        "created_at": now,
        "due_at": due_at,
    }
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    connection.execute(dialect.insert(MESSAGES).values(row).on_conflict_do_nothing())
