"""Signatures of messages, in the manner of the convention "Standard Webhooks".

The key of a webhook is derived from the service's secret, its id and a version, so that it is stored nowhere.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

from app.context import Context


def secret_of(context: Context, webhook_id: str, version: int) -> str:
    """Return the secret that the receiver verifies with: the key in base64, behind ``whsec_``."""
    return "whsec_" + base64.b64encode(_key(context, webhook_id, version)).decode()


def signed_headers(
    context: Context, webhook_id: str, version: int, *, message_id: str, timestamp: int, body: bytes
) -> dict[str, str]:
    """The headers that say which message it is, when it was sent, and that it came from here.

    Args:
        context: The process's context.
        webhook_id, version: Of the key.
        message_id: The same at each attempt.
        timestamp: Of this attempt, in seconds since 1970.
        body: As it is sent.
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
