"""What the service shows of its ledger, read over HTTP: the auditor looks at nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tests.crash.connection import Connection

Json = dict[str, Any]
PAGE = 200
NANO = 10**9


@dataclass
class BudgetView:
    """One budget as the service shows it.

    Attributes:
        budget: The answer of `GET /v1/budgets/{id}`.
        entries: Its entries, oldest first.
        reservations: Its reservations.
    """

    budget: Json
    entries: list[Json]
    reservations: list[Json]


def read_ledger(connection: Connection, name: str = "") -> list[BudgetView]:
    """Every budget whose name begins with ``name``."""
    budgets = [budget for budget in read_list(connection, "/v1/budgets") if budget["name"].startswith(name)]
    return [
        BudgetView(
            budget=_read(connection, f"/v1/budgets/{budget['id']}"),
            entries=read_list(connection, f"/v1/budgets/{budget['id']}/entries"),
            reservations=read_list(connection, f"/v1/budgets/{budget['id']}/reservations"),
        )
        for budget in budgets
    ]


def read_list(connection: Connection, path: str) -> list[Json]:
    """All pages of a list."""
    items: list[Json] = []
    cursor = ""
    while True:
        page = _read(connection, f"{path}?limit={PAGE}{cursor}")
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        cursor = f"&cursor={page['next_cursor']}"


def nano_units(amount: Json) -> int:
    """The rho of an amount in nano-units, exactly."""
    nano = Decimal(amount["rho"]) * NANO
    assert nano == int(nano), f"{amount} is not a whole number of nano-units"
    return int(nano)


def _read(connection: Connection, path: str) -> Json:
    answer = connection.get(path)
    assert answer.status_code == 200, (path, answer)
    body: Json = answer.json()
    return body
