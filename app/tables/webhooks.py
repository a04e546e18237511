"""Tables of webhooks: the addresses to which messages are sent, and the messages that wait to be sent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, Integer, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from app.tables.base import Base, UtcDateTime
from app.tables.states import DeliveryState, WebhookState


def _one_of(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


class Webhook(Base):
    """An address to which messages about a budget and the budgets under it are sent.

    Attributes:
        events: The kinds of events about which messages are sent.
        fractions: The fractions of the limit at which a message about spending is sent.
        secret_version: The version of the signing key. The key is derived from the version and stored nowhere.
        dropped: The number of messages that were not written because too many waited.
    """

    __tablename__ = "webhooks"
    __table_args__ = (
        CheckConstraint(_one_of("state", list(WebhookState)), name="state"),
        CheckConstraint("dropped >= 0", name="dropped"),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"), index=True)
    url: Mapped[str] = mapped_column(String(1000))
    events: Mapped[list[str]] = mapped_column(JSON)
    fractions: Mapped[list[float]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(String(16))
    secret_version: Mapped[int] = mapped_column(Integer)
    dropped: Mapped[int] = mapped_column(Integer)
    principal_id: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)


class WebhookMessage(Base):
    """A message to a webhook, written in the transaction of the event that it reports.

    Attributes:
        subject: What the message is about, unique per webhook: a reservation with its time; None if there is no such
            subject.
        count: The number of events that the message reports.
        due_at: The time of the next attempt.
        leased_until: Until this time, one process sends the message, or has died while sending it. Other processes do
            not touch it.
        last_error, last_status: The class of the last attempt's failure, and the receiver's HTTP status.
    """

    __tablename__ = "webhook_messages"
    __table_args__ = (
        CheckConstraint(_one_of("state", list(DeliveryState)), name="state"),
        CheckConstraint("(state = 'pending') = (ended_at IS NULL)", name="ended_at"),
        UniqueConstraint("webhook_id", "subject"),
        Index("ix_webhook_messages_webhook_created_at", "webhook_id", "created_at", "id"),
        Index(
            "ix_webhook_messages_due",
            "due_at",
            postgresql_where=text("state = 'pending'"),
            sqlite_where=text("state = 'pending'"),
        ),
    )

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id"))
    event: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str | None] = mapped_column(String(200))
    data: Mapped[dict[str, Any]] = mapped_column(JSON)
    count: Mapped[int] = mapped_column(Integer)
    state: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime)
    due_at: Mapped[datetime] = mapped_column(UtcDateTime)
    leased_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    last_error: Mapped[str | None] = mapped_column(String(40))
    last_status: Mapped[int | None] = mapped_column(Integer)
