"""The origin of an exception, without its message, since messages quote values, and values may be data."""

from __future__ import annotations

import traceback

LINES = 40


def stack_lines(error: BaseException) -> list[str]:
    """Return types and positions, innermost exception first, in at most `LINES` lines.

    >>> try:
    ...     int("a datum")
    ... except ValueError as error:
    ...     "datum" in "".join(stack_lines(error))
    False
    """
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        lines.append(type(current).__qualname__)
        lines.extend(
            f"  {f.filename}:{f.lineno} {f.name}" for f in reversed(traceback.extract_tb(current.__traceback__))
        )
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return lines[:LINES]
