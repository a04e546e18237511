"""Idempotent commands: one effect, the same answer again, and denials that stay."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from app.context import Context
from app.db.database import Database
from app.fence.watching import fence_of
from app.idempotency.once import Keyed, refuse, run_once
from app.idempotency.records import Answer
from app.problems import Problem
from app.tables.idempotency import IdempotencyRecord


def keyed(context: Context, principal: str = "a", key: str = "k", fingerprint: bytes = b"f") -> Keyed:
    return Keyed.of(context, principal, key, fingerprint)


def _records(context: Context) -> int:
    with context.database.read() as session:
        return session.scalar(select(func.count()).select_from(IdempotencyRecord)) or 0


def _count(session: Session) -> int:
    return session.scalar(text("SELECT count(*) FROM effects")) or 0


@pytest.fixture
def effects(context: Context) -> Callable[[], int]:
    """A table of effects; returns how many there are."""
    with context.database.write() as session:
        session.execute(text("CREATE TABLE effects (id integer)"))

    def count() -> int:
        with context.database.read() as session:
            return _count(session)

    return count


def _effect(session: Session) -> Answer:
    session.execute(text("INSERT INTO effects VALUES (1)"))
    return Answer(201, {"effects": _count(session)}, {"Location": "/x"}, shown_once={"secret": "s3cret"})


def test_a_conflict_rolls_the_effect_back_and_is_remembered(context: Context, effects: Callable[[], int]) -> None:
    def command(session: Session) -> Answer:
        _effect(session)
        raise Problem(409, "budget_exceeded", "no room", members={"cost": 1}, headers={})

    def other(session: Session) -> Answer:
        raise AssertionError("a denied key runs nothing")

    for run in (command, other, other):
        with pytest.raises(Problem) as caught:
            run_once(context, keyed(context), run)
        assert (caught.value.code, caught.value.members["cost"]) == ("budget_exceeded", 1)
        assert "decided_at" in caught.value.members
    assert effects() == 0


@pytest.mark.parametrize(
    "failure", [Problem(422, "x", "y"), Problem(404, "x", "y"), Problem(503, "x", "y"), ValueError()]
)
def test_any_other_failure_leaves_nothing(context: Context, effects: Callable[[], int], failure: Exception) -> None:
    def command(session: Session) -> Answer:
        _effect(session)
        raise failure

    with pytest.raises(type(failure)):
        run_once(context, keyed(context), command)
    assert (effects(), _records(context)) == (0, 0)
    assert run_once(context, keyed(context), _effect).body["effects"] == 1


def test_what_is_shown_once_is_never_stored(context: Context, effects: Callable[[], int]) -> None:
    first = run_once(context, keyed(context), _effect)
    again = run_once(context, keyed(context), _effect)
    assert first.body == {"effects": 1, "secret": "s3cret"}
    assert again == Answer(201, {"effects": 1}, {"Location": "/x", "Idempotency-Replayed": "true"})
    with context.database.read() as session:
        assert "s3cret" not in json.dumps(session.scalars(select(IdempotencyRecord)).one().answer)
    assert effects() == 1


def test_principals_have_keys_of_their_own(context: Context, effects: Callable[[], int]) -> None:
    run_once(context, keyed(context), _effect)
    run_once(context, keyed(context, "b", "k", b"other"), _effect)
    assert effects() == 2


def test_prepare_runs_before_the_transaction_and_not_for_a_replay(context: Context, effects: Callable[[], int]) -> None:
    calls: list[int] = []

    def prepare() -> None:
        with context.database.write() as session:  # would deadlock on SQLite inside the command's transaction
            calls.append(_count(session))

    for _ in range(3):
        run_once(context, keyed(context), _effect, prepare)
    assert calls == [0]
    with pytest.raises(Problem, match="used for another request"):
        run_once(context, keyed(context, "a", "k", b"g"), _effect, prepare)


def test_a_conflict_in_prepare_is_not_remembered(context: Context, effects: Callable[[], int]) -> None:
    def prepare() -> None:
        raise Problem(409, "busy", "try later")

    with pytest.raises(Problem):
        run_once(context, keyed(context), _effect, prepare)
    assert run_once(context, keyed(context), _effect).status == 201


def _another_process(context: Context, lock_timeout_s: int = 30) -> Context:
    """The context of a process that shares nothing with this one but the database and the secret."""
    other = replace(context, database=Database(context.database.url, lock_timeout_s))
    fence_of(other)
    return other


def test_requests_at_once_with_one_key_in_several_processes_have_one_effect(
    context: Context, effects: Callable[[], int]
) -> None:
    answers: list[Answer] = []
    barrier = threading.Barrier(6)

    def send() -> None:
        process = _another_process(context)
        barrier.wait()
        answers.append(run_once(process, keyed(process), _effect))
        process.database.dispose()

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert effects() == 1
    assert len(answers) == 6
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) == 5
    assert {answer.body["effects"] for answer in answers} == {1}


def test_of_two_processes_at_one_key_the_first_to_commit_is_carried_out(
    context: Context, effects: Callable[[], int]
) -> None:
    impatient = _another_process(context, lock_timeout_s=1)
    running, done = threading.Event(), threading.Event()
    answers: list[Answer] = []

    def slow(session: Session) -> Answer:
        running.set()
        assert done.wait(30)
        return _effect(session)

    twin = threading.Thread(target=lambda: answers.append(run_once(context, keyed(context), slow)))
    twin.start()
    try:
        assert running.wait(30)
        if context.database.is_sqlite:  # it has one writer at a time
            with pytest.raises(Problem, match="The database is busy"):
                run_once(impatient, keyed(impatient), _effect)
        else:
            answers.append(run_once(impatient, keyed(impatient), _effect))
    finally:
        done.set()
        twin.join()
        impatient.database.dispose()
    assert effects() == 1
    answers.append(run_once(context, keyed(context), _effect))
    assert ["Idempotency-Replayed" in answer.headers for answer in answers] == [False, *[True] * (len(answers) - 1)]
    assert {answer.body["effects"] for answer in answers} == {1}


def test_a_lock_that_is_not_given_in_time_changes_nothing(context: Context, effects: Callable[[], int]) -> None:
    impatient = _another_process(context, lock_timeout_s=1)

    def locking(session: Session) -> Answer:
        if not context.database.is_sqlite:
            session.execute(text("LOCK TABLE effects"))
        return _effect(session)

    try:
        with context.database.write() as session:
            session.execute(text("INSERT INTO effects VALUES (0)"))
            with pytest.raises(Problem) as caught:
                run_once(impatient, keyed(impatient), locking)
        assert (caught.value.status, caught.value.code) == (503, "database_busy")
        assert caught.value.headers == {"Retry-After": "1"}
    finally:
        impatient.database.dispose()
    assert (effects(), _records(context)) == (1, 0)


def test_a_twin_does_not_prepare_a_second_time(context: Context, effects: Callable[[], int]) -> None:
    calls: list[str] = []
    running, done = threading.Event(), threading.Event()

    def slow() -> None:
        calls.append("first")
        running.set()
        assert done.wait(30)

    first = threading.Thread(target=run_once, args=(context, keyed(context), _effect, slow))
    first.start()
    try:
        assert running.wait(30)
        for fingerprint in (b"f", b"g"):
            with pytest.raises(Problem) as caught:
                run_once(context, keyed(context, "a", "k", fingerprint), _effect, lambda: calls.append("twin"))
            assert (caught.value.status, caught.value.code) == (409, "request_in_progress")
        run_once(context, keyed(context, "a", "another key", b"f"), _effect, lambda: calls.append("another key"))
        run_once(context, keyed(context, "b", "k", b"f"), _effect, lambda: calls.append("another principal"))
    finally:
        done.set()
        first.join()
    assert calls == ["first", "another key", "another principal"]
    assert effects() == 3
    assert run_once(context, keyed(context), _effect).headers["Idempotency-Replayed"] == "true"


def test_an_answer_is_replayed_while_another_replay_is_at_the_key(context: Context, effects: Callable[[], int]) -> None:
    answers: list[Answer] = []

    def prepare() -> None:
        # Another process answers; then this one is asked again, before it has left the key.
        process = _another_process(context)
        run_once(process, keyed(process), _effect)
        process.database.dispose()
        answers.append(run_once(context, keyed(context), _effect))

    answers.append(run_once(context, keyed(context), _effect, prepare))
    assert [answer.headers.get("Idempotency-Replayed") for answer in answers] == ["true", "true"]
    assert effects() == 1


def test_a_failed_preparation_yields_to_the_answer_of_another_process(
    context: Context, effects: Callable[[], int]
) -> None:
    def prepare() -> None:
        process = _another_process(context)
        run_once(process, keyed(process), _effect)
        process.database.dispose()
        raise Problem(409, "busy", "the other process has it")

    answer = run_once(context, keyed(context), _effect, prepare)
    assert (answer.status, answer.body, effects()) == (201, {"effects": 1}, 1)
    with pytest.raises(Problem, match="used for another request"):
        run_once(context, keyed(context, "a", "k", b"g"), _effect, prepare)


@pytest.mark.parametrize("status", [404, 409, 422])
@pytest.mark.parametrize("databases", ["postgresql"], indirect=True)
def test_a_refusal_yields_to_the_answer_of_another_process(
    context: Context, effects: Callable[[], int], status: int
) -> None:
    """What the other process did may be what stands in the way; on SQLite it cannot come in between."""

    def command(session: Session) -> Answer:
        process = _another_process(context)
        run_once(process, keyed(process), _effect)
        process.database.dispose()
        raise Problem(status, "in_the_way", "the other process has it")

    answer = run_once(context, keyed(context), command)
    assert (answer.status, answer.body, effects()) == (201, {"effects": 1}, 1)
    assert answer.headers["Idempotency-Replayed"] == "true"


def test_a_denial_that_was_decided_elsewhere_is_remembered_unless_there_is_an_answer(
    context: Context, effects: Callable[[], int]
) -> None:
    denial = Problem(409, "budget_exceeded", "no room", members={"cost": 1})
    for _ in range(2):
        with pytest.raises(Problem) as caught:
            refuse(context, keyed(context), denial)
        assert {**caught.value.members, "decided_at": ""} == {"cost": 1, "decided_at": ""}
    with pytest.raises(Problem, match="no room"):
        run_once(context, keyed(context), _effect)
    run_once(context, keyed(context, key="other"), _effect)
    answer = refuse(context, keyed(context, key="other"), denial)
    assert (answer.status, answer.body, effects()) == (201, {"effects": 1}, 1)
