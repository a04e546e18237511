"""The server's thread that delivers messages from the outbox, and tries again after failures.

A message is delivered at least once, under one id. The process that takes a message has it for a minute. If the process
dies, the next one takes over.
"""

from __future__ import annotations

import json
import random
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import structlog

from app.context import Context
from app.db.failures import DATABASE_FAILURES
from app.fence.watching import fence_of
from app.kit.timestamps import format_moment
from app.kit.web_addresses import Resolve, is_allowed, parse_address
from app.observability.stack import stack_lines
from app.problems import Problem
from app.tables.states import DeliveryState, WebhookEvent
from app.tables.webhooks import Webhook, WebhookMessage
from app.webhooks import repository
from app.webhooks.sending import Outcome, send
from app.webhooks.signatures import signed_headers

log = structlog.get_logger("epsilond.webhooks")

#: The seconds between two looks at the outbox.
INTERVAL_S = 1.0
#: Other processes leave a message alone for this long, much longer than an attempt takes.
LEASE = timedelta(seconds=60)
#: The seconds between the first two attempts, and the longest wait; each wait is twice as long as the one before.
FIRST_WAIT_S, LONGEST_WAIT_S = 10.0, 2 * 3600.0
#: The time after which attempts to deliver a message end.
PATIENCE = timedelta(days=1)
#: The time for which ended messages stay listed.
KEPT = timedelta(days=30)
_AT_ONCE = 4
#: The number of messages that are taken together. The last is tried well within the lease, even if all others take as
#: long as they may.
_TAKEN = 4 * _AT_ONCE


class Deliverer:
    """Delivers messages that are due, in a separate thread. Several processes may do so at once.

    Args:
        context: The process's context.
        resolve: Finds the addresses of hosts; tests replace it.
        tls: How certificates are verified; by default with the system's authorities.
        jitter: Returns a number from 0 to 1 that shortens a wait, so that not all attempts are repeated at once.
    """

    def __init__(
        self,
        context: Context,
        *,
        resolve: Resolve = socket.getaddrinfo,
        tls: ssl.SSLContext | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._context = context
        self._resolve = resolve
        self._tls = tls
        self._jitter = jitter
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook-delivery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Take no more messages. An attempt under way goes on until its time limit, or until the process ends."""
        self._stopping.set()

    def deliver(self) -> int:
        """Try everything that is due now, one message of each webhook. Return the number of attempts."""
        context, now = self._context, self._context.clock()
        with context.database.read() as session:
            if not repository.is_anything_due(session, now):
                return 0
        lease = now + LEASE
        with context.database.write() as session:
            taken = repository.claim(session, now, lease, _TAKEN)
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            list(threads.map(lambda pair: self._attempt(pair[0], pair[1], lease), taken))
        return len(taken)

    def forget(self) -> None:
        """Delete messages that ended long ago."""
        with self._context.database.write() as session:
            repository.forget(session, self._context.clock() - KEPT)

    def _run(self) -> None:
        looks = 0
        while not self._stopping.wait(INTERVAL_S):
            try:
                if not fence_of(self._context).look():
                    continue  # the database may have lost entries, so no webhooks are sent
                while not self._stopping.is_set() and self.deliver():
                    pass
                looks += 1
                if looks % 3600 == 1:
                    self.forget()
            except (Problem, *DATABASE_FAILURES) as error:
                log.warning("webhooks_not_delivered", error_type=type(error).__name__)
            except Exception as error:
                log.error("webhook_delivery_failed", error_type=type(error).__name__, raised_at=stack_lines(error))

    def _attempt(self, message: WebhookMessage, webhook: Webhook, lease: datetime) -> None:
        outcome = self._outcome(message, webhook)
        now = self._context.clock()
        with self._context.database.write() as session:
            if outcome.error is None:
                columns = {"state": str(DeliveryState.DELIVERED), "ended_at": now, "last_error": None}
                repository.settle(session, message, lease, last_status=outcome.status, **columns)
                result = "delivered"
            else:
                result = self._fail(session, message, lease, outcome, now)
        self._context.metrics.webhook_attempted(result)
        if outcome.error is not None:
            log.warning("webhook_attempt_failed", webhook_id=webhook.id, error=outcome.error, status=outcome.status)

    def _fail(self, session: Any, message: WebhookMessage, lease: datetime, outcome: Outcome, now: datetime) -> str:
        due_at = now + timedelta(seconds=wait_s(message.attempts, self._jitter()))
        said = {"last_error": outcome.error, "last_status": outcome.status}
        if due_at > message.created_at + PATIENCE:
            repository.settle(session, message, lease, state=str(DeliveryState.GIVEN_UP), ended_at=now, **said)
            return "given_up"
        repository.settle(session, message, lease, due_at=due_at, **said)
        return "failed"

    def _outcome(self, message: WebhookMessage, webhook: Webhook) -> Outcome:
        settings = self._context.settings
        address = parse_address(webhook.url)
        if not is_allowed(address, settings.webhook_addresses.split()):
            return Outcome("address_not_allowed")
        body = body_of(message)
        headers = signed_headers(
            self._context,
            webhook.id,
            webhook.secret_version,
            message_id=message.id,
            timestamp=int(self._context.clock().timestamp()),
            body=body,
        )
        networks = settings.webhook_networks.split()
        return send(address, networks, headers, body, resolve=self._resolve, tls=self._tls)


def body_of(message: WebhookMessage) -> bytes:
    """Return the bytes that are sent. They are the same at every attempt."""
    data = dict(message.data)
    if message.event == WebhookEvent.DENIED:
        data["count"] = message.count
    said = {"type": message.event, "timestamp": format_moment(message.created_at), "data": data}
    return json.dumps(said, separators=(",", ":"), sort_keys=True).encode()


def wait_s(attempts: int, jitter: float) -> float:
    """Return the seconds until the next attempt, given the number of failures before this one.

    >>> [wait_s(attempts, 0.0) for attempts in (0, 1, 2, 20)]
    [10.0, 20.0, 40.0, 7200.0]
    >>> wait_s(0, 1.0)
    5.0
    """
    longest: float = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(attempts, 30))
    return longest * (1.0 - jitter / 2.0)
