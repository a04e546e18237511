"""The fields that the forms of pages send."""

from __future__ import annotations

import secrets
from urllib.parse import parse_qsl

from fastapi import Request

from app.problems import Problem

#: No form of ours has more.
_MOST_FIELDS = 50


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that was sent, without the spaces around them; of two with one name, the last.

    Raises:
        Problem: 400, where no form sends such a thing.
    """
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Problem(400, "malformed_request", "The form could not be read.") from None
    return {name: value.strip() for name, value in pairs}


def fresh_key() -> str:
    """An Idempotency-Key for a form that is shown now: however often it is sent, it is done once."""
    return f"page-{secrets.token_hex(16)}"
