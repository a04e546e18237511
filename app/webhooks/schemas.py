"""Requests and answers about webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field

from app.kit.fields import Schema
from app.tables.states import DeliveryState, WebhookEvent, WebhookState
from app.tables.webhooks import Webhook, WebhookMessage
from app.webhooks.delivery import body_of

MAX_URL_LENGTH = 1000
MAX_FRACTIONS = 10
Event = Annotated[WebhookEvent, Field(strict=False)]


class WebhookRequest(Schema):
    """An address, and the events that it is told about."""

    url: str = Field(min_length=1, max_length=MAX_URL_LENGTH, description="Below an address that the operator allows.")
    events: list[Event] = Field(min_length=1, max_length=len(WebhookEvent))
    fractions: list[Annotated[float, Field(gt=0, le=1)]] | None = Field(
        None,
        min_length=1,
        max_length=MAX_FRACTIONS,
        description="Shares of the limit, for `spending_threshold`; if absent, 0.8 and 0.95.",
    )


class WebhookBody(Schema):
    """A webhook. It is told about its budget and about all budgets under it."""

    id: str
    budget_id: str
    url: str
    events: list[WebhookEvent]
    fractions: list[float]
    state: WebhookState
    waiting: int = Field(description="Messages that are not delivered yet.")
    dropped: int = Field(description="Messages that were not written, because a thousand were waiting.")
    principal_id: str = Field(description="Who registered it.")
    created_at: datetime

    @classmethod
    def of(cls, row: Webhook, waiting: int) -> Self:
        """Return the webhook from its row."""
        return cls(**_fields(row, waiting))


class WebhookWithSecret(WebhookBody):
    """A webhook with the secret that verifies its messages, shown in this answer only."""

    secret: str | None = Field(description="Null if the request was answered before.")

    @classmethod
    def without_secret(cls, row: Webhook, waiting: int) -> Self:
        """Return the webhook without its secret, as it is stored to answer a repeated request."""
        return cls(**_fields(row, waiting), secret=None)


class DeliveryBody(Schema):
    """A message and its outcome."""

    id: str = Field(description="The header `webhook-id`, the same at each attempt.")
    event: WebhookEvent
    state: DeliveryState
    attempts: int
    last_error: str | None = Field(
        description="Why the last attempt failed: `name_not_found`, `address_forbidden`, `address_not_allowed`, "
        "`connection_failed`, `tls_failed`, `timeout`, `no_answer`, `redirect_not_followed` or `refused`."
    )
    last_status: int | None = Field(description="The receiver's HTTP status.")
    created_at: datetime
    due_at: datetime = Field(description="The time of the next attempt, or of the last that was due.")
    ended_at: datetime | None
    body: str = Field(description="What is sent.")

    @classmethod
    def of(cls, row: WebhookMessage) -> Self:
        """Return the message from its row."""
        return cls(
            id=row.id,
            event=WebhookEvent(row.event),
            state=DeliveryState(row.state),
            attempts=row.attempts,
            last_error=row.last_error,
            last_status=row.last_status,
            created_at=row.created_at,
            due_at=row.due_at,
            ended_at=row.ended_at,
            body=body_of(row).decode(),
        )


def _fields(row: Webhook, waiting: int) -> dict[str, Any]:
    return {
        "id": row.id,
        "budget_id": row.budget_id,
        "url": row.url,
        "events": [WebhookEvent(event) for event in row.events],
        "fractions": row.fractions,
        "state": WebhookState(row.state),
        "waiting": waiting,
        "dropped": row.dropped,
        "principal_id": row.principal_id,
        "created_at": row.created_at,
    }
