"""What clients know: the commands that they sent, what each sending was answered, and what they have read."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from tests.crash.connection import Answer, Connection

Json = dict[str, Any]

#: One unit of the campaigns, as a rho and in nano-units.
RHO = Decimal("0.01")
NANO_UNITS = 10**7


class Kind(StrEnum):
    """What a command does; the entry that it makes has the same word."""

    CREATE = "create"
    RESERVE = "reserve"
    START = "start"
    COMMIT = "commit"
    VOID = "void"


#: The answers that say "nothing is decided yet": the same request may be sent again.
UNDECIDED = {(503, "database_unavailable"), (503, "database_busy"), (409, "request_in_progress")}
#: The refusals that a command may meet.
DENIALS: dict[Kind, set[str]] = {
    Kind.CREATE: set(),
    Kind.RESERVE: {"budget_exceeded"},
    Kind.START: {"already_resolved", "already_started"},
    Kind.COMMIT: {"already_resolved"},
    Kind.VOID: {"already_resolved", "already_started"},
}


@dataclass(frozen=True)
class Command:
    """One command, the same each time that it is sent.

    Attributes:
        key: Its idempotency key; also the name of the budget, or the purpose of the reservation, that it makes.
        target: The budget in which to reserve, or the reservation to resolve.
        units: The limit, what is to be held, or what is to be charged; None: what is held.
    """

    key: str
    kind: Kind
    target: str = ""
    units: int | None = None

    @property
    def path(self) -> str:
        if self.kind is Kind.CREATE:
            return "/v1/budgets"
        if self.kind is Kind.RESERVE:
            return f"/v1/budgets/{self.target}/reservations"
        return f"/v1/reservations/{self.target}/{self.kind}"

    @property
    def body(self) -> Json | None:
        events = [{"mechanism": {"kind": "zcdp", "rho": float(RHO)}, "count": self.units}]
        if self.kind is Kind.CREATE:
            assert self.units is not None
            limit = {"kind": "zcdp", "rho": str(self.units * RHO)}
            return {"name": self.key, "neighboring_relation": "add_or_remove_one", "filter": limit}
        if self.kind is Kind.RESERVE:
            return {"events": events, "purpose": self.key}
        return {"events": events} if self.units is not None else None

    @property
    def effect(self) -> tuple[Kind, str]:
        """What happens at most once, whichever command asks for it."""
        return self.kind, self.key if self.kind in (Kind.CREATE, Kind.RESERVE) else self.target


@dataclass
class Exchange:
    """One sending of a command. Without an answer: no complete reply came."""

    command: Command
    answer: Answer | None = None
    first_byte_at: float = math.inf
    answered_at: float = math.inf

    @property
    def is_undecided(self) -> bool:
        """Whether the client still does not know what its command has done."""
        return self.answer is None or (self.answer.status_code, self.answer.code) in UNDECIDED

    def was_cut_off(self, moment: float) -> bool:
        """Whether the moment came between its first byte and its reply, and it then got no decision."""
        return self.first_byte_at < moment < self.answered_at and self.is_undecided


@dataclass
class History:
    """Everything that clients know.

    Attributes:
        exchanges: Every sending of every command.
        seen: Entries that somebody has read; they must stay as they were.
    """

    exchanges: list[Exchange] = field(default_factory=list)
    seen: list[Json] = field(default_factory=list)

    def sendings(self) -> dict[Command, list[Exchange]]:
        """The exchanges by command, in the order of their first sending."""
        found: defaultdict[Command, list[Exchange]] = defaultdict(list)
        for exchange in list(self.exchanges):
            found[exchange.command].append(exchange)
        return found

    def decisions(self) -> dict[Command, list[Answer]]:
        """The answers that decided each command; none where nobody knows."""
        return {
            command: [exchange.answer for exchange in exchanges if exchange.answer and not exchange.is_undecided]
            for command, exchanges in self.sendings().items()
        }

    def in_flight(self, moment: float) -> set[Command]:
        """Commands of which a sending was cut off at that moment, and which had not been decided before."""
        decided = {
            exchange.command
            for exchange in self.exchanges
            if exchange.answered_at < moment and not exchange.is_undecided
        }
        return {exchange.command for exchange in self.exchanges if exchange.was_cut_off(moment)} - decided

    def exchange(
        self, connection: Connection, command: Command, on_first_byte: Callable[[Exchange], None] = lambda _: None
    ) -> Exchange:
        """Send a command and keep what came of it.

        Raises:
            NoReply: none came; the exchange is kept without an answer.
        """
        exchange = Exchange(command)
        self.exchanges.append(exchange)

        def sent() -> None:
            exchange.first_byte_at = time.monotonic()
            on_first_byte(exchange)

        answer = connection.send("POST", command.path, command.body, command.key, on_first_byte=sent)
        exchange.answered_at = time.monotonic()
        exchange.answer = answer
        return exchange
