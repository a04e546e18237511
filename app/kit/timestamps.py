"""Moments in time as the HTTP contract writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def format_moment(moment: datetime) -> str:
    """Write a moment in UTC with whole seconds and ``Z``.

    >>> format_moment(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    '2026-01-02T03:04:05Z'
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
