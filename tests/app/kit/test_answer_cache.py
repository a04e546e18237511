"""Answers are remembered for the very question, within bounds, and found once; nothing else is ever answered."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.kit.answer_cache import ENTRY_BYTES, AnswerCache, Finding, Source
from app.problems import Problem, unprocessable

MIB = 2**20


def cache(entries: int = 10, size_bytes: int = MIB, version: str = "2") -> AnswerCache:
    return AnswerCache(entries, size_bytes, version)


def ask(found: AnswerCache, asked: Any, text: bytes = b"{}", *, is_final: bool = True, call: str = "/v1/c") -> Source:
    """Ask once; the text is what computing would give."""
    spelling = found.spelling(call, json.dumps(asked).encode())
    _, source = asyncio.run(found.answer(found.key(call, asked), spelling, lambda: Finding(text, is_final)))
    return source


SPEC = {
    "events": [
        {"mechanism": {"kind": "gaussian", "noise_multiplier": 1.5}, "sampling": {"kind": "poisson"}, "count": 3}
    ],
    "neighboring_relation": "add_or_remove_one",
    "delta": 1e-5,
}


def test_an_equal_question_is_answered_from_memory() -> None:
    found = cache()
    assert ask(found, SPEC, b"1") == Source.STORED
    assert ask(found, SPEC, b"2") == Source.HIT
    assert found.known(found.spelling("/v1/c", json.dumps(SPEC).encode())) == b"1"
    assert (found.hits, found.misses, len(found)) == (2, 1, 1)


def test_other_ways_to_write_it_are_equal() -> None:
    found = cache()
    ask(found, {"count": 3, "sigma": 2.0, "list": [1, {"a": 1, "b": 2}]})
    assert ask(found, {"list": [1.0, {"b": 2.0, "a": 1}], "sigma": 2, "count": 3.0}) == Source.HIT


@pytest.mark.parametrize(
    "other",
    [
        {"count": 3.0000000000000004},
        {"count": "3"},
        {"count": True},
        {"count": None},
        {"count": [3]},
        {"counts": 3},
        {"count": 3, "more": None},
        {},
    ],
)
def test_another_question_never_answers(other: Any) -> None:
    found = cache()
    ask(found, {"count": 3}, b"three")
    assert ask(found, other, b"other") == Source.STORED
    assert ask(found, {"count": 1}) == Source.STORED
    assert ask(found, {"count": True}) != Source.HIT or other == {"count": True}
    assert found.key("/v1/c", {"zero": 0.0}) != found.key("/v1/c", {"zero": -0.0})


def test_another_call_or_engine_never_answers() -> None:
    first, second = cache(version="2"), cache(version="3")
    body = json.dumps(SPEC).encode()
    keys = {first.key("/v1/c", SPEC), second.key("/v1/c", SPEC), first.key("/v1/d", SPEC)}
    spellings = {first.spelling("/v1/c", body), second.spelling("/v1/c", body), first.spelling("/v1/d", body)}
    assert len(keys) == len(spellings) == 3


def test_the_least_recently_asked_goes_first() -> None:
    found = cache(entries=3)
    for number in range(3):
        ask(found, number)
    assert ask(found, 0) == Source.HIT
    ask(found, 3)
    assert [ask(found, number) for number in (0, 2, 3)] == [Source.HIT] * 3
    assert ask(found, 1) == Source.STORED
    assert (len(found), found.evictions) == (3, 2)
    assert found.known(found.spelling("/v1/c", b"0")) is None, "what was evicted is not found by its words either"


def test_it_stays_within_its_bytes() -> None:
    found = cache(entries=1000, size_bytes=20 * (ENTRY_BYTES + 500))
    for number in range(100):
        ask(found, number, b"x" * 500)
        assert found.held_bytes <= found.size_bytes
    assert len(found) == 20
    assert ask(found, "large", b"x" * 2000) == Source.NOT_STORED
    assert len(found) == 20


def test_words_that_lead_to_an_entry_are_bounded_too() -> None:
    found = cache(entries=2)
    for spaces in range(50):
        key, spelling = found.key("/v1/c", SPEC), found.spelling("/v1/c", b" " * spaces)
        asyncio.run(found.answer(key, spelling, lambda: Finding(b"", True)))
    assert found.known(found.spelling("/v1/c", b"")) is None
    assert found.known(found.spelling("/v1/c", b" " * 49)) == b""


def test_what_is_not_final_is_given_and_not_remembered() -> None:
    found = cache()
    assert ask(found, SPEC, is_final=False) == Source.NOT_STORED
    assert ask(found, SPEC) == Source.STORED


def test_failures_are_not_remembered() -> None:
    found = cache()

    def fail() -> Finding:
        raise unprocessable("too_much_work", "it took too long")

    for _ in range(2):
        with pytest.raises(Problem):
            asyncio.run(found.answer(found.key("/v1/c", SPEC), None, fail))
    assert found.misses == 2
    assert ask(found, SPEC) == Source.STORED


async def at_once(
    found: AnswerCache, compute: Callable[[], Finding], release: Callable[[], None], count: int
) -> list[Any]:
    key = found.key("/v1/c", SPEC)
    sent = [asyncio.create_task(found.answer(key, None, compute)) for _ in range(count)]
    while found.misses == 0:
        await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    release()
    return await asyncio.gather(*sent, return_exceptions=True)


def test_one_computation_for_equal_questions_at_once() -> None:
    found, released, calls = cache(), threading.Event(), []

    def compute() -> Finding:
        calls.append(1)
        assert released.wait(30)
        return Finding(b"once", True)

    answers = asyncio.run(at_once(found, compute, released.set, 200))
    assert len(calls) == 1
    assert {text for text, _ in answers} == {b"once"}
    assert [source for _, source in answers].count(Source.COLLAPSED) == 199


def test_a_refusal_of_what_was_asked_is_everybodys_who_asked_it_then() -> None:
    found, released, calls = cache(), threading.Event(), []

    def compute() -> Finding:
        calls.append(1)
        assert released.wait(30)
        raise unprocessable("unreachable_target", "no noise is enough", "target")

    answers = asyncio.run(at_once(found, compute, released.set, 5))
    assert {answer.code for answer in answers} == {"unreachable_target"}
    assert len(calls) == 1


@pytest.mark.parametrize(
    "failure",
    [
        Problem(429, "too_many_waiting", "yours are the most"),
        Problem(503, "numerics_busy", "every core is busy"),
        RuntimeError("a fault of ours"),
    ],
)
def test_who_was_refused_for_want_of_room_or_met_a_fault_takes_nobody_with_it(failure: Exception) -> None:
    found, released, calls = cache(), threading.Event(), []

    def compute() -> Finding:
        calls.append(1)
        assert released.wait(30)
        if len(calls) == 1:
            raise failure
        return Finding(b"later", True)

    first, *others = asyncio.run(at_once(found, compute, released.set, 5))
    assert first is failure
    assert {text for text, _ in others} == {b"later"}
    assert len(calls) == 2


def test_who_stops_waiting_stops_nobody() -> None:
    found, released = cache(), threading.Event()

    def compute() -> Finding:
        assert released.wait(30)
        return Finding(b"whole", True)

    async def leave() -> list[Any]:
        key = found.key("/v1/c", SPEC)
        sent = [asyncio.create_task(found.answer(key, None, compute)) for _ in range(3)]
        while found.misses == 0:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        sent[1].cancel()
        await asyncio.sleep(0)
        released.set()
        return await asyncio.gather(*sent, return_exceptions=True)

    first, second, third = asyncio.run(leave())
    assert first[0] == third[0] == b"whole"
    assert isinstance(second, asyncio.CancelledError)


def test_threads_with_loops_of_their_own_share_it() -> None:
    found = cache(entries=50)

    def visit(number: int) -> bytes:
        key = found.key("/v1/c", number % 60)
        text, _ = asyncio.run(found.answer(key, None, lambda: Finding(str(number % 60).encode(), True)))
        return text

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(visit, range(300))) == [str(number % 60).encode() for number in range(300)]
    assert len(found) <= 50
    assert found.held_bytes <= found.size_bytes
