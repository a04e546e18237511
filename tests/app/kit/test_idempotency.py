"""Idempotent commands: one effect, the same answer again, and denials that stay."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from app.db.database import Database
from app.kit.context import Context
from app.kit.idempotency import Answer, IdempotencyRecord, UnfinishedProblem, run_once
from app.problems import Problem


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
            run_once(context, "a", "k", b"f", run)
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
        run_once(context, "a", "k", b"f", command)
    assert (effects(), _records(context)) == (0, 0)
    assert run_once(context, "a", "k", b"f", _effect).body["effects"] == 1


def test_what_is_shown_once_is_never_stored(context: Context, effects: Callable[[], int]) -> None:
    first = run_once(context, "a", "k", b"f", _effect)
    again = run_once(context, "a", "k", b"f", _effect)
    assert first.body == {"effects": 1, "secret": "s3cret"}
    assert again == Answer(201, {"effects": 1}, {"Location": "/x", "Idempotency-Replayed": "true"})
    with context.database.read() as session:
        assert "s3cret" not in json.dumps(session.scalars(select(IdempotencyRecord)).one().answer)
    assert effects() == 1


def test_principals_have_keys_of_their_own(context: Context, effects: Callable[[], int]) -> None:
    run_once(context, "a", "k", b"f", _effect)
    run_once(context, "b", "k", b"other", _effect)
    assert effects() == 2


def test_prepare_runs_before_the_transaction_and_not_for_a_replay(context: Context, effects: Callable[[], int]) -> None:
    calls: list[int] = []

    def prepare() -> None:
        with context.database.write() as session:  # would deadlock on SQLite inside the command's transaction
            calls.append(_count(session))

    for _ in range(3):
        run_once(context, "a", "k", b"f", _effect, prepare)
    assert calls == [0]
    with pytest.raises(Problem, match="used for another request"):
        run_once(context, "a", "k", b"g", _effect, prepare)


def test_a_conflict_in_prepare_is_not_remembered(context: Context, effects: Callable[[], int]) -> None:
    def prepare() -> None:
        raise Problem(409, "busy", "try later")

    with pytest.raises(Problem):
        run_once(context, "a", "k", b"f", _effect, prepare)
    assert run_once(context, "a", "k", b"f", _effect).status == 201


def _another_process(context: Context, lock_timeout_s: int = 30) -> Context:
    """The context of a process that shares nothing with this one but the database and the secret."""
    return replace(context, database=Database(context.database.url, lock_timeout_s))


def test_requests_at_once_with_one_key_in_several_processes_have_one_effect(
    context: Context, effects: Callable[[], int]
) -> None:
    answers: list[Answer] = []
    barrier = threading.Barrier(6)

    def send() -> None:
        process = _another_process(context)
        barrier.wait()
        answers.append(run_once(process, "a", "k", b"f", _effect))
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


def test_a_request_whose_twin_does_not_finish_is_told_so(context: Context, effects: Callable[[], int]) -> None:
    impatient = _another_process(context, lock_timeout_s=1)
    running, done = threading.Event(), threading.Event()

    def slow(session: Session) -> Answer:
        running.set()
        assert done.wait(30)
        return _effect(session)

    twin = threading.Thread(target=run_once, args=(context, "a", "k", b"f", slow))
    twin.start()
    try:
        assert running.wait(30)
        with pytest.raises(Problem) as caught:
            run_once(impatient, "a", "k", b"f", _effect)
        # SQLite has one writer at a time, so there nobody knows whose lock it is.
        expected = (503, "database_busy") if context.database.is_sqlite else (409, "request_in_progress")
        assert (caught.value.status, caught.value.code) == expected
    finally:
        done.set()
        twin.join()
        impatient.database.dispose()
    assert effects() == 1
    assert run_once(context, "a", "k", b"f", _effect).headers["Idempotency-Replayed"] == "true"


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
                run_once(impatient, "a", "k", b"f", locking)
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

    first = threading.Thread(target=run_once, args=(context, "a", "k", b"f", _effect, slow))
    first.start()
    try:
        assert running.wait(30)
        for fingerprint in (b"f", b"g"):
            with pytest.raises(Problem) as caught:
                run_once(context, "a", "k", fingerprint, _effect, lambda: calls.append("twin"))
            assert (caught.value.status, caught.value.code) == (409, "request_in_progress")
        run_once(context, "a", "another key", b"f", _effect, lambda: calls.append("another key"))
        run_once(context, "b", "k", b"f", _effect, lambda: calls.append("another principal"))
    finally:
        done.set()
        first.join()
    assert calls == ["first", "another key", "another principal"]
    assert effects() == 3
    assert run_once(context, "a", "k", b"f", _effect).headers["Idempotency-Replayed"] == "true"


def test_an_answer_is_replayed_while_another_replay_is_at_the_key(context: Context, effects: Callable[[], int]) -> None:
    answers: list[Answer] = []

    def prepare() -> None:
        # Another process answers; then this one is asked again, before it has left the key.
        process = _another_process(context)
        run_once(process, "a", "k", b"f", _effect)
        process.database.dispose()
        answers.append(run_once(context, "a", "k", b"f", _effect))

    answers.append(run_once(context, "a", "k", b"f", _effect, prepare))
    assert [answer.headers.get("Idempotency-Replayed") for answer in answers] == ["true", "true"]
    assert effects() == 1


def test_a_failed_preparation_yields_to_the_answer_of_another_process(
    context: Context, effects: Callable[[], int]
) -> None:
    def prepare() -> None:
        process = _another_process(context)
        run_once(process, "a", "k", b"f", _effect)
        process.database.dispose()
        raise Problem(409, "busy", "the other process has it")

    answer = run_once(context, "a", "k", b"f", _effect, prepare)
    assert (answer.status, answer.body, effects()) == (201, {"effects": 1}, 1)
    with pytest.raises(Problem, match="used for another request"):
        run_once(context, "a", "k", b"g", _effect, prepare)


def _unfinished(missing_members: Callable[[], dict[str, object]]) -> UnfinishedProblem:
    return UnfinishedProblem(409, "budget_exceeded", "no room", members={"cost": 1}, missing_members=missing_members)


def test_a_denial_is_finished_when_its_locks_are_released(context: Context, effects: Callable[[], int]) -> None:
    run_once(context, "a", "first", b"f", _effect)
    impatient = _another_process(context, lock_timeout_s=1)
    calls = 0

    def missing() -> dict[str, object]:
        nonlocal calls
        calls += 1
        with impatient.database.write() as session:
            session.execute(text("UPDATE effects SET id = 2"))
        return {"fits": 7}

    def command(session: Session) -> Answer:
        session.execute(text("UPDATE effects SET id = 3"))
        _effect(session)
        raise _unfinished(missing)

    for _ in range(3):
        with pytest.raises(Problem) as caught:
            run_once(context, "a", "k", b"f", command)
        members = caught.value.members
        assert {**members, "decided_at": ""} == {"cost": 1, "fits": 7, "decided_at": ""}
    impatient.database.dispose()
    assert (calls, effects()) == (1, 1)


def test_a_denial_that_another_process_overtakes_is_answered_as_there(
    context: Context, effects: Callable[[], int]
) -> None:
    def missing() -> dict[str, object]:
        process = _another_process(context)
        run_once(process, "a", "k", b"f", _effect)
        process.database.dispose()
        return {"fits": 7}

    def command(session: Session) -> Answer:
        raise _unfinished(missing)

    for _ in range(2):
        answer = run_once(context, "a", "k", b"f", command)
        assert (answer.status, answer.body["effects"]) == (201, 1)
