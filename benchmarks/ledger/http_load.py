"""This module has the requests to the ledger, and to the bare endpoints with which it is compared."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from benchmarks.http_load import Connection, Turn
from benchmarks.ledger import work


def bare_turn(path: str) -> Turn:
    """Return a turn that sends one request to a bare endpoint."""

    async def turn(connection: Connection, draw: random.Random, key: str) -> int:
        body = json.dumps({"purpose": "bench", "count": draw.randint(1, work.COUNTS)}).encode()
        await connection.post(path, body, key, 201)
        return 1

    return turn


def ledger_turn(budget_ids: Sequence[str]) -> Turn:
    """Return a turn that reserves in a random budget and commits: two requests."""

    async def turn(connection: Connection, draw: random.Random, key: str) -> int:
        events = [work.event_json(draw.randint(1, work.COUNTS))]
        body = json.dumps({"events": events, "purpose": "bench"}).encode()
        path = f"/v1/budgets/{draw.choice(budget_ids)}/reservations"
        reservation_id = json.loads(await connection.post(path, body, f"{key}-reserve", 201))["id"]
        await connection.post(f"/v1/reservations/{reservation_id}/commit", b"{}", f"{key}-commit", 200)
        return 2

    return turn
