"""What can be asked of the ledger. A command carries its price: whoever asks has found it before any lock is taken."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from accounting.events import Event
from accounting.filters import PrivacyFilter
from app.ledger.states import Amounts


@dataclass(frozen=True)
class Quote:
    """What events cost in a budget's filter, which knows them by kind and orders and so never changes its mind.

    Attributes:
        amounts: The price, rounded up.
        engine_version: Of the engine that found it.
        warnings: Code and text.
    """

    amounts: Amounts
    engine_version: str
    warnings: tuple[tuple[str, str], ...] = ()


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


@dataclass(frozen=True)
class Start:
    """Noise is about to be drawn."""

    by_run: bool = False


@dataclass(frozen=True)
class Extend:
    """More time, until ``until``; never less than there was."""

    until: datetime
    by_run: bool = False


@dataclass(frozen=True)
class Commit:
    """The events have happened.

    Attributes:
        events: The part of them that did; None means all.
        quote: The price of that part, where it is not all.
        by_run: The service's own run asks.
        nothing_released: The run was cancelled before anything of it could be seen, so that the part was not chosen by
            looking at outputs.
    """

    events: tuple[Event, ...] | None = None
    quote: Quote | None = None
    by_run: bool = False
    nothing_released: bool = False


@dataclass(frozen=True)
class Void:
    """Nothing has happened and nothing will: release what is held."""

    by_run: bool = False


@dataclass(frozen=True)
class Expire:
    """The time to start is over: release what is held."""


@dataclass(frozen=True)
class Correct:
    """The price of a reservation was wrong, or something else happened than was reserved.

    Attributes:
        quote: The price that is right.
        reason: Why, for every later reader.
        events: What happened; None keeps the events and corrects their price, upwards alone.
        may_lower: Whether whoever asks may lower a charge.
        charge_delta: The delta at which an approximate_dp budget priced the events.
    """

    quote: Quote
    reason: str
    events: tuple[Event, ...] | None = None
    may_lower: bool = False
    charge_delta: float | None = None


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
    """Another limit from now on; the kind, the orders and what is used stay."""

    filter: PrivacyFilter
    reason: str


#: About a reservation that exists.
Resolution = Start | Extend | Commit | Void | Expire | Correct
#: About a budget.
BudgetCommand = Reserve | Charge | ChangeLimit
Command = Resolution | BudgetCommand
