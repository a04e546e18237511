"""Signatures of messages, by the convention "Standard Webhooks".

The key of a webhook is derived from the service's secret, its id and a version, so that it is stored nowhere.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from app.context import Context


def secret_of(context: Context, webhook_id: str, version: int) -> str:
    """Return the secret with which the receiver verifies: ``whsec_`` and the key in base64."""
    return "whsec_" + base64.b64encode(_key(context, webhook_id, version)).decode()


def signed_headers(
    context: Context, webhook_id: str, version: int, *, message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """Return the headers that identify the message, say when it was sent, and prove that it came from here.

    Args:
        context: The process's context.
        webhook_id, version: The webhook and the version of its key.
        message_id: The id of the message, which is the same at each attempt.
        timestamp: The time of this attempt, in seconds since 1970.
        body: The body as it is sent.
    """
    signed = f"{message_id}.{timestamp}.".encode() + body
    digest = hmac.new(_key(context, webhook_id, version), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }


def _key(context: Context, webhook_id: str, version: int) -> bytes:
    return bytes.fromhex(context.keyed_hash("webhook", f"{webhook_id}.{version}".encode()))
