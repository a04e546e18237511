"""Strict JSON (RFC 8259), with a pointer to what is wrong.

Python's parser accepts NaN and Infinity, which are not JSON, turns 1e400 into an infinity and 1e-400 into 0, keeps the
last of two equal keys, and lets lone surrogates and NUL through, which no database stores. Each of these is refused
here, before any route sees the body.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from accounting.errors import Pointer
from app.kit import limits
from app.problems import Problem, unprocessable

# A tuple, because a union of types would be built anew for each value.
_CONTAINERS = (dict, list)
_NOT_FINITE = "A number must be finite, and not so small that it would be read as 0."
#: A digit other than 0 before the exponent.
_NOT_ZERO = re.compile(r"^[^eE]*[1-9]")


class _Repeated(dict[str, Any]):
    """An object in which a key occurs twice; it remembers the key."""

    key: str = ""


def read_json(data: bytes) -> Any:
    """Parse a request body.

    Args:
        data: The body.

    Returns:
        Objects, arrays, strings, finite numbers, booleans and None.

    Guarantees:
        - every number is finite and every integer has at most `limits.JSON_INTEGER_DIGITS` digits
        - no object has a key twice, no string holds NUL or half of a surrogate pair
        - objects and arrays are at most `limits.JSON_DEPTH` deep

    Raises:
        Problem: 422, with a pointer where there is one.

    >>> read_json(b'{"epsilon": 1e0}')
    {'epsilon': 1.0}
    >>> try:
    ...     read_json(b'{"events": [{"count": NaN}]}')
    ... except Problem as problem:
    ...     problem.code, problem.errors[0].pointer
    ('not_finite', '/events/0/count')
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise unprocessable("malformed_json", f"The body is not UTF-8: see byte {error.start}.") from None
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer, parse_float=_real)
    except json.JSONDecodeError as error:
        detail = f"The body is not JSON: see line {error.lineno}, column {error.colno}."
        raise unprocessable("malformed_json", detail) from None
    except RecursionError:
        raise _too_deep(()) from None
    _check(value)
    return value


def _integer(digits: str) -> int | float:
    # Infinity stands in for an integer that is too long to convert; the check below refuses it and points to it.
    return int(digits) if len(digits) <= limits.JSON_INTEGER_DIGITS else math.inf


def _real(digits: str) -> float:
    # An infinity also stands in for a number that would be read as 0 although it is not: a loss of 0 has no price.
    number = float(digits)
    return number if number or not _NOT_ZERO.search(digits) else math.inf


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    repeated = _Repeated(found)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            repeated.key = key
            break
        seen.add(key)
    return repeated


def _check(root: Any) -> None:
    """Refuse numbers that are not finite, repeated keys, unfit text and too much nesting, without recursion."""
    waiting: list[tuple[Any, Pointer]] = [(root, ())]
    while waiting:
        value, pointer = waiting.pop()
        if isinstance(value, str):
            _check_text(value, pointer)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise unprocessable("not_finite", _NOT_FINITE, *pointer)
        elif isinstance(value, _CONTAINERS):
            if len(pointer) >= limits.JSON_DEPTH:
                raise _too_deep(pointer)
            if isinstance(value, _Repeated):
                raise unprocessable("repeated_key", "An object has this key twice.", *pointer, value.key)
            if isinstance(value, dict):
                for key in value:
                    _check_text(key, pointer)
                waiting.extend((item, (*pointer, key)) for key, item in value.items())
            else:
                waiting.extend((item, (*pointer, index)) for index, item in enumerate(value))


def _check_text(value: str, pointer: Pointer) -> None:
    if "\0" in value or (not value.isascii() and not _is_unicode(value)):
        raise unprocessable("malformed_text", "A string holds NUL or half of a surrogate pair.", *pointer)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _too_deep(pointer: Pointer) -> Problem:
    detail = f"Objects and arrays may be {limits.JSON_DEPTH} deep at most."
    return unprocessable("nested_too_deeply", detail, *pointer)
