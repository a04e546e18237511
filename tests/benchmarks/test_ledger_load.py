"""The processes that make the load: they begin together, count what was answered, and hide no failure."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import http_servers
from benchmarks.http_load import Connection, load
from benchmarks.ledger import work
from benchmarks.ledger.hot_budget import fills_exactly
from benchmarks.ledger.http_load import ledger_turn
from benchmarks.ledger.processes import Gate, at_once
from tests.databases import DatabaseFactory


def late(gate: Gate, seconds: float) -> tuple[float, float]:
    time.sleep(seconds)
    ready = time.monotonic()
    gate()
    return ready, time.monotonic()


def failing(gate: Gate, fails: bool) -> None:
    if fails:
        raise LookupError("on purpose")
    gate()


def vanishing(_gate: Gate) -> None:
    os._exit(1)


@pytest.mark.thorough
def test_nobody_begins_before_all_are_ready() -> None:
    moments = at_once(late, [(0.0,), (0.3,)])
    assert min(began for _, began in moments) >= max(ready for ready, _ in moments)
    assert moments[0][0] < moments[1][0], "the answers are in the order of the arguments"


def test_a_process_that_fails_fails_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="failed") as caught:
        at_once(failing, [(False,), (True,)])
    assert "on purpose" in repr(caught.value.__cause__) or "Broken" in repr(caught.value.__cause__)


def test_a_process_that_vanishes_fails_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="ended without an answer"):
        at_once(vanishing, [()])


def answer_to_one_post(chunks: Sequence[bytes], status: int = 201) -> bytes:
    """What a connection makes of an answer that arrives in these pieces."""

    def serve(listening: socket.socket) -> None:
        with listening.accept()[0] as connected:
            received = b""
            while not received.endswith(b"\r\n\r\n{}"):
                received += connected.recv(4096)
            for chunk in chunks:
                connected.sendall(chunk)
                time.sleep(0.01)

    async def ask(port: int) -> bytes:
        connection = await Connection.open(port)
        try:
            return await connection.post("/", b"{}", "key", status)
        finally:
            connection.close()

    with socket.create_server((http_servers.HOST, 0)) as listening, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve, listening)
        try:
            return asyncio.run(ask(listening.getsockname()[1]))
        finally:
            served.result(10)


HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
BODY = b'{"id": 1}'


@pytest.mark.parametrize(
    "chunks",
    [
        [HEAD + BODY],
        [HEAD, BODY],
        [HEAD[:20], HEAD[20:-2], HEAD[-2:] + BODY[:1], BODY[1:]],
        [HEAD + BODY[:-1], BODY[-1:]],
    ],
)
def test_an_answer_is_read_whole_however_it_arrives(chunks: list[bytes]) -> None:
    assert answer_to_one_post(chunks) == BODY


@pytest.mark.parametrize("chunks", [[HEAD[:30]], [HEAD + BODY[:5]]])
def test_an_answer_that_breaks_off_is_an_error(chunks: list[bytes]) -> None:
    with pytest.raises(RuntimeError, match="hung up"):
        answer_to_one_post(chunks)


def test_an_answer_with_another_status_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="201"):
        answer_to_one_post([HEAD + BODY], status=200)


@pytest.mark.thorough
def test_the_requests_that_are_counted_are_entries_of_the_ledger(
    sqlite_databases: DatabaseFactory, tmp_path: Path
) -> None:
    with http_servers.service(sqlite_databases.migrated(), tmp_path) as server, http_servers.client(server) as client:
        budget_id = client.post("/v1/budgets", work.budget_request("zcdp", 1000.0), 201)["id"]
        (loaded,) = at_once(load, [(server.port, ledger_turn, [budget_id], 0.5, 1)])
        page = client.get(f"/v1/budgets/{budget_id}/entries?limit=200")
        entries = len(page["items"])
        while page["next_cursor"]:
            page = client.get(f"/v1/budgets/{budget_id}/entries?limit=200&cursor={page['next_cursor']}")
            entries += len(page["items"])
    assert loaded.requests > 0
    # One made the budget; the load's warm-up made some, too. A replay would be counted and leave no entry.
    assert entries > loaded.requests + 1


def test_a_full_budget_holds_exactly_what_fits() -> None:
    privacy_filter = work.privacy_filter("zcdp", 0.002)  # ten queries
    used = (2_000_000,)
    assert fills_exactly(privacy_filter, [4, 6], used)
    assert not fills_exactly(privacy_filter, [4, 5], (1_800_000,)), "there is room for one more"
    assert not fills_exactly(privacy_filter, [4, 7], (2_200_000,)), "one too many"
    assert not fills_exactly(privacy_filter, [4, 6], (1_800_000,)), "the ledger says something else"
