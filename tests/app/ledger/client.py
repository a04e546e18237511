"""Commands to the real ledger, by way of the functions behind the endpoints, and their answers in the model's words."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyio.from_thread import BlockingPortal
from starlette.responses import JSONResponse

from app.auth.principal import LOOPBACK, Principal, Scope
from app.budgets import endpoints as budgets
from app.budgets import service
from app.budgets.schemas import BudgetRequest, LimitRequest
from app.context import Context
from app.problems import Problem
from app.reservations import endpoints as reservations
from app.reservations.repository import find
from app.reservations.schemas import CommitRequest, CorrectionRequest, ExtendRequest, ReservationRequest
from tests.app.ledger.model import Command, Outcome

UNIT_RHO = 0.01
#: In nano-units.
UNIT = 10**7
#: May raise charges, not lower them.
CAREFUL = Principal("service", frozenset({Scope.OWNER}))


@dataclass(frozen=True)
class Reply:
    """An answer, without what differs between two sendings of it."""

    status: int
    body: dict[str, Any]
    is_replayed: bool


def units(count: int) -> list[dict[str, Any]]:
    """Events that cost so many units in a zcdp budget."""
    return [{"mechanism": {"kind": "zcdp", "rho": UNIT_RHO}, "count": count}] if count else []


def open_tree(context: Context, parents: Sequence[int | None], limits: Sequence[int]) -> list[str]:
    """Open budgets, each under the one whose number is given; returns their ids."""
    opened: list[str] = []
    for parent, limit in zip(parents, limits, strict=True):
        request = BudgetRequest.model_validate(
            {
                "name": "b",
                "neighboring_relation": "replace_one",
                "filter": {"kind": "zcdp", "rho": f"{limit / 100:.2f}"},
                "parent_id": None if parent is None else opened[parent],
            }
        )
        with context.database.write() as session:
            opened.append(service.create_budget(session, context, request, "loopback").id)
    return opened


@dataclass
class Client:
    """Sends the model's commands to the ledger. Several threads may share one.

    Attributes:
        context: The process's context.
        loop: The event loop that serves, as the server's does, what is served without a thread.
        budgets: Ids of the model's budgets.
        ids: Of reservations, by the model's names.
    """

    context: Context
    loop: BlockingPortal
    budgets: Sequence[str]
    ids: dict[str, str] = field(default_factory=dict)

    def send(self, name: str, command: Command) -> Outcome:
        """Send a command; ``name`` is also its idempotency key."""
        return self.outcome(name, command, self.reply(name, command))

    def reply(self, name: str, command: Command) -> Reply:
        """The whole answer to a command."""
        try:
            response = self._call(name, command)
        except Problem as problem:
            body = {"code": problem.code, **problem.members}
            return Reply(problem.status, body, "Idempotency-Replayed" in problem.headers)
        return Reply(response.status_code, json.loads(bytes(response.body)), "idempotency-replayed" in response.headers)

    def outcome(self, name: str, command: Command, reply: Reply) -> Outcome:
        """The answer in the model's words."""
        body = reply.body
        if reply.status >= 400:
            left = _units(body["remaining"]) if "remaining" in body else None
            assert body.get("largest_count_that_fits") == left
            return body["code"], left
        if command.kind == "look":
            spent, started, reserved = (_units(body["amounts"][name]) for name in ("spent", "started", "reserved"))
            return "seen", (spent, started, reserved - started)
        if command.kind in ("reserve", "charge"):
            self.ids[name] = body["id"]
        if command.kind == "limit":
            return "changed", _units(body["amounts"]["remaining"])
        return body["state"], _units(body["remaining"])

    def _call(self, name: str, command: Command) -> JSONResponse:
        if isinstance(command.target, int):
            return self._call_budget(name, command, self.budgets[command.target])
        return self._call_reservation(name, command, self.ids[command.target])

    def _call_budget(self, name: str, command: Command, budget_id: str) -> JSONResponse:
        events, about = units(command.units or 0), (self.context, LOOPBACK, name, budget_id)
        if command.kind == "reserve":
            reserve = {"events": events, "purpose": name, "expires_in": command.seconds}
            return self._serve(reservations.create_reservation, *about, ReservationRequest.model_validate(reserve))
        if command.kind == "charge":
            charge = {"events": events, "reason": name}
            return budgets.correct_charge(*about, CorrectionRequest.model_validate(charge))
        if command.kind == "limit":
            assert command.units is not None
            limit = {"filter": {"kind": "zcdp", "rho": f"{command.units / 100:.2f}"}, "reason": name}
            return budgets.change_limit(*about, LimitRequest.model_validate(limit))
        assert command.kind == "look"
        return JSONResponse(budgets.get_budget(self.context, LOOPBACK, budget_id).model_dump(mode="json"))

    def _call_reservation(self, name: str, command: Command, reservation_id: str) -> JSONResponse:
        about = (self.context, LOOPBACK, name, reservation_id)
        given = {} if command.units is None else {"events": units(command.units)}
        if command.kind == "correct":
            with self.context.database.read() as session:
                reservation = find(session, reservation_id)
            assert reservation is not None
            correct = CorrectionRequest.model_validate({"reservation_id": reservation_id, "reason": name, **given})
            principal = LOOPBACK if command.may_lower else CAREFUL
            return budgets.correct_charge(self.context, principal, name, reservation.budget_id, correct)
        if command.kind == "start":
            return self._serve(reservations.start_reservation, *about)
        if command.kind == "void":
            return self._serve(reservations.void_reservation, *about)
        if command.kind == "extend":
            more = ExtendRequest.model_validate({"expires_in": command.seconds})
            return self._serve(reservations.extend_reservation, *about, more)
        assert command.kind == "commit"
        part = CommitRequest.model_validate(given) if given else None
        return self._serve(reservations.commit_reservation, *about, part)

    def _serve(self, endpoint: Callable[..., Coroutine[Any, Any, JSONResponse]], *arguments: Any) -> JSONResponse:
        response: JSONResponse = self.loop.call(endpoint, *arguments)
        return response


def _units(amount: dict[str, Any]) -> int:
    return round(float(amount["rho"]) / UNIT_RHO)
