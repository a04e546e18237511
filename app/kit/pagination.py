"""Lists in pages. An opaque cursor marks the place after the last item, so that new items do not shift the pages."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Query
from pydantic import Field

from app.kit.fields import Schema
from app.problems import Problem, ProblemItem

MAX_LIMIT = 200
DEFAULT_LIMIT = 50

T = TypeVar("T")
R = TypeVar("R")
Key = str | int | datetime

#: The type of the parameter; declare it as ``cursor: Cursor = None``.
Cursor = Annotated[
    str | None, Query(max_length=500, description="`next_cursor` of the page before; absent for the first page.")
]
#: The type of the parameter; declare it as ``limit: Limit = DEFAULT_LIMIT``.
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="The largest number of items on a page.")]


class Page(Schema, Generic[T]):
    """One page of a list."""

    items: list[T]
    next_cursor: str | None = Field(description="Pass it as `cursor` to get the next page; null on the last one.")


def encode_cursor(*keys: Key) -> str:
    """Return the cursor of the place after the item with these sort keys.

    >>> decode_cursor(encode_cursor("a", 3), str, int)
    ('a', 3)
    """
    plain = [key.astimezone(UTC).isoformat() if isinstance(key, datetime) else key for key in keys]
    return base64.urlsafe_b64encode(json.dumps(plain, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """Return the sort keys in the cursor, each of the type by which the list sorts (str, int or datetime); None for
    None.

    Raises:
        Problem: 422 when the text is not a cursor of such a list.
    """
    if cursor is None:
        return None
    try:
        plain = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        if not isinstance(plain, list) or len(plain) != len(kinds):
            raise ValueError("another list's cursor")
        return tuple(_read(value, kind) for value, kind in zip(plain, kinds, strict=True))
    except (ValueError, binascii.Error, RecursionError):
        code, detail = "invalid_cursor", "The cursor is not a next_cursor of this list; leave it out to start over."
        item = ProblemItem(pointer="/query/cursor", code=code, detail=detail)
        raise Problem(422, code, detail, errors=[item]) from None


def cut_page(rows: Sequence[R], limit: int, keys: Callable[[R], tuple[Key, ...]]) -> tuple[Sequence[R], str | None]:
    """Make a page and its next cursor from a list that was fetched with one row more than ``limit``.

    >>> cut_page([1, 2, 3], 3, lambda row: (row,))
    ([1, 2, 3], None)
    >>> rows, cursor = cut_page([1, 2, 3, 4], 3, lambda row: (row,))
    >>> rows, decode_cursor(cursor, int)
    ([1, 2, 3], (3,))
    """
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], encode_cursor(*keys(rows[limit - 1]))


def _read(value: object, kind: type) -> Key:
    if kind is datetime and isinstance(value, str):
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError("a time without a time zone")
        return moment
    if isinstance(value, kind) and isinstance(value, str | int) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) >= 2**63:
            raise ValueError("the number is larger than any number in a row")
        if isinstance(value, str) and "\0" in value:
            raise ValueError("no row can have this text")
        return value
    raise ValueError("another list's cursor")
