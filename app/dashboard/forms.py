"""Reading the fields that the forms of pages send."""

from __future__ import annotations

import secrets
from urllib.parse import parse_qsl

from fastapi import Request

from app.problems import Problem

#: The most fields of a form; none of the dashboard's own has more.
_MOST_FIELDS = 50


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a submitted form, without the spaces around values. Of two fields with the same name, the last
    one counts.

    Raises:
        Problem: 400 if no form of the dashboard can have sent this.
    """
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise Problem(400, "malformed_request", "The form could not be read.") from None
    return {name: value.strip() for name, value in pairs}


def fresh_key() -> str:
    """Return an Idempotency-Key for a form that is shown now. However often the form is sent, it takes effect once."""
    return f"page-{secrets.token_hex(16)}"
