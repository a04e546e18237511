"""Orders of runs: each is sent under one key until it is acknowledged, whatever is killed meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.crash.connection import Connection, NoReply
from tests.crash.history import UNDECIDED, Json
from tests.crash.server_process import ServerProcess

#: Every so many orders one is sent again after its answer, as by a client that did not hear it.
SENT_TWICE = 10
# How long a client waits before it sends an order again.
PAUSE_S = 0.05
PATIENCE_S = 120


@dataclass
class Order:
    """One run that somebody wants.

    Attributes:
        key: Its idempotency key.
        body: What is sent.
        twin: Names the undisturbed order whose model this one must have, to the last bit; None where the noise is
            nobody's to choose.
        run_ids: The runs that the answers named; there must be one.
    """

    key: str
    body: Json
    twin: str | None = None
    run_ids: set[str] = field(default_factory=set)

    @property
    def run_id(self) -> str:
        [run_id] = self.run_ids
        return run_id


@contextmanager
def sending(server: ServerProcess, orders: Iterable[Order]) -> Iterator[threading.Thread]:
    """Send the orders beside the block, which may kill the server; all are acknowledged when it ends.

    Raises:
        AssertionError: an order was refused, or the server was away for too long.
    """
    faults: list[BaseException] = []

    def send() -> None:
        try:
            _send_all(server, orders)
        except BaseException as fault:  # raised in the thread that waits
            faults.append(fault)

    thread = threading.Thread(target=send, name="orders", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_S)
    if faults:
        raise faults[0]
    assert not thread.is_alive(), "not all orders are acknowledged"


def _send_all(server: ServerProcess, orders: Iterable[Order]) -> None:
    connection: Connection | None = None
    try:
        for number, order in enumerate(orders):
            wanted, deadline = 1 + (number % SENT_TWICE == 0), time.monotonic() + PATIENCE_S
            while wanted:
                try:
                    # A server that was started again has another address.
                    connection = connection or Connection(server.address)
                    wanted -= _send(connection, order)
                except (NoReply, OSError):
                    assert time.monotonic() < deadline, "the server does not come back"
                    if connection is not None:
                        connection.close()
                    connection = None
                    time.sleep(PAUSE_S)
    finally:
        if connection is not None:
            connection.close()


def _send(connection: Connection, order: Order) -> bool:
    """Send an order once; False where the answer decides nothing."""
    answer = connection.send("POST", "/v1/runs", order.body, order.key)
    if (answer.status_code, answer.code) in UNDECIDED:
        time.sleep(PAUSE_S)
        return False
    assert answer.status_code == 202, answer
    order.run_ids.add(answer.json()["id"])
    return True
