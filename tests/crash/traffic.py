"""Several clients at once that reserve, start, commit and void in small budgets, and send some keys again."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from tests.crash.connection import Address, Connection, NoReply
from tests.crash.history import UNDECIDED, Command, Exchange, History, Kind
from tests.crash.ledger_view import PAGE

CLIENTS = 4
#: Reservations of 1 to `MOST_HELD` units in budgets of so many: about as many are denied as admitted.
LIMITS = (3, 12)
MOST_HELD = 4
WAIT_S = 60
# How long a client waits after an answer that decides nothing.
PAUSE_S = 0.2


class Traffic:
    """The clients and what they do next.

    Args:
        address: The server.
        name: Every key of this traffic begins with it.
        history: Where everything is kept.
        random_numbers: Draws the commands.
    """

    def __init__(self, address: Address, name: str, history: History, random_numbers: random.Random) -> None:
        self._address = address
        self._name = name
        self._history = history
        self._random = random_numbers
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._is_armed = False
        self._marked: Future[Exchange] = Future()
        self._number = 0
        self._budgets: list[str] = []
        # With what is held, in the order of their making.
        self._reservations: list[tuple[str, int]] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the clients send until the block ends, or until they are no longer answered."""
        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(self._send_until_stopped) for _ in range(CLIENTS)]
            try:
                yield
            finally:
                self._stop.set()
        for client in clients:
            client.result()

    def wait_for_decisions(self, count: int) -> None:
        """Until so many more commands are decided."""
        enough = self._decided() + count
        deadline = time.monotonic() + WAIT_S
        while self._decided() < enough:
            assert time.monotonic() < deadline, (enough, self._history.exchanges[-CLIENTS:])
            time.sleep(0.01)

    def typical_duration(self) -> float:
        """Median time from the first byte of a request to its reply, in seconds."""
        return statistics.median(
            exchange.answered_at - exchange.first_byte_at
            for exchange in list(self._history.exchanges)
            if exchange.answer is not None
        )

    def mark_next(self) -> Exchange:
        """The next exchange of any client, as soon as its first byte is sent."""
        self._is_armed = True
        return self._marked.result(WAIT_S)

    def _decided(self) -> int:
        return sum(not exchange.is_undecided for exchange in list(self._history.exchanges))

    def _first_byte(self, exchange: Exchange) -> None:
        if self._is_armed:
            with self._lock:
                if not self._marked.done():
                    self._marked.set_result(exchange)

    def _send_until_stopped(self) -> None:
        try:
            with Connection(self._address) as connection:
                while not self._stop.is_set():
                    if self._draw(0.05):
                        self._read_entries(connection)
                        continue
                    exchange = self._history.exchange(connection, self._next_command(), self._first_byte)
                    if exchange.is_undecided:
                        time.sleep(PAUSE_S)
                    else:
                        self._learn(exchange)
        except (NoReply, ConnectionRefusedError):
            pass

    def _draw(self, probability: float) -> bool:
        with self._lock:
            return self._random.random() < probability

    def _next_command(self) -> Command:
        with self._lock:
            draw, self._number = self._random.random(), self._number + 1
            key = f"{self._name} command {self._number}"
            if len(self._budgets) < 2 or draw < 0.05:
                return Command(key, Kind.CREATE, units=self._random.randint(*LIMITS))
            if draw < 0.15:
                return self._random.choice(self._history.exchanges).command
            if draw < 0.55 or not self._reservations:
                # A new budget has room, an older one has denials.
                target = self._random.choice(self._budgets[-3:])
                return Command(key, Kind.RESERVE, target, self._random.randint(1, MOST_HELD))
            # Recent ones, so that several clients are at the same one and one of them is too late.
            target, held = self._random.choice(self._reservations[-6:])
            kind = self._random.choice((Kind.START, Kind.COMMIT, Kind.COMMIT, Kind.VOID))
            is_part = kind is Kind.COMMIT and self._random.random() < 0.5
            return Command(key, kind, target, self._random.randint(1, held) if is_part else None)

    def _learn(self, exchange: Exchange) -> None:
        command, answer = exchange.command, exchange.answer
        if answer is None or not answer.is_success or answer.is_replayed:
            return
        with self._lock:
            if command.kind is Kind.CREATE:
                self._budgets.append(answer.json()["id"])
            elif command.kind is Kind.RESERVE:
                assert command.units is not None
                self._reservations.append((answer.json()["id"], command.units))

    def _read_entries(self, connection: Connection) -> None:
        with self._lock:
            budget = self._random.choice(self._budgets) if self._budgets else None
        if budget is None:
            return
        answer = connection.get(f"/v1/budgets/{budget}/entries?limit={PAGE}")
        if answer.is_success:
            self._history.seen += answer.json()["items"]
        else:
            assert (answer.status_code, answer.code) in UNDECIDED, answer
            time.sleep(PAUSE_S)
