"""Use cases of webhooks: register one, turn it off and on, give it another secret."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.context import Context
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.kit.ids import new_id
from app.kit.web_addresses import is_allowed, parse_address
from app.problems import Problem, unprocessable
from app.tables.ledger import Budget
from app.tables.states import WebhookEvent, WebhookState
from app.tables.webhooks import Webhook
from app.webhooks import repository
from app.webhooks.schemas import WebhookRequest

#: The most webhooks of one budget.
MOST_WEBHOOKS = 10
_FRACTIONS = [0.8, 0.95]


def check_address(context: Context, url: str) -> None:
    """Check that an operator has allowed the address. The IP addresses of its host are checked before every message.

    Raises:
        Problem: 422 ``address_not_allowed``.
    """
    try:
        address = parse_address(url)
    except ValueError as error:
        raise unprocessable("address_not_allowed", str(error), "url") from None
    if not is_allowed(address, context.settings.webhook_addresses.split()):
        detail = "the operator has allowed no webhook at this address (EPSILOND_WEBHOOK_ADDRESSES)"
        raise unprocessable("address_not_allowed", detail, "url")


def register(session: Session, context: Context, budget: Budget, request: WebhookRequest, principal_id: str) -> Webhook:
    """Register a webhook of a budget.

    Raises:
        Problem: 409 ``too_many_webhooks``; 429 ``quota_exceeded``; 422 ``contradiction`` if fractions are given without
            the event that needs them.
    """
    is_of_spending = WebhookEvent.SPENDING_THRESHOLD in request.events
    if request.fractions is not None and not is_of_spending:
        raise unprocessable("contradiction", "fractions are only for the event spending_threshold", "fractions")
    registering.lock(session)
    # The budget is locked, so that its webhooks are made one at a time.
    session.get(Budget, budget.id, with_for_update={"key_share": True})
    if len(repository.of_budget(session, budget.id)) >= MOST_WEBHOOKS:
        detail = f"a budget has at most {MOST_WEBHOOKS} webhooks; delete one"
        raise Problem(409, "too_many_webhooks", detail)
    fractions = (_FRACTIONS if request.fractions is None else request.fractions) if is_of_spending else []
    webhook = Webhook(
        id=new_id("whk"),
        budget_id=budget.id,
        url=request.url,
        events=sorted({str(event) for event in request.events}),
        fractions=sorted(set(fractions)),
        state=str(WebhookState.ACTIVE),
        secret_version=1,
        dropped=0,
        principal_id=principal_id,
        created_at=context.clock(),
    )
    session.add(webhook)
    _enter(session, context, EntryKind.REGISTER, webhook.id, principal_id)
    return webhook


def change(session: Session, context: Context, webhook_id: str, principal_id: str, **columns: object) -> Webhook:
    """Turn a webhook off or on, or give it another secret.

    Args:
        session: A write session.
        context: The process's context.
        webhook_id: The webhook.
        principal_id: The principal that makes the change.
        columns: The new values of columns.

    Raises:
        Problem: 404.
    """
    registering.lock(session)
    webhook = repository.get(session, webhook_id)
    is_other = {name: value for name, value in columns.items() if getattr(webhook, name) != value}
    for name, value in is_other.items():
        setattr(webhook, name, value)
    if is_other:
        _enter(session, context, EntryKind.CHANGE, webhook_id, principal_id)
    return webhook


def remove(session: Session, context: Context, webhook_id: str, principal_id: str) -> None:
    """Delete a webhook and its messages.

    Raises:
        Problem: 404.
    """
    registering.lock(session)
    repository.get(session, webhook_id)
    _enter(session, context, EntryKind.END, webhook_id, principal_id)
    repository.remove(session, webhook_id)


def _enter(session: Session, context: Context, kind: EntryKind, webhook_id: str, principal_id: str) -> None:
    entered = Registration(kind, Subject.WEBHOOK, webhook_id, principal_id)
    registering.enter(session, context.clock(), [entered])
