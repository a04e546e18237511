"""Uploads on two pages. The first takes the declaration and checks it; the second passes the file on to the service
unread.

The declaration travels to the second page as the text of the upload's part `metadata`, so that the form of that page
is the very body that the service takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import Response

from app.dashboard.asking import Answer, pass_on
from app.dashboard.forms import fresh_key
from app.dashboard.pages import page
from app.kit.fields import Schema
from app.kit.validation import from_model
from app.observability.request_id import request_id_of

Declaration = TypeVar("Declaration", bound=Schema)


def checked(request: Request, body: Mapping[str, Any], schema: type[Declaration]) -> Declaration | Answer:
    """Return the declaration, or the faults that the service would find in it."""
    try:
        return schema.model_validate(body)
    except ValidationError as error:
        problem = from_model(error, schema, body)
        return Answer(problem.status, problem.body(request_id_of(request.scope)))


def file_page(request: Request, body: Mapping[str, Any], *, action: str, above: str, heading: str) -> Response:
    """Show the page that asks for the file.

    Args:
        request: The request for the page.
        body: The checked declaration.
        action: The path to which the file is sent.
        above: The page before this one.
        heading: The heading of the page.
    """
    action = f"{action}?key={fresh_key()}"
    return page(
        request, "upload_file.html", action=action, above=above, heading=heading, body=body, metadata=json.dumps(body)
    )


async def received(request: Request, path: str, key: str) -> Response:
    """Pass the file on to ``path``, and show the result.

    The report of what was found in the file is for its owner only, and the service gives it only in this answer.
    """
    answer = await pass_on(request, path, key)
    return page(request, "uploaded.html", status=answer.status, answer=answer)
