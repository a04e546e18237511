"""The words of the ledger: states of a reservation, kinds of entries, and why a command is refused."""

from __future__ import annotations

from enum import StrEnum


class ReservationStatus(StrEnum):
    """Where a reservation is. The last three are final."""

    PENDING = "pending"
    STARTED = "started"
    COMMITTED = "committed"
    VOIDED = "voided"
    EXPIRED = "expired"


class EntryKind(StrEnum):
    """What an entry of the ledger records: the making of a budget, or one transition of a reservation."""

    CREATE = "create"
    RESERVE = "reserve"
    START = "start"
    COMMIT = "commit"
    VOID = "void"
    EXPIRE = "expire"


class DenialCode(StrEnum):
    """Why a command is refused, in order of precedence."""

    RELATION_MISMATCH = "relation_mismatch"
    """reserve: the events are priced under another neighbouring relation than the budget's (422)."""
    OWNED_BY_RUN = "owned_by_run"
    """start, commit, void: the reservation belongs to a run, and only the run resolves it."""
    ALREADY_RESOLVED = "already_resolved"
    """start, commit, void, expire: the reservation is committed or voided."""
    EXPIRED = "expired"
    """start, commit, void, expire: it was released; start, commit: it is pending past its time."""
    ALREADY_STARTED = "already_started"
    """start, void, expire: noise may have been drawn."""
    NOT_EXPIRED = "not_expired"
    """expire: the time is not over (never an answer over HTTP: only the ledger itself expires)."""
    NOT_A_PREFIX = "not_a_prefix"
    """commit: the events are not the reserved ones with counts reduced and later ones dropped (422)."""
    BUDGET_EXCEEDED = "budget_exceeded"
    """reserve: with the cost added, the filter would not admit the total."""


#: Malformed commands; every other denial is about the state (409).
UNPROCESSABLE = frozenset({DenialCode.RELATION_MISMATCH, DenialCode.NOT_A_PREFIX})
