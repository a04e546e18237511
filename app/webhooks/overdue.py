"""Messages about overdue reservations. Each regular sweep writes them for reservations that are newly overdue, once for
each.
"""

from __future__ import annotations

from app.context import Context
from app.kit.timestamps import format_moment
from app.outbox.writing import Message, subscriptions, write
from app.tables.states import WebhookEvent
from app.webhooks import repository

#: The number of the newest overdue reservations that a sweep looks at.
_TOLD_AT_ONCE = 2000


def tell_of_overdue(context: Context) -> None:
    """Write messages about reservations that have become overdue. A reservation that was extended and is overdue again
    is reported again."""
    now = context.clock()
    with context.database.read() as session:
        if not repository.is_any_active(session):
            return
        late = repository.overdue(session, now, _TOLD_AT_ONCE)
        paths = {path: path.split("/") for _, _, path, _ in late}
        subscribed = subscriptions(session.connection(), sorted({each for path in paths.values() for each in path}))
        messages = [
            Message(
                each.webhook_id,
                WebhookEvent.START_OVERDUE,
                {
                    "budget_id": budget_id,
                    "reservation_id": reservation_id,
                    "expires_at": format_moment(expires_at),
                },
                subject=f"{reservation_id} {format_moment(expires_at)}",
            )
            for reservation_id, budget_id, path, expires_at in late
            for each in subscribed
            if WebhookEvent.START_OVERDUE in each.events and each.budget_id in paths[path]
        ]
        known = repository.known_subjects(session, [message.subject for message in messages if message.subject])
    new = [message for message in messages if (message.webhook_id, message.subject) not in known]
    if new:
        with context.database.write() as session:
            write(session.connection(), new, now)
