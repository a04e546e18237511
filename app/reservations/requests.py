"""Commands about reservations as they come over HTTP: priced, decided once per idempotency key, answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from accounting.events import Event
from app.auth import reach
from app.auth.principal import Principal
from app.kit.context import Context
from app.kit.idempotency import Answer, fingerprint_hash, refuse, to_response
from app.kit.ids import new_id
from app.ledger.commands import Quote, Reserve, Resolution
from app.ledger.executor import Exceeded, Request, execute, execute_soon
from app.ledger.journal import Instruction
from app.ledger.transitions import Transition
from app.problems import Problem
from app.reservations import holders, quotes, service
from app.reservations.bodies import reservation_body


@dataclass(frozen=True)
class Asked:
    """A reservation that is asked for."""

    budget_id: str
    events: tuple[Event, ...]
    purpose: str
    expires_in: timedelta
    charge_delta: float | None = None


def dry_run(context: Context, principal: Principal, asked: Asked) -> dict[str, Any]:
    """What the reservation would be answered now; nothing is written.

    Raises:
        Problem: as `service.dry_run`.
    """
    try:
        return service.dry_run(
            context,
            asked.budget_id,
            asked.events,
            purpose=asked.purpose,
            expires_in=int(asked.expires_in.total_seconds()),
            charge_delta=asked.charge_delta,
        )
    except Problem as denial:
        with context.database.read() as session:
            reach.hide_budget_above(session, principal, denial)
        raise


@dataclass(frozen=True)
class ReservationCommands:
    """The commands of one request.

    Attributes:
        context: The process's context.
        principal: Who asks.
        key: The request's idempotency key.
    """

    context: Context
    principal: Principal
    key: str

    async def reserve_soon(self, asked: Asked, fingerprint: bytes) -> JSONResponse:
        """`reserve` for a coroutine: without a thread where the price is remembered and the events fit."""
        quote = quotes.remembered_quote(self.context, asked.budget_id, asked.events, charge_delta=asked.charge_delta)
        if quote is not None:
            request = self._request(self._reservation(asked, quote), 201, "budget", fingerprint)
            decision = await execute_soon(self.context, request)
            if isinstance(decision, Answer):
                return to_response(decision)
        return await run_in_threadpool(self.reserve, asked, fingerprint)

    def reserve(self, asked: Asked, fingerprint: bytes) -> JSONResponse:
        """Hold the price of the events; where they do not fit, holds that are due are released first.

        Raises:
            Problem: 404; 409 ``budget_exceeded``; 422 of the price.
        """

        def instruct() -> Instruction:
            quote = quotes.quote(self.context, asked.budget_id, asked.events, charge_delta=asked.charge_delta)
            return self._reservation(asked, quote)

        decision = self._execute(instruct, 201, "budget", fingerprint)
        # Once one budget of the path has room, one above it may stand in the way, with due holds of its own below it.
        # Who finds nothing to release decides again, too: others have released what stood in the way, then.
        while isinstance(decision, Exceeded) and decision.room_can_be_made:
            service.release_due_holds(self.context, decision.denial.budget_id)
            decision = self._execute(instruct, 201, "budget", fingerprint)
        if isinstance(decision, Exceeded):
            command = decision.command
            problem = service.budget_exceeded(self.context, decision.denial, decision.path, command).finished()
            with self.context.database.read() as session:
                reach.hide_budget_above(session, self.principal, problem)
            digest = fingerprint_hash(self.context, fingerprint)
            return to_response(refuse(self.context, (self.principal.id, self.key), digest, problem))
        return to_response(decision)

    async def resolve_soon(self, reservation_id: str, command: Resolution, fingerprint: bytes) -> JSONResponse:
        """`resolve` for a coroutine, of a command that needs no price: without a thread where the holder is known."""
        if holders.is_known_to_hold(self.context, reservation_id, self.principal):
            instruction = Instruction(command, self.principal.id, reservation_id)
            decision = await execute_soon(self.context, self._request(instruction, 200, "reservation", fingerprint))
            if isinstance(decision, Answer):
                return to_response(decision)
        return await run_in_threadpool(self.resolve, reservation_id, lambda: command, fingerprint)

    def resolve(self, reservation_id: str, command: Callable[[], Resolution], fingerprint: bytes) -> JSONResponse:
        """A command about a reservation that exists.

        Args:
            reservation_id: Which one.
            command: Makes the command; may take numerics.
            fingerprint: What the request asks.

        Raises:
            Problem: 403 ``not_your_reservation``; 404; the denial.
        """

        def instruct() -> Instruction:
            holders.check_holder(self.context, reservation_id, self.principal)
            return Instruction(command(), self.principal.id, reservation_id)

        decision = self._execute(instruct, 200, "reservation", fingerprint)
        assert isinstance(decision, Answer), "only a reservation can exceed a budget"
        return to_response(decision)

    def _reservation(self, asked: Asked, quote: Quote) -> Instruction:
        command = Reserve(
            reservation_id=new_id("res"),
            events=asked.events,
            quote=quote,
            expires_at=self.context.clock() + asked.expires_in,
            purpose=asked.purpose,
            charge_delta=asked.charge_delta,
        )
        return Instruction(command, self.principal.id, asked.budget_id)

    def _execute(
        self, instruct: Callable[[], Instruction], status: int, target: str, fingerprint: bytes
    ) -> Answer | Exceeded:
        return execute(
            self.context,
            principal_id=self.principal.id,
            key=self.key,
            fingerprint=fingerprint,
            instruct=instruct,
            answer=self._answer(status),
            target=target,
        )

    def _request(self, instruction: Instruction, status: int, target: str, fingerprint: bytes) -> Request:
        digest = fingerprint_hash(self.context, fingerprint)
        return Request(instruction, (self.principal.id, self.key), digest, self._answer(status), target)

    def _answer(self, status: int) -> Callable[[Transition], Answer]:
        def answer(transition: Transition) -> Answer:
            reservation = transition.reservation
            assert reservation is not None, "it is about a reservation"
            headers = {}
            if status == 201:
                headers = {"Location": f"/v1/reservations/{reservation.id}"}
                holders.remember(self.context, reservation.id, self.principal.id)
            return Answer(status, reservation_body(reservation, transition.path, self.context.clock()), headers)

        return answer
