"""Send a request to the provider, and read the JSON object that it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from app.kit.asking import NoAnswer, ask


class Unavailable(Exception):
    """The provider does not answer, or not as a provider should. The message is for the log."""


def ask_for_object(
    address: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Get a JSON object from the provider, or post a form and get one.

    The address must satisfy `is_trusted_address`.

    Raises:
        Unavailable: the provider does not answer with a JSON object.
    """
    body = None if form is None else urlencode(form).encode()
    try:
        reply = ask(address, body=body, headers={"Accept": "application/json", **(headers or {})})
    except NoAnswer as error:
        raise Unavailable(f"{address}: {error}") from None
    if not 200 <= reply.status < 300:
        raise Unavailable(f"{address}: status {reply.status}")
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"{address}: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise Unavailable(f"{address}: the answer is not a JSON object")
    return found
