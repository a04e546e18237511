"""Commands to the ledger. A command carries its price, which is computed before any lock is taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from accounting.canonical import Json
from accounting.certificates import Certificate
from accounting.events import Event
from accounting.filters import PrivacyFilter
from app.entries.kinds import ChargedData
from app.tables.states import Amounts


@dataclass(frozen=True)
class Quote:
    """The price of events in a budget's filter. It depends on the filter's kind and price terms, and never changes.

    Attributes:
        amounts: The price, rounded up.
        engine_version: The version of the engine that found it.
        warnings: A code and a text for each.
        certificate: A certificate of what the events cost alone, if the caller asked for one.
    """

    amounts: Amounts
    engine_version: str
    warnings: tuple[tuple[str, str], ...] = ()
    certificate: Certificate | None = None


@dataclass(frozen=True)
class Reserve:
    """Hold the price of ``events``."""

    reservation_id: str
    events: tuple[Event, ...]
    quote: Quote
    expires_at: datetime
    purpose: str = ""
    charge_delta: float | None = None
    run_id: str | None = None
    plan_hash: str | None = None
    dataset: ChargedData | None = None


@dataclass(frozen=True)
class Start:
    """Noise is about to be drawn.

    Attributes:
        by_run: The service's own run asks.
        is_told_late: Whether it may have been started in time by an entry that was lost.
    """

    by_run: bool = False
    is_told_late: bool = False


@dataclass(frozen=True)
class Extend:
    """Extend the time to ``until``, and never shorten it."""

    until: datetime
    by_run: bool = False


@dataclass(frozen=True)
class GivenUp:
    """The steps of a reservation that were not taken, and never will be.

    Attributes:
        held: What the reservation held when the worth of these steps was computed.
        back: What is given back for them; a negative amount is spent for giving them up.
        engine_version: The version of the engine that found it.
    """

    held: Amounts
    back: Amounts
    engine_version: str


@dataclass(frozen=True)
class Commit:
    """The events have happened.

    Attributes:
        events: The part of them that did; None means all.
        quote: The price of that part; None if all events have happened.
        by_run: The service's own run asks.
        nothing_released: Whether the run was cancelled before anything of it could be seen. Then the part was not
            chosen by looking at outputs.
        given_up: The other events, for which no noise was drawn. Only a principal with the right to say so may ask for
            this.
    """

    events: tuple[Event, ...] | None = None
    quote: Quote | None = None
    by_run: bool = False
    nothing_released: bool = False
    given_up: GivenUp | None = None


@dataclass(frozen=True)
class Void:
    """Release what is held: nothing has happened and nothing will."""

    by_run: bool = False


@dataclass(frozen=True)
class Expire:
    """The time to start is over: release what is held."""


@dataclass(frozen=True)
class Correct:
    """The price of a reservation was wrong, or something else happened than was reserved.

    Attributes:
        quote: The right price.
        reason: The reason, for every later reader.
        events: What happened; None keeps the events and corrects only their price, which may only rise.
        priced: The events that ``quote`` is for, where ``events`` is None. If another command has changed them since,
            the correction is refused and must be priced again.
        may_lower: Whether the principal may lower a charge.
        charge_delta: The delta at which an approximate_dp budget priced the events.
    """

    quote: Quote
    reason: str
    events: tuple[Event, ...] | None = None
    may_lower: bool = False
    charge_delta: float | None = None
    priced: tuple[Event, ...] | None = None


@dataclass(frozen=True)
class Charge:
    """Something was released that no reservation held: it is spent, whether it fits or not."""

    reservation_id: str
    events: tuple[Event, ...]
    quote: Quote
    reason: str
    charge_delta: float | None = None


@dataclass(frozen=True)
class ChangeLimit:
    """Set another limit from now on; the kind, its price terms and what is used stay."""

    filter: PrivacyFilter
    reason: str


@dataclass(frozen=True)
class EnterLoss:
    """Record that entries of this budget, or of others under it, were lost, and that somebody has acknowledged it.

    Attributes:
        reason: The reason, in the words of the person who acknowledged the loss.
        details: What is known to be missing.
    """

    reason: str
    details: Mapping[str, Json]


@dataclass(frozen=True)
class AskLimit:
    """Ask for another limit of a budget.

    Attributes:
        request_id: A fresh id.
        filter: The filter with the wanted limit.
        reason: The reason, for the person who decides and for every later reader.
        approvals_needed: How many principals must approve.
    """

    request_id: str
    filter: PrivacyFilter
    reason: str
    approvals_needed: int


@dataclass(frozen=True)
class ApproveLimit:
    """Approve a request for another limit; the last approval that is needed sets it.

    Attributes:
        reason: The reason.
        approvals_needed: How many principals must approve under the present settings. If more were needed when the
            request was made, the larger number counts.
    """

    reason: str
    approvals_needed: int


@dataclass(frozen=True)
class RefuseLimit:
    """Refuse a request for another limit."""

    reason: str


@dataclass(frozen=True)
class WithdrawLimit:
    """Withdraw a request for another limit."""


#: Commands about an existing request for another limit.
LimitDecision = ApproveLimit | RefuseLimit | WithdrawLimit
LimitRequestCommand = AskLimit | LimitDecision
#: Commands about a reservation that exists.
Resolution = Start | Extend | Commit | Void | Expire | Correct
#: Commands about a budget.
BudgetCommand = Reserve | Charge | ChangeLimit | EnterLoss
Command = Resolution | BudgetCommand
