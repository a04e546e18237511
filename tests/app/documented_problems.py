"""Every problem that a test is answered with is one that the committed document gives for its operation and status."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from httpx2 import Response

from app.openapi.errors import codes_in
from app.openapi.sharing import resolved
from app.problems import MEDIA_TYPE

ROOT = Path(__file__).parents[2]


def assert_documented(response: Response) -> None:
    """A problem of an operation of the committed document has a code that the document gives for its status."""
    if response.headers.get("content-type") != MEDIA_TYPE:
        return
    codes = _documented(response.request.method.lower(), response.request.url.path)
    if codes is not None:
        response.read()
        found = (str(response.status_code), response.json()["code"])
        assert found in codes, f"{response.request.method} {response.request.url.path} does not document {found}"


def _documented(method: str, path: str) -> frozenset[tuple[str, str]] | None:
    return next((codes for each, form, codes in _operations() if each == method and form.fullmatch(path)), None)


@cache
def _operations() -> list[tuple[str, re.Pattern[str], frozenset[tuple[str, str]]]]:
    """Each operation's method, the form of its paths, and its statuses with their codes; parameters come last."""
    document = json.loads((ROOT / "openapi.json").read_text())
    found = []
    for path, item in sorted(document["paths"].items(), key=lambda each: "{" in each[0]):
        form = re.compile(re.sub(r"\{[^}]*\}", "[^/]+", path))
        for method, operation in item.items():
            answers = {
                status: codes_in(resolved(document, answer)["description"])
                for status, answer in operation["responses"].items()
            }
            found.append((method, form, frozenset((status, code) for status in answers for code in answers[status])))
    return found
