"""All SQL on webhooks and their messages, except writing messages, which the outbox does."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, literal_column, or_, select, update
from sqlalchemy.orm import Session, aliased

from app.problems import not_found
from app.tables.ledger import Budget, Reservation
from app.tables.states import DeliveryState, ReservationStatus, WebhookState
from app.tables.webhooks import Webhook, WebhookMessage

# The condition is written with a literal, so that the index of waiting messages is used.
_IS_PENDING: ColumnElement[bool] = WebhookMessage.state == literal_column(f"'{DeliveryState.PENDING}'")


def get(session: Session, webhook_id: str) -> Webhook:
    """Return the webhook in its present state.

    Raises:
        Problem: 404.
    """
    row = session.get(Webhook, webhook_id, populate_existing=True)
    if row is None:
        raise not_found("webhook", webhook_id)
    return row


def of_budget(session: Session, budget_id: str) -> Sequence[Webhook]:
    """Return the webhooks of a budget, oldest first."""
    statement = select(Webhook).where(Webhook.budget_id == budget_id).order_by(Webhook.created_at, Webhook.id)
    return session.scalars(statement).all()


def remove(session: Session, webhook_id: str) -> None:
    """Delete a webhook and all its messages."""
    # The webhook is locked first, as by code that writes messages: such messages are either deleted here, or not
    # written.
    session.execute(select(Webhook.id).where(Webhook.id == webhook_id).with_for_update())
    session.execute(delete(WebhookMessage).where(WebhookMessage.webhook_id == webhook_id))
    session.execute(delete(Webhook).where(Webhook.id == webhook_id))


def waiting(session: Session, webhook_ids: Sequence[str]) -> dict[str, int]:
    """Count the waiting messages of each webhook."""
    statement = (
        select(WebhookMessage.webhook_id, func.count())
        .where(WebhookMessage.webhook_id.in_(webhook_ids), _IS_PENDING)
        .group_by(WebhookMessage.webhook_id)
    )
    return {row[0]: row[1] for row in session.execute(statement)}


def page(
    session: Session, webhook_id: str, before: tuple[datetime, str] | None, limit: int
) -> Sequence[WebhookMessage]:
    """Return a page of the messages of a webhook, newest first, from just after the cursor."""
    statement = select(WebhookMessage).where(WebhookMessage.webhook_id == webhook_id)
    if before is not None:
        moment, message_id = before
        statement = statement.where(
            (WebhookMessage.created_at < moment)
            | ((WebhookMessage.created_at == moment) & (WebhookMessage.id < message_id))
        )
    in_order = statement.order_by(WebhookMessage.created_at.desc(), WebhookMessage.id.desc())
    return session.scalars(in_order.limit(limit)).all()


def is_anything_due(session: Session, now: datetime) -> bool:
    """Return whether a message waits for an attempt now."""
    statement = select(WebhookMessage.id).join(Webhook, Webhook.id == WebhookMessage.webhook_id)
    return session.scalar(statement.where(_is_due(now)).limit(1)) is not None


def claim(session: Session, now: datetime, until: datetime, limit: int) -> list[tuple[WebhookMessage, Webhook]]:
    """Take messages that are due, one of each webhook. Nobody else sends them until the given time.

    So a webhook with many messages does not delay others. If the process dies, other processes can take its messages
    after that time. Two processes at once take different messages: on SQLite they take turns, on PostgreSQL they skip
    rows that the other one has locked.
    """
    # The message with the most attempts goes first, so that its waits continue to grow.
    in_order = (WebhookMessage.attempts.desc(), WebhookMessage.due_at, WebhookMessage.id)
    place = func.row_number().over(partition_by=WebhookMessage.webhook_id, order_by=in_order)
    due = (
        select(WebhookMessage.id, place.label("place"))
        .join(Webhook, Webhook.id == WebhookMessage.webhook_id)
        .where(_is_due(now))
        .subquery()
    )
    statement = (
        select(WebhookMessage, Webhook)
        .join(Webhook, Webhook.id == WebhookMessage.webhook_id)
        .where(WebhookMessage.id.in_(select(due.c.id).where(due.c.place == 1)), _is_due(now))
        .order_by(WebhookMessage.due_at, WebhookMessage.id)
        .limit(limit)
        .with_for_update(of=WebhookMessage, skip_locked=True)
    )
    taken = [(message, webhook) for message, webhook in session.execute(statement).all()]
    for message, _ in taken:
        message.leased_until = until
    session.flush()
    return taken


def settle(session: Session, message: WebhookMessage, lease: datetime, **columns: object) -> None:
    """Store the outcome of an attempt, unless another process has taken the message meanwhile."""
    statement = update(WebhookMessage).where(
        WebhookMessage.id == message.id, WebhookMessage.leased_until == lease, _IS_PENDING
    )
    session.execute(statement.values(leased_until=None, attempts=message.attempts + 1, **columns))


def forget(session: Session, before: datetime) -> None:
    """Delete messages that were delivered or given up before the given time."""
    session.execute(delete(WebhookMessage).where(WebhookMessage.ended_at < before))


def overdue(session: Session, now: datetime, limit: int) -> Sequence[tuple[str, str, str, datetime]]:
    """Return the started reservations whose time ended in the last day: id, budget, the path of the budget, the time.

    Earlier ones were reported before, unless there were no webhooks.
    """
    statement = (
        select(Reservation.id, Reservation.budget_id, Budget.path, Reservation.expires_at)
        .join(Budget, Budget.id == Reservation.budget_id)
        .where(
            Reservation.resolved_at.is_(None),  # this condition lets the index of open reservations be used
            Reservation.state == str(ReservationStatus.STARTED),
            Reservation.expires_at <= now,
            Reservation.expires_at > now - timedelta(days=1),
        )
        .order_by(Reservation.expires_at.desc())
        .limit(limit)
    )
    return [(row[0], row[1], row[2], row[3]) for row in session.execute(statement)]


def known_subjects(session: Session, subjects: Sequence[str]) -> set[tuple[str, str | None]]:
    """Return pairs of a webhook and a subject for which the webhook already has a message."""
    statement = select(WebhookMessage.webhook_id, WebhookMessage.subject).where(WebhookMessage.subject.in_(subjects))
    return {(row[0], row[1]) for row in session.execute(statement)}


def is_any_active(session: Session) -> bool:
    """Return whether any webhook is active."""
    statement = select(Webhook.id).where(Webhook.state == str(WebhookState.ACTIVE)).limit(1)
    return session.scalar(statement) is not None


def _is_due(now: datetime) -> ColumnElement[bool]:
    """Return the condition for messages that are due now, with their webhooks.

    While a failed message waits, all other messages of its webhook wait, too, even new ones.
    """
    is_free = or_(WebhookMessage.leased_until.is_(None), WebhookMessage.leased_until <= now)
    is_active = Webhook.state == str(WebhookState.ACTIVE)
    failed = aliased(WebhookMessage)
    is_pending = failed.state == literal_column(f"'{DeliveryState.PENDING}'")
    failing = select(failed.webhook_id).where(is_pending, failed.attempts > 0, failed.due_at > now)
    is_patient = WebhookMessage.webhook_id.not_in(failing)
    return _IS_PENDING & (WebhookMessage.due_at <= now) & is_free & is_active & is_patient
