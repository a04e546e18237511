"""One request to the provider: no redirect followed, an answer of bounded size, within a few seconds."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

#: For the whole answer. A connection alone may take half of it.
DEADLINE_S = 8.0
_MOST_BYTES = 512 * 1024
_AT_ONCE = 64 * 1024


class Unavailable(Exception):
    """The provider does not answer, or answers what no provider answers. The message is for the log."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


# Proxies of the environment (HTTPS_PROXY) are used, since a provider may be outside a company's network.
_OPENER = urllib.request.build_opener(_NoRedirect)


def ask_for_object(
    address: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Get a JSON object from the provider, or post a form and get one.

    Raises:
        Unavailable: there is no such answer.
    """
    body = None if form is None else urlencode(form).encode()
    sent = {"Accept": "application/json", "User-Agent": "epsilond", **(headers or {})}
    request = urllib.request.Request(address, data=body, headers=sent)  # noqa: S310  # checked by `is_trusted_address`
    until = time.monotonic() + DEADLINE_S
    try:
        with _OPENER.open(request, timeout=DEADLINE_S / 2) as answer:
            found = json.loads(_read(answer, until))
    except HTTPError as error:
        error.close()
        raise Unavailable(f"{address}: status {error.code}") from None
    except (OSError, HTTPException, ValueError, RecursionError) as error:
        # The class of the error alone: its message may quote what was sent.
        raise Unavailable(f"{address}: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise Unavailable(f"{address}: the answer is not a JSON object")
    return found


def _read(answer: HTTPResponse, until: float) -> bytes:
    read = bytearray()
    while part := answer.read1(_AT_ONCE):
        read += part
        if len(read) > _MOST_BYTES:
            raise ValueError("the answer is too long")
        if time.monotonic() > until:
            raise TimeoutError
    return bytes(read)
