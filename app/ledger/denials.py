"""The codes with which the ledger refuses commands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from app.tables.states import LimitRequestStatus, ReservationStatus


class DenialCode(StrEnum):
    """Reasons to refuse a command, in order of precedence."""

    OWNED_BY_RUN = "owned_by_run"
    """start, extend, commit, void: the reservation belongs to a run, and only the run resolves it."""
    ALREADY_RESOLVED = "already_resolved"
    """start, extend, commit, void, expire: the reservation is committed or voided."""
    EXPIRED = "expired"
    """start, extend, commit, void, expire: it was released; start, extend, commit: it is pending past its time."""
    ALREADY_STARTED = "already_started"
    """start, void, expire: the reservation is started, so noise may have been drawn."""
    NOT_EXPIRED = "not_expired"
    """expire: the time is not over (never an answer over HTTP: only the ledger itself expires)."""
    NOT_A_PREFIX = "not_a_prefix"
    """commit: the events are not the reserved ones with counts reduced and later ones dropped (422)."""
    TAIL_NOT_GIVEN_BACK = "tail_not_given_back"
    """commit: a budget has no room for the failure that giving up a tail costs, or what is held was corrected."""
    NOT_COMMITTED = "not_committed"
    """correct: the reservation is open (only its price can be corrected then) or was released."""
    CORRECTION_LOWERS = "correction_lowers"
    """correct: the charge would become smaller, or steps would be forgotten, and the key may not do that (403)."""
    PRICE_OUTDATED = "price_outdated"
    """correct: the events have changed since they were priced (never an answer over HTTP: they are priced again)."""
    NOT_YOUR_REQUEST = "not_your_request"
    """withdraw: somebody else asked for the limit (403)."""
    REQUEST_DECIDED = "request_decided"
    """approve, refuse, withdraw: the request for a limit is approved, refused or withdrawn already."""
    OWN_REQUEST = "own_request"
    """approve: the principal that asked for a limit cannot approve it (403)."""
    APPROVED_BY_YOU = "approved_by_you"
    """approve: this principal has approved it, and another one must."""
    TOO_MANY_OPEN_REQUESTS = "too_many_open_requests"
    """ask: this principal has the largest allowed number of open requests for the budget."""
    LIMIT_CHANGED = "limit_changed"
    """approve: the budget's limit has changed since the request was made."""
    LIMIT_ABOVE_PARENT = "limit_above_parent"
    """approve: a budget above would not admit the wanted limit, even if nothing else were charged to it."""
    LIMIT_BELOW_USE = "limit_below_use"
    """limit, approve: what is spent and reserved is more than the new limit."""
    BUDGET_EXCEEDED = "budget_exceeded"
    """reserve: with the cost added, the filter of the budget or of one above it would not admit the total."""


#: The statuses of some denials. Every other one is due to the state of the ledger: its status is 409, and it is
#: remembered under its idempotency key.
_STATUS = {
    DenialCode.NOT_A_PREFIX: 422,
    DenialCode.CORRECTION_LOWERS: 403,
    DenialCode.NOT_YOUR_REQUEST: 403,
    DenialCode.OWN_REQUEST: 403,
}

_DETAILS = {
    DenialCode.OWNED_BY_RUN: "the reservation belongs to a run, which resolves it; cancel the run instead",
    DenialCode.ALREADY_RESOLVED: "the reservation is committed or voided already; each is resolved at most once",
    DenialCode.EXPIRED: "the reservation was not started in time, so its hold is released; reserve again",
    DenialCode.ALREADY_STARTED: "the reservation is started: noise may have been drawn, so it can only be committed",
    DenialCode.NOT_EXPIRED: "the reservation may still be started",
    DenialCode.NOT_A_PREFIX: "events must be the reserved list with counts reduced and later events dropped",
    DenialCode.TAIL_NOT_GIVEN_BACK: "a budget has no room for the failure that giving up the rest costs, or the hold "
    "was corrected meanwhile; try again, or commit without give_up_tail, which charges all of it",
    DenialCode.NOT_COMMITTED: "a charge can be corrected once its reservation is committed; leave reservation_id out "
    "to charge events without a reservation",
    DenialCode.CORRECTION_LOWERS: "this correction would lower a charge or forget charged steps, which needs a key "
    "with the scope corrections; charge further events without reservation_id",
    DenialCode.PRICE_OUTDATED: "the events have changed since they were priced",
    DenialCode.NOT_YOUR_REQUEST: "only the key that made the request can withdraw it; an owner may refuse it",
    DenialCode.REQUEST_DECIDED: "the request is approved, refused or withdrawn already; `state` says which",
    DenialCode.OWN_REQUEST: "you cannot approve your own request; another owner has to, or you can withdraw it",
    DenialCode.APPROVED_BY_YOU: "this key has approved the request; another key must approve it, too",
    DenialCode.TOO_MANY_OPEN_REQUESTS: "this key has as many open requests for this budget as it may have; withdraw "
    "one, or wait until one is decided",
    DenialCode.LIMIT_CHANGED: "the budget's limit has changed since the request was made; refuse the request, "
    "and have it made again",
    DenialCode.LIMIT_ABOVE_PARENT: "a budget above this one has a smaller limit, so the wanted one could never be "
    "used; raise the limit there first",
    DenialCode.LIMIT_BELOW_USE: "more is spent and reserved than the new limit admits; it can be no lower than `used`",
    DenialCode.BUDGET_EXCEEDED: "the budget does not admit these events; largest_count_that_fits says how many of "
    "their steps it would, and a calibration with the target kind `budget` finds noise that fits",
}


@dataclass(frozen=True)
class Denial:
    """A command that is refused; nothing changes.

    Attributes:
        code: The reason.
        state: The state of the reservation, or of the request for a limit, that it is about.
        budget_id: The budget whose limit is exceeded: the one that was asked, or one above it.
    """

    code: DenialCode
    state: ReservationStatus | LimitRequestStatus | None = None
    budget_id: str | None = None

    @property
    def status(self) -> int:
        """Return the HTTP status code."""
        return _STATUS.get(self.code, 409)

    @property
    def detail(self) -> str:
        """Return what was wrong, and what would be right."""
        return _DETAILS[self.code]
