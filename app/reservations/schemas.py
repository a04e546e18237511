"""Requests and answers about reservations."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from app.kit.fields import Integer, Name, Schema
from app.ledger.amounts import FilterAmounts
from app.tables.states import ReservationStatus
from app.wire.answers import IntervalBody
from app.wire.events import Events, EventSchema

#: The most seconds that a hold may wait for its start: 30 days.
MAX_EXPIRES_IN = 30 * 24 * 3600


class ChargeRequest(Schema):
    """How an approximate_dp budget prices a reservation; other budgets do not take it."""

    delta: float = Field(
        ge=1e-18, le=0.5, description="The delta at which it is priced; this delta is charged as well."
    )


class ReservationRequest(Schema):
    """A hold on a budget for events that have not happened yet."""

    events: Events
    purpose: Name
    expires_in: Integer = Field(
        3600,
        ge=1,
        le=MAX_EXPIRES_IN,
        description="Seconds until the hold may be released if it is not started. A started reservation never expires.",
    )
    charge: ChargeRequest | None = None
    # It is left out unless it is given, so that requests from before this field existed stay the same.
    certificate: bool = Field(
        False,
        exclude_if=lambda given: not given,
        description="Store a certificate of what the events cost, which `epsilond-verify` can check, with the charge. "
        "If there is none, a warning says so. Takes up to a few seconds.",
    )


class CommitRequest(Schema):
    """The events that happened: the reserved ones with counts reduced and later ones dropped. If absent, all of
    them."""

    events: Events | None = None
    # It is left out unless it is given, so that requests from before this field existed stay the same.
    give_up_tail: bool = Field(
        False,
        exclude_if=lambda given: not given,
        description="State that no noise was drawn for the rest of the reserved events, and that none will be: an "
        "`approximate_gaussian_dp` budget then gives back what the rest is worth. This is final. Needs `events`, "
        "and a key with the scope `refunds`.",
    )


class ExtendRequest(Schema):
    """The time that a reservation has from now on; it is never less than before."""

    expires_in: Integer = Field(3600, ge=1, le=MAX_EXPIRES_IN, description="Seconds from now.")


class CorrectionRequest(Schema):
    """A correction, which states what should have been charged.

    With only `reservation_id` the present engine prices the reservation's events again, and the charge rises if it was
    too low. With `events` too, they replace what was charged. Without `reservation_id`, `events` were released
    with no reservation and are charged now, whether they fit or not.
    """

    reservation_id: str | None = Field(None, max_length=64)
    events: list[EventSchema] | None = Field(
        None, max_length=1000, description="What happened; an empty list means that nothing did."
    )
    charge: ChargeRequest | None = None
    reason: Name = Field(description="Why, for every later reader of the ledger.")


class LedgerWarning(Schema):
    code: str
    detail: str


class PartsBody(Schema):
    """The plan in equal parts, each reserved separately once the part before it is over."""

    parts: int
    epsilon: float | None = Field(
        description="The price of all parts; null if the counts of its events cannot be divided like that."
    )


class PlanPriceBody(Schema):
    """The cost of a plan alone, as an epsilon at one delta."""

    delta: float = Field(description="The budget's own delta, or that of its reports.")
    tight: IntervalBody = Field(description="The price if everything was fixed before any output was seen.")
    charged: float | None = Field(
        description="The price in this budget; null if no finite epsilon follows at this delta."
    )
    why: str = Field(description="The reason why these two differ.")


class PriceHereBody(PlanPriceBody):
    """The cost of a plan alone, and what it adds to the present charges."""

    adds: float | None = Field(
        description="The epsilon that it adds to everything spent and reserved now. Epsilons do not add up, so this "
        "is usually less than `charged`. It is for the budget, among this one and those above it, that then has the "
        "least left. Null if no finite epsilon follows."
    )
    left: float | None = Field(description="What is left in that budget without it.")


class PriceBody(PriceHereBody):
    """A priced list of events, with its prices in budgets of other kinds and the prices of its parts."""

    kinds: dict[str, float | None] = Field(
        description="The price in a budget of each kind that is about as large as the plan; null if it has no price "
        "there. In an approximate_dp budget, half of delta is charged with it."
    )
    in_parts: list[PartsBody]
    after_a_quarter: float | None = Field(
        description="The net charge if the plan is stopped after a quarter of its steps and the rest is given up "
        "(`give_up_tail`); null if nothing would be given back."
    )


class ReservationBody(Schema):
    """A reservation; `remaining` is what its budget still admits now."""

    id: str | None = Field(description="Null in the answer to a dry run.")
    budget_id: str
    state: ReservationStatus
    overdue: bool = Field(
        description="Whether it was started and not committed in time; it can still be committed, once."
    )
    cost: FilterAmounts
    charged: FilterAmounts | None = Field(description="What a committed reservation has spent.")
    given_back: FilterAmounts | None = Field(
        description="What its commit gave back for steps that will never be taken; `failure_delta` is what that cost; "
        "`charged` is net of it."
    )
    remaining: FilterAmounts
    events: list[EventSchema]
    charged_events: list[EventSchema] | None
    charge_delta: float | None
    corrected: bool = Field(description="Whether a correction has replaced what was charged.")
    purpose: str
    run_id: str | None
    plan_hash: str | None = Field(description="The plan whose events were priced, for the reservation of a run.")
    certificate: str | None = Field(
        description="The SHA-256 of the certificate with which it was made: `GET /v1/reservations/{id}/certificate`."
    )
    created_at: datetime
    expires_at: datetime
    resolved_at: datetime | None
    warnings: list[LedgerWarning]
    price: PriceBody | None = Field(
        None,
        description="Given if the budget or its reports have a delta, in the answers to dry runs and to denied "
        "reservations; the latter lack the prices in other kinds and in parts.",
    )
