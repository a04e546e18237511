"""Quotas of one key's writes to the books. This module is pure.

A quota refuses entries that begin or prolong something. Entries about something that has begun (a start, a commit, a
release, a correction, an end) are counted but never refused, because a charge must be recorded however much a key has
written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from app.entries.kinds import EntryKind
from app.kit.timestamps import format_moment
from app.problems import Problem
from app.settings import Settings

#: The commands that a quota may refuse.
BEGINNINGS = frozenset(
    {EntryKind.CREATE, EntryKind.RESERVE, EntryKind.EXTEND, EntryKind.LIMIT, EntryKind.ASK, EntryKind.REGISTER}
)


class Quota(StrEnum):
    """A quota counts one of these for a key."""

    ENTRIES = "entries"
    """Entries per day (UTC)."""
    BYTES = "bytes"
    """Their canonical bytes."""
    OPEN_RESERVATIONS = "open_reservations"
    """Reservations that are pending or started, at one time."""
    EXTENSIONS = "extensions"
    """How often one reservation was given more time, whoever asked."""


@dataclass(frozen=True)
class Quotas:
    """The quotas of every key; 0 means no quota."""

    entries: int
    bytes: int
    open_reservations: int
    extensions: int

    @classmethod
    def of(cls, settings: Settings) -> Quotas:
        """Return the quotas in the settings."""
        return cls(
            settings.entries_per_day,
            settings.entry_bytes_per_day,
            settings.open_reservations_per_key,
            settings.extensions_per_reservation,
        )

    def met(self, quota: Quota, used: int) -> bool:
        """Return whether a quota is used up.

        >>> Quotas(10, 0, 5, 3).met(Quota.ENTRIES, 10), Quotas(10, 0, 5, 3).met(Quota.BYTES, 10**9)
        (True, False)
        """
        limit: int = getattr(self, quota)
        return 0 < limit <= used

    def refusal(self, quota: Quota, used: int, now: datetime) -> Problem:
        """Return a problem with status 429 that says what is used up, and when it opens again.

        Args:
            quota: The quota that is used up.
            used: What the key has used of it.
            now: The time of the decision.
        """
        limit: int = getattr(self, quota)
        members: dict[str, object] = {"quota": str(quota), "used": used, "limit": limit}
        headers = {}
        if quota in (Quota.ENTRIES, Quota.BYTES):
            opens_at = datetime.combine(day_of(now) + timedelta(days=1), time(), UTC)
            members["opens_at"] = format_moment(opens_at)
            headers["Retry-After"] = str(max(1, int((opens_at - now).total_seconds())))
        elif quota is Quota.OPEN_RESERVATIONS:
            headers["Retry-After"] = "60"
        detail = _DETAILS[quota].format(used=used, limit=limit, opens_at=members.get("opens_at"))
        return Problem(429, "quota_exceeded", detail, members=members, headers=headers)


_DAILY = (
    "and {limit} is the quota (EPSILOND_{setting}). It may begin nothing new until {opens_at}; what it holds it can "
    "start, commit and void all the same."
)
_DETAILS = {
    Quota.ENTRIES: "This key has written {used} entries of the ledger today (UTC), "
    + _DAILY.replace("{setting}", "ENTRIES_PER_DAY"),
    Quota.BYTES: "This key has written {used} bytes of entries to the ledger today (UTC), "
    + _DAILY.replace("{setting}", "ENTRY_BYTES_PER_DAY"),
    Quota.OPEN_RESERVATIONS: "This key has {used} open reservations, and {limit} is the quota "
    "(EPSILOND_OPEN_RESERVATIONS_PER_KEY). Commit those whose events have happened, void those that are not needed, "
    "or wait until some expire.",
    Quota.EXTENSIONS: "The reservation was extended {used} times, and {limit} is the quota "
    "(EPSILOND_EXTENSIONS_PER_RESERVATION). Start it in time, or reserve again when it has expired; a started one "
    "takes its commit at any time.",
}


def day_of(now: datetime) -> date:
    """Return the day whose quotas a moment counts for.

    >>> day_of(datetime(2026, 1, 1, 0, 30, tzinfo=UTC))
    datetime.date(2026, 1, 1)
    """
    return now.astimezone(UTC).date()
