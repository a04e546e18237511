"""Commands about reservations: each is priced, decided once per idempotency key, and answered.

A request or a run that reserves describes the reservation with `Asked`. If it does not fit, `make_room` releases
expired holds and lets it try again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from accounting.events import Event
from app.auth import reach
from app.auth.principal import Principal
from app.context import Context
from app.entries.kinds import ChargedData
from app.idempotency.once import Keyed, refuse
from app.idempotency.records import Answer
from app.kit.ids import new_id
from app.ledger import pricing
from app.ledger.amounts import amounts_in_words, remaining_in_words
from app.ledger.commands import Quote, Reserve, Resolution
from app.ledger.denials import Denial
from app.ledger.executor import Exceeded, Request, carry_out_one, execute
from app.ledger.journal import Instruction
from app.ledger.repository import report_delta
from app.ledger.transitions import Transition, decide
from app.outbox.writing import write_denial
from app.problems import Problem
from app.reservations import certification, holders, prices, quotes, service
from app.reservations.bodies import reservation_body


@dataclass(frozen=True)
class Asked:
    """A reservation that is asked for.

    Attributes:
        budget_id: The budget.
        events: The events that will be released.
        purpose: Free text, shown with every entry.
        expires_in: The time after which the hold expires if it is not started.
        charge_delta: The delta at which an approximate_dp budget prices the events.
        run_id: The run that owns the reservation, and that alone may resolve it.
        plan_hash: The plan that the events come from; the worker compares what it executes with it.
        dataset: The data that the events are about, if known.
        certificate: Whether to keep, with the charge, a certificate of what the events cost alone.
    """

    budget_id: str
    events: tuple[Event, ...]
    purpose: str
    expires_in: timedelta
    charge_delta: float | None = None
    run_id: str | None = None
    plan_hash: str | None = None
    dataset: ChargedData | None = None
    certificate: bool = False

    def quote(self, context: Context) -> Quote:
        """Compute its price.

        Raises:
            Problem: as `quotes.quote`.
        """
        return quotes.quote(context, self.budget_id, self.events, charge_delta=self.charge_delta)

    def remembered_quote(self, context: Context) -> Quote | None:
        """Return the price if it is remembered and no certificate is needed; None otherwise."""
        found = quotes.remembered_quote(context, self.budget_id, self.events, charge_delta=self.charge_delta)
        return None if found is None or self._is_certified(context) else found

    def certified_quote(self, context: Context) -> Quote:
        """Compute its price, with a certificate if one is wanted.

        Raises:
            Problem: as `quotes.quote`.
        """
        quote = self.quote(context)
        if not self._is_certified(context):
            return quote
        return certification.certified(context, self.budget_id, self.events, quote)

    def _is_certified(self, context: Context) -> bool:
        return self.certificate or context.settings.certify_charges

    def command(self, context: Context, quote: Quote) -> Reserve:
        """Return the command that holds this price from now on."""
        return Reserve(
            reservation_id=new_id("res"),
            events=self.events,
            quote=quote,
            expires_at=context.clock() + self.expires_in,
            purpose=self.purpose,
            charge_delta=self.charge_delta,
            run_id=self.run_id,
            plan_hash=self.plan_hash,
            dataset=self.dataset,
        )


@dataclass(frozen=True)
class Command:
    """A request about a reservation.

    Attributes:
        context: The process's context.
        principal: Who asks.
        keyed: The key, and what is asked.
        status: The status of the answer; 201 if it makes a reservation.
        instruct: A function that makes the instruction, and may compute a price.
        known: The instruction, if nothing has to be computed or looked up for it.
    """

    context: Context
    principal: Principal
    keyed: Keyed
    status: int
    instruct: Callable[[], Instruction]
    known: Instruction | None

    @property
    def request(self) -> Request | None:
        """Return the request, if it can be decided without a thread."""
        return None if self.known is None else Request(self.keyed, self.known, self._answer)

    def carry_out(self) -> Answer:
        """Carry out the command.

        Raises:
            Problem: 404; the denial; a problem of the price.
        """
        return make_room(
            self.context,
            self.principal,
            self.keyed,
            lambda: execute(self.context, self.keyed, self.instruct, self._answer),
        )

    def _answer(self, transition: Transition) -> Answer:
        reservation = transition.reservation
        assert reservation is not None, "it is about a reservation"
        headers = {}
        if self.status == 201:
            headers = {"Location": f"/v1/reservations/{reservation.id}"}
            holders.remember(self.context, reservation.id, self.principal.id)
        return Answer(self.status, reservation_body(reservation, transition.path, self.context.clock()), headers)


def to_reserve(context: Context, principal: Principal, keyed: Keyed, asked: Asked) -> Command:
    """Return the command that makes a reservation."""

    def instruct(quote: Quote) -> Instruction:
        return Instruction(asked.command(context, quote), principal.id, asked.budget_id)

    quote = asked.remembered_quote(context)
    known = None if quote is None else instruct(quote)
    return Command(context, principal, keyed, 201, lambda: instruct(asked.certified_quote(context)), known)


def to_resolve(
    context: Context,
    principal: Principal,
    keyed: Keyed,
    reservation_id: str,
    resolution: Resolution | Callable[[], Resolution],
) -> Command:
    """Return the command that changes an existing reservation.

    Args:
        context: The process's context.
        principal: The principal who asks; 403 ``not_your_reservation`` for anybody but its maker and owners.
        keyed: The key, and what is asked.
        reservation_id: The reservation.
        resolution: What to do; a function if it must compute a price.
    """

    def instruct() -> Instruction:
        holders.check_holder(context, reservation_id, principal)
        return Instruction(resolution() if callable(resolution) else resolution, principal.id, reservation_id)

    known = None
    if not callable(resolution) and holders.is_known_to_hold(context, reservation_id, principal):
        known = Instruction(resolution, principal.id, reservation_id)
    return Command(context, principal, keyed, 200, instruct, known)


def reserve(session: Session, context: Context, principal_id: str, asked: Asked, quote: Quote) -> str:
    """Hold the price in the caller's transaction, and return the reservation's id. Runs reserve in this way.

    Raises:
        Exceeded: the reservation does not fit; nothing was written. `make_room` lets the whole transaction be tried
            again.
    """
    command = asked.command(context, quote)
    carry_out_one(session, context, Instruction(command, principal_id, asked.budget_id))
    return command.reservation_id


def make_room(context: Context, principal: Principal, keyed: Keyed, attempt: Callable[[], Answer]) -> Answer:
    """Return the answer of a command that reserves. If it does not fit, expired holds are released and it is tried
    again.

    Args:
        context: The process's context.
        principal: Who asks.
        keyed: The key, and what is asked.
        attempt: A function that carries out the command; it is called again when there may be room.

    Raises:
        Problem: any problem that the attempt raises; 409 ``budget_exceeded``, which is recorded under the idempotency
            key.
    """

    def tell(exceeded: Exceeded) -> Callable[[Session], None]:
        path = [level.id for level in exceeded.path]
        return lambda session: write_denial(session.connection(), path, context.clock())

    while True:
        try:
            return attempt()
        except Exceeded as exceeded:
            if not exceeded.room_can_be_made:
                return refuse(context, keyed, _budget_exceeded(context, principal, exceeded), tell(exceeded))
            # When one budget of the path has room, one above it may still lack it, and may have expired holds in other
            # budgets below it. Even if nothing was released here, another attempt is made, since others may have
            # released holds.
            service.release_due_holds(context, exceeded.denial.budget_id)


def dry_run(context: Context, principal: Principal, asked: Asked) -> dict[str, Any]:
    """Return the answer that the reservation would get now, without writing anything. Expired holds count as released.

    Raises:
        Problem: as `Command.carry_out`.
    """
    quote, now = asked.quote(context), context.clock()
    command = asked.command(context, quote)
    with context.database.read() as session:
        path = service.path_without_due_holds(session, asked.budget_id, now)
        delta = report_delta(session, asked.budget_id)
    price = prices.explained(context, path, delta, asked.events, asked.charge_delta, quote.amounts)
    outcome = decide(path, None, command, now, quote.engine_version)
    if isinstance(outcome, Denial):
        exceeded = Exceeded(outcome, path, command, room_can_be_made=False)
        raise _budget_exceeded(context, principal, exceeded, price)
    assert outcome.reservation is not None, "a reservation would be made"
    return {**reservation_body(outcome.reservation, outcome.path, now), "id": None, "price": price}


def _budget_exceeded(
    context: Context, principal: Principal, exceeded: Exceeded, price: dict[str, Any] | None = None
) -> Problem:
    """Return the answer to a reservation that does not fit. Computing what would fit takes time, so no lock is held
    meanwhile.

    Args:
        context: The process's context.
        principal: Who asks.
        exceeded: The reservation that does not fit, and the budget without room.
        price: The explained price, if it is known.
    """
    denial, path, command = exceeded.denial, exceeded.path, exceeded.command
    if price is None:
        with context.database.read() as session:
            delta = report_delta(session, path[0].id)
        price = prices.here(context, path, delta, command.events, command.quote.amounts)
    members: dict[str, Any] = {
        "cost": amounts_in_words(path[0].filter, command.quote.amounts),
        "remaining": remaining_in_words(path),
        "price": price,
        "warnings": [{"code": code, "detail": detail} for code, detail in command.quote.warnings],
        "budget_id": denial.budget_id,
        **pricing.what_would_fit(context, path, command.events, command.charge_delta),
    }
    adds, left = (None, None) if price is None else (price["adds"], price["left"])
    numbers = "" if adds is None else f"these events would add {adds} to the epsilon that is used, and {left} is left: "
    problem = Problem(denial.status, str(denial.code), numbers + denial.detail, members=members)
    with context.database.read() as session:
        reach.hide_budget_above(session, principal, problem)
    return problem
