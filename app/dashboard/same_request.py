"""The request that a page has just made, as shell and Python code, and requests that follow from its answer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pprint import pformat
from typing import Any

from fastapi import Request

from app.auth.principal import ANYBODY, LOOPBACK

_KEY = """-H "Authorization: Bearer $EPSILOND_API_KEY" \\\n  """
#: The options of curl on a server without keys: its local token, or nothing for a reader who showed none and may only
#: calculate.
_WITHOUT_KEYS = {LOOPBACK.id: """-H "@${EPSILOND_DATA_DIR:-var}/local-token" \\\n  """, ANYBODY.id: ""}


def as_curl(request: Request, path: str, body: Mapping[str, Any]) -> str:
    """Return the request as a curl command, which takes the key from the environment."""
    key = _WITHOUT_KEYS.get(request.state.principal.id, _KEY)
    address = f"{_server(request)}{path}"
    return f"curl -s {shlex.quote(address)} \\\n  {key}--json {shlex.quote(json.dumps(body))}"


def as_python(request: Request, call: str, body: Mapping[str, Any]) -> str:
    """Return the request as a call of the Python client, which finds the key in the environment.

    Args:
        request: The request for the page.
        call: The client's method.
        body: The body; its members are the arguments.
    """
    arguments = "".join(f"    {name}={_literal(value)},\n" for name, value in body.items())
    return (
        "from epsilond_client import Client\n\n"
        f"client = Client({json.dumps(_server(request))})\n"
        f"answer = client.{call}(\n{arguments})\n"
    )


def as_reservation(request: Request, events: list[dict[str, Any]]) -> str:
    """Return lines of Python that reserve these events while a training runs."""
    return (
        "from epsilond_client import Client\n\n"
        f"client = Client({json.dumps(_server(request))})\n"
        f"events = {pformat(events, width=90, sort_dicts=False)}\n"
        'with client.reserve("my project", events, purpose="training"):\n'
        "    ...  # the training as it is\n"
    )


def _literal(value: Any) -> str:
    lines = pformat(value, width=90, sort_dicts=False).splitlines()
    return "\n    ".join(lines)


def _server(request: Request) -> str:
    """Return this server's address as the browser knows it."""
    return str(request.base_url).rstrip("/")
