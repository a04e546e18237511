"""Use cases of webhooks: register one, turn it off and on, give it another secret."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.context import Context
from app.kit.ids import new_id
from app.kit.web_addresses import is_allowed, parse_address
from app.problems import Problem, unprocessable
from app.tables.ledger import Budget
from app.tables.states import WebhookEvent, WebhookState
from app.tables.webhooks import Webhook
from app.webhooks import repository
from app.webhooks.schemas import WebhookRequest

#: Of one budget.
MOST_WEBHOOKS = 10
_FRACTIONS = [0.8, 0.95]


def check_address(context: Context, url: str) -> None:
    """Check that an operator has allowed the address; what its name leads to is looked at whenever it is asked.

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
        Problem: 409 ``too_many_webhooks``; 422 ``contradiction`` where fractions are given and nobody wants them.
    """
    is_of_spending = WebhookEvent.SPENDING_THRESHOLD in request.events
    if request.fractions is not None and not is_of_spending:
        raise unprocessable("contradiction", "fractions are for the event spending_threshold alone", "fractions")
    # One at a time for each budget.
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
    session.flush()
    return webhook
