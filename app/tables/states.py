"""The types of values in columns: states of runs, sweeps and reservations, and amounts. Nothing here needs a
database."""

from __future__ import annotations

from enum import StrEnum

#: Integer units, one number for each parameter or order of the filter. Sums of Python's integers are exact, so a
#: release gives back exactly what was held, even at an order at which single costs are capped at the largest amount.
Amounts = tuple[int, ...]

#: The id of the register's chain. The other chains have the ids of their budgets.
REGISTER = "register"


class ReservationStatus(StrEnum):
    """The state of a reservation. The last three are final."""

    PENDING = "pending"
    """Its cost is held; it ends by itself unless it is started in time."""
    STARTED = "started"
    """Noise may have been drawn, so that it can only be committed."""
    COMMITTED = "committed"
    """Its events happened, and are charged."""
    VOIDED = "voided"
    """Given up before any noise was drawn; what it held is released."""
    EXPIRED = "expired"
    """It was not started in time; what it held is released."""


class LimitRequestStatus(StrEnum):
    """The state of a request for another limit. The last three are final."""

    OPEN = "open"
    """Nobody has decided it yet, or more approvals are needed."""
    APPROVED = "approved"
    """The budget has the limit that was asked for."""
    REFUSED = "refused"
    """An owner has refused it."""
    WITHDRAWN = "withdrawn"
    """The principal that asked has taken it back."""


class Change(StrEnum):
    """How a version differs from the one before, according to its owner. It is public, and not checked."""

    APPENDED = "appended"
    """Rows came."""
    DELETED = "deleted"
    """Rows went."""
    CORRECTED = "corrected"
    """Rows have other values."""
    REPLACED = "replaced"
    """It does not say."""


class WebhookEvent(StrEnum):
    """The events about which a webhook may get messages."""

    SPENDING_THRESHOLD = "spending_threshold"
    """The amounts that may have been released (spent and started) have reached a share of the budget's limit."""
    DENIED = "denied"
    """Reservations were refused for want of room; those within a minute make one message."""
    START_OVERDUE = "start_overdue"
    """A reservation was started and not committed in its time."""
    LIMIT_REQUESTED = "limit_requested"
    """Another limit was asked for."""
    LIMIT_DECIDED = "limit_decided"
    """A request for another limit was approved, refused or withdrawn."""


class WebhookState(StrEnum):
    """The state of a webhook."""

    ACTIVE = "active"
    """Messages are written and delivered."""
    DISABLED = "disabled"
    """No message is written; those that wait stay until it is active again, or are given up."""


class DeliveryState(StrEnum):
    """The state of a message. The last two are final."""

    PENDING = "pending"
    """It waits for its next attempt."""
    DELIVERED = "delivered"
    """The receiver answered with a status 2xx."""
    GIVEN_UP = "given_up"
    """It could not be delivered within a day."""


class RunState(StrEnum):
    QUEUED = "queued"
    """Its cost is held, and it waits for a worker."""
    RUNNING = "running"
    """A worker is at it; once noise was drawn its charge stays."""
    SUCCEEDED = "succeeded"
    """The charge is committed, and the model can be fetched."""
    FAILED = "failed"
    """It ended without a model; `problem` says why, and whether its charge stands."""
    CANCELLING = "cancelling"
    """It was cancelled, and its worker is about to notice."""
    CANCELLED = "cancelled"
    """It was cancelled: before its start nothing is charged, after it the whole."""


#: The states in which a worker has the run.
IN_PROGRESS = (RunState.RUNNING, RunState.CANCELLING)

ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)


class Select(StrEnum):
    """Which results of a sweep are released."""

    ALL = "all"
    """Every run, and the charge is of all of them together."""
    BEST = "best"
    """The best of a random number of runs, charged as that selection; no other is shown."""


class SweepState(StrEnum):
    """The state that is shown of a sweep. The last three are final, and only these are stored."""

    QUEUED = "queued"
    """No worker has taken a run of it yet."""
    RUNNING = "running"
    """Runs are being trained, or wait for one another."""
    CANCELLING = "cancelling"
    """It was cancelled, and a worker is about to notice."""
    SUCCEEDED = "succeeded"
    """It ended, and what it releases can be read."""
    FAILED = "failed"
    """It ended without what it was to release."""
    CANCELLED = "cancelled"
    """It was cancelled; what had started stays charged."""
