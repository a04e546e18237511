"""Places are given in turn: a caller's long queue is in nobody's way, and few threads wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context

import pytest

from app.kit.caller import CALLER
from app.kit.fair_gate import FairGate
from app.problems import Problem

PATIENCE_S = 30.0


class Crowd:
    """Callers at a gate of one place: each who gets it says its name, and waits to be told to go."""

    def __init__(self, most_waiting: int = 100, seconds: float = PATIENCE_S) -> None:
        self.gate = FairGate(1, most_waiting, seconds)
        self.served: list[str] = []
        self._go = threading.Semaphore(0)
        self._threads = ThreadPoolExecutor(64)

    def comes(self, name: str) -> Future[None]:
        """Somebody comes, and waits or is served; the name's first letter is the caller."""
        before = self.gate.waiting + len(self.served) + self.gate.refused
        context = copy_context()
        context.run(CALLER.set, name[0])
        sent = self._threads.submit(context.run, self._pass, name)
        until(lambda: self.gate.waiting + len(self.served) + self.gate.refused > before or sent.done())
        return sent

    def serve_all(self) -> list[str]:
        for _ in range(100):
            self._go.release()
        self._threads.shutdown()
        return self.served

    def serve_one(self) -> None:
        before = len(self.served)
        self._go.release()
        until(lambda: len(self.served) > before)

    def _pass(self, name: str) -> None:
        with self.gate:
            self.served.append(name)
            assert self._go.acquire(timeout=PATIENCE_S)


def until(holds: Callable[[], bool]) -> None:
    """Wait for other threads, as long as they may take."""
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.0005)


def test_callers_take_turns() -> None:
    crowd = Crowd()
    for name in ("a0", "a1", "a2", "a3", "b1", "c1", "b2"):
        crowd.comes(name)
    assert crowd.serve_all() == ["a0", "a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_single_request_waits_for_one_of_another_caller_at_most() -> None:
    crowd = Crowd()
    for number in range(40):
        crowd.comes(f"a{number:02}")
    crowd.serve_one()
    crowd.comes("b")
    crowd.serve_all()
    assert crowd.served.index("b") == 3


def test_nobody_passes() -> None:
    crowd = Crowd()
    names = [f"a{number}" for number in range(9)]
    for name in names:
        crowd.comes(name)
    assert crowd.serve_all() == names


def test_places_go_back_and_are_counted() -> None:
    gate = FairGate(2, 5, PATIENCE_S)
    with gate, gate:
        assert (gate.running, gate.waiting) == (2, 0)
    assert gate.running == 0
    with pytest.raises(KeyError), gate:
        raise KeyError
    assert gate.running == 0


def refusal(sent: Future[None]) -> tuple[int, str, str]:
    error = sent.exception(PATIENCE_S)
    assert isinstance(error, Problem)
    return error.status, error.code, error.headers["Retry-After"]


def test_who_comes_to_a_full_gate_with_the_most_waiting_is_refused() -> None:
    crowd = Crowd(most_waiting=3)
    for name in ("a0", "a1", "a2", "a3"):
        crowd.comes(name)
    assert refusal(crowd.comes("a4")) == (429, "too_many_waiting", "2")
    assert crowd.gate.refused == 1
    assert crowd.serve_all() == ["a0", "a1", "a2", "a3"]


def test_the_longest_queue_gives_way() -> None:
    crowd = Crowd(most_waiting=3)
    sent = {name: crowd.comes(name) for name in ("a0", "a1", "a2", "a3")}
    crowd.comes("b1")
    assert refusal(sent["a3"]) == (429, "too_many_waiting", "2")
    assert crowd.serve_all() == ["a0", "a1", "b1", "a2"]


def test_where_everybody_has_one_waiting_nobody_is_turned_out() -> None:
    crowd = Crowd(most_waiting=2)
    for name in ("a0", "b1", "c1"):
        crowd.comes(name)
    assert refusal(crowd.comes("d1")) == (503, "numerics_busy", "2")
    assert crowd.serve_all() == ["a0", "b1", "c1"]


def test_nobody_waits_for_ever_and_who_leaves_is_forgotten() -> None:
    gate = FairGate(1, 5, seconds=0.0)
    with gate:
        with pytest.raises(Problem) as refused, gate:
            pass
        assert (refused.value.status, refused.value.code) == (503, "numerics_busy")
        assert (gate.waiting, gate.refused) == (0, 1)
    with gate:
        assert gate.running == 1


def test_no_place_is_lost_or_made_whatever_happens() -> None:
    gate = FairGate(2, 4, seconds=0.001)
    inside, most = 0, 0
    lock = threading.Lock()

    def visit(number: int) -> None:
        nonlocal inside, most
        CALLER.set(f"caller{number % 5}")
        try:
            with gate:
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.0005)
                with lock:
                    inside -= 1
        except Problem:
            pass

    with ThreadPoolExecutor(16) as threads:
        for each in [threads.submit(copy_context().run, visit, number) for number in range(400)]:
            each.result()
    assert most <= 2
    assert (gate.running, gate.waiting) == (0, 0)
