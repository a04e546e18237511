"""Witnesses of a ledger, asked over HTTP: what they cosign is served, and what they do not keeps nobody waiting."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from epsilond_witness.notes import Key, Kind, Note
from epsilond_witness.state import now
from sqlalchemy import event
from starlette.testclient import TestClient

from app.context import Context
from app.kit import asking
from app.ledger import cosignature_repository as repository
from app.ledger import transparency
from app.ledger.checkpoints import InvalidNote, read_note
from app.ledger.cosignatures import WitnessKey, check_quorum
from app.ledger.cosigning import Cosigner, Result, ask_all, standings
from app.ledger.witnesses import Witness, WrongWitnesses, witnesses_of
from app.main import create_app
from app.monitoring import health
from tests.app.budgets.conftest import Api
from tests.app.ledger import attacks
from tests.app.ledger.test_cli_ledger import ok, refused, run
from tests.app.problem_assertions import assert_problem
from tests.clients.witness.cases import Served, serving
from tests.databases import on_one_engine
from tests.local_access import local_client

Serve = Callable[..., Served]


def ours(context: Context) -> Key:
    return Key.parse(str(transparency.verifier_key(context)), Kind.LOG)


def named(context: Context, *served: Served, **settings: Any) -> Context:
    """The context with these witnesses in its settings."""
    text = " ".join(f"{each.key} {each.url}" for each in served)
    values = context.settings.model_dump(exclude_unset=True) | {"witnesses": text} | settings
    return replace(context, settings=type(context.settings)(**values))


@pytest.fixture
def serve(context: Context, tmp_path: Path) -> Iterator[Serve]:
    """Serve a witness of the ledger: ``serve("name")``; its clock is the test's."""
    with ExitStack() as stack:

        def serve(name: str, *logs: Key, **options: Any) -> Served:
            options = {"clock": lambda: int(context.clock().timestamp())} | options
            folder = tmp_path / name.replace("/", "-")
            return stack.enter_context(serving(folder, *(logs or [ours(context)]), name=name, **options))

        yield serve


@pytest.fixture
def one(serve: Serve) -> Served:
    return serve("one.example/w")


def results(context: Context) -> list[Result]:
    return [each.result for each in ask_all(context, witnesses_of(context.settings).members)]


@contextmanager
def asked_by(context: Context) -> Iterator[TestClient]:
    """A client of a server without its thread that asks witnesses."""
    yield local_client(create_app(context))


def test_a_checkpoint_carries_what_its_witnesses_have_signed(api: Api, context: Context, serve: Serve) -> None:
    one, two = serve("one.example/w"), serve("two.example/w")
    context = named(context, one, two)
    api.budget()
    with asked_by(context) as client:
        before = client.get("/v1/ledger/checkpoint").json()
        assert (before["cosigned_by"], before["quorum"]) == ([], 2)
        assert_problem(client.get("/v1/ledger/checkpoint?witnessed=true"), 409, "not_witnessed")
        assert results(context) == [Result.COSIGNED, Result.COSIGNED]
        body = client.get("/v1/ledger/checkpoint").json()
        assert body["cosigned_by"] == ["one.example/w", "two.example/w"]
        assert body["note"].startswith(before["note"])
        note = Note.parse(body["note"])
        assert note.is_signed_by(ours(context))
        now = int(context.clock().timestamp())
        assert [note.cosigned_at(each.key) for each in (one, two)] == [now, now]
        page = client.get("/dashboard/ledger/checkpoint").text
        assert "Cosigned by one.example/w, two.example/w. The quorum is 2 witnesses." in page
        bare = client.get("/v1/ledger/checkpoint?witnessed=true", headers={"Accept": "text/plain"}).text
        assert bare == body["note"]
        # One more entry: the newest is not cosigned, and the one before is served as witnessed.
        api.budget()
        assert client.get("/v1/ledger/checkpoint").json()["cosigned_by"] == []
        witnessed = client.get("/v1/ledger/checkpoint?witnessed=true").json()
        assert (witnessed["note"], witnessed["tree_size"]) == (body["note"], 1)
        assert client.post("/v1/ledger/verify", json={"checkpoint": witnessed["note"]}).json()["valid"] is True
        proof = client.get("/v1/ledger/consistency?from_size=1").json()
        assert proof["from_checkpoint"] == body["note"], "a proof can be shown without the service"
        assert results(context) == [Result.COSIGNED, Result.COSIGNED]
        assert client.get("/v1/ledger/checkpoint?witnessed=true").json()["tree_size"] == 2


def test_a_quorum_is_enough(api: Api, context: Context, serve: Serve) -> None:
    one, stranger = serve("one.example/w"), serve("s.example/w", Key("epsilond/other", Kind.LOG, bytes(32)))
    away = Served(Key("away.example/w", Kind.COSIGNER, bytes(31) + b"\1"), one.state, 1)
    context = named(context, one, stranger, away, witness_quorum=1)
    api.budget()
    assert results(context) == [Result.COSIGNED, Result.REFUSED, Result.UNREACHABLE]
    assert len(transparency.witnessed(context).cosignatures) == 1
    both = named(context, one, stranger, away, witness_quorum=2)
    with asked_by(both) as client:
        assert_problem(client.get("/v1/ledger/checkpoint?witnessed=true"), 409, "not_witnessed")


@pytest.mark.parametrize("entries", [1, 5])
def test_a_witness_that_knows_more_is_followed(api: Api, context: Context, one: Served, entries: int) -> None:
    """Its answer was lost, or another server has asked it: what we know of it is not what it knows."""
    context = named(context, one)
    for _ in range(entries):
        api.budget()
    assert results(context) == [Result.COSIGNED]
    attacks.run(context.database, "DELETE FROM merkle_cosignatures")
    assert results(context) == [Result.COSIGNED]
    assert len(transparency.witnessed(context).cosignatures) == 1


def test_a_rewritten_ledger_is_not_cosigned_again(api: Api, context: Context, one: Served, tmp_path: Path) -> None:
    """With the ledger's key and its database anything can be signed, and nothing of it is witnessed."""
    context = named(context, one)
    for _ in range(4):
        api.budget()
    assert results(context) == [Result.COSIGNED]
    kept = transparency.witnessed(context).note
    # Another history of the same size: the leaves are others, and the tree is made again from them.
    attacks.forget_tree(context.database)
    attacks.run(context.database, "DELETE FROM entries WHERE leaf_index = (SELECT max(leaf_index) FROM entries)")
    attacks.run(context.database, "DELETE FROM budgets WHERE id NOT IN (SELECT budget_id FROM entries)")
    attacks.run(context.database, "DELETE FROM merkle_cosignatures")
    assert transparency.checkpoint(context).checkpoint.size == 3
    assert results(context) == [Result.AHEAD], "it is smaller"
    api.budget()
    api.budget()
    assert results(context) == [Result.INCONSISTENT]
    with asked_by(context) as client:
        assert_problem(client.get("/v1/ledger/checkpoint?witnessed=true"), 409, "not_witnessed")
    with one.state.reading() as records:
        [conflict] = records.conflicts()
        assert conflict.known == kept
        assert Note.parse(conflict.offered).is_signed_by(ours(context))


def test_stored_cosignatures_of_another_history_are_not_served(api: Api, context: Context, one: Served) -> None:
    context = named(context, one)
    api.budget()
    own = transparency.checkpoint(context).note
    api.budget()
    assert results(context) == [Result.COSIGNED]
    attacks.run(context.database, "UPDATE merkle_cosignatures SET tree_size = 1")
    with asked_by(context) as client:
        assert client.get("/v1/ledger/consistency?from_size=1").json()["from_checkpoint"] == own
        assert client.get("/v1/ledger/checkpoint").json()["cosigned_by"] == []
        assert_problem(client.get("/v1/ledger/checkpoint?witnessed=true"), 409, "ledger_not_consistent")


def test_a_witness_whose_clock_is_wrong_is_not_believed(api: Api, context: Context, serve: Serve) -> None:
    late = serve("late.example/w", clock=lambda: int(context.clock().timestamp()) - 3700)
    api.budget()
    assert results(named(context, late)) == [Result.INVALID]
    assert results(named(context, serve("f.example/w", clock=lambda: 2**62))) == [Result.INVALID]


def test_an_answer_that_is_none_is_refused(api: Api, context: Context, one: Served, monkeypatch: Any) -> None:
    context = named(context, one)
    api.budget()
    good = Served(one.key, one.state, one.port)
    line = good.add(b"")  # nothing is cosigned
    assert line[0] == 400
    answers = {
        (200, b""): Result.INVALID,
        (200, b"\xff"): Result.INVALID,
        (200, "\u2014 other AAAAAAAAAAAAAAAA\n".encode()): Result.INVALID,
        (409, b""): Result.REFUSED,
        (409, b"-1\n"): Result.REFUSED,
        (409, b"1" * 30): Result.REFUSED,
        (409, b"0\n"): Result.REFUSED,
        (409, b"7\n"): Result.AHEAD,
        (500, b""): Result.REFUSED,
        (302, b""): Result.REFUSED,
        (422, b""): Result.INCONSISTENT,
    }
    for (status, body), result in answers.items():
        monkeypatch.setattr("app.ledger.cosigning.ask", lambda *_, s=status, b=body, **__: asking.Reply(s, b))
        assert results(context) == [result], (status, body)
        with context.database.read() as session:
            assert repository.last(session, [WitnessKey.parse(str(one.key))]) == {}


@on_one_engine
def test_a_witness_that_hangs_delays_nobody(
    api: Api, context: Context, one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Charges are entered while it is waited for, and the others cosign."""
    monkeypatch.setattr(asking, "DEADLINE_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hangs = Served(Key("h.example/w", Kind.COSIGNER, bytes(31) + b"\1"), one.state, silent.getsockname()[1])
        context = named(context, hangs, one)
        found: list[Result] = []
        api.budget()
        thread = threading.Thread(target=lambda: found.extend(results(context)))
        thread.start()
        connection, _ = silent.accept()
        began = time.monotonic()
        api.budget()
        assert time.monotonic() - began < 1.4
        assert thread.is_alive()
        thread.join()
        connection.close()
    assert found == [Result.UNREACHABLE, Result.COSIGNED]


def test_each_is_asked_once_in_an_interval(api: Api, context: Context, one: Served, clock: Any) -> None:
    context = named(context, one, witness_interval_s=60)
    cosigner, other = Cosigner(context), Cosigner(context)
    assert [each.result for each in cosigner.ask_due()] == [Result.COSIGNED]
    assert other.ask_due() == [], "servers share the work"
    api.budget()
    clock.advance(59)
    assert cosigner.ask_due() == other.ask_due() == []
    clock.advance(1)
    assert [each.result for each in other.ask_due()] == [Result.COSIGNED]
    assert cosigner.ask_due() == []
    # Nothing is new, and the time is.
    clock.advance(60)
    assert [each.result for each in cosigner.ask_due()] == [Result.COSIGNED]
    with context.database.read() as session:
        [standing] = standings(session, context)
    assert (standing.size, standing.cosigned_at) == (1, context.clock())
    away = named(context, Served(Key("a.example/w", Kind.COSIGNER, bytes(31) + b"\1"), one.state, 1))
    fails = Cosigner(away)
    assert [each.result for each in fails.ask_due()] == [Result.UNREACHABLE]
    assert fails.ask_due() == []
    clock.advance(60)
    assert [each.result for each in fails.ask_due()] == [Result.UNREACHABLE]


def test_one_statement_asks_what_all_witnesses_have_cosigned_last(api: Api, context: Context, serve: Serve) -> None:
    one, two, away = (serve(f"{name}.example/w") for name in ("one", "two", "away"))
    api.budget()
    assert results(named(context, one, two)) == [Result.COSIGNED, Result.COSIGNED]
    api.budget()
    assert results(named(context, two)) == [Result.COSIGNED]
    asked: list[str] = []

    def listen(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append(statement)

    with context.database.read() as session:
        event.listen(context.database.engine, "after_cursor_execute", listen)
        try:
            found = standings(session, named(context, one, two, away))
        finally:
            event.remove(context.database.engine, "after_cursor_execute", listen)
        assert standings(session, named(context)) == []
    moment = context.clock()
    assert [(each.size, each.cosigned_at, each.is_fresh) for each in found] == [
        (1, moment, True),
        (2, moment, True),
        (None, None, False),
    ]
    assert len(asked) == 1


@on_one_engine
def test_health_and_metrics_tell_how_it_stands(
    context: Context, one: Served, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "BELIEVED_S", 0.0)
    monkeypatch.setattr("app.monitoring.collectors.BELIEVED_S", -1.0)
    context = named(context, one, witness_interval_s=60)
    cosigner = Cosigner(context)
    with asked_by(context) as client:

        def told() -> tuple[str, list[str]]:
            ready = client.get("/health/ready")
            assert ready.status_code == 200, "what is missing keeps nobody from being answered"
            lines = client.get("/metrics").text.splitlines()
            return ready.json()["checks"]["witnesses"], [line for line in lines if line.startswith("epsilond_witness")]

        assert told() == ("failing", ["epsilond_witnesses_fresh 0.0", "epsilond_witness_quorum 1.0"])
        cosigner.ask_due()
        state, lines = told()
        assert state == "ok"
        assert 'epsilond_witness_requests_total{result="cosigned",witness="one.example/w"} 1.0' in lines
        assert "epsilond_witnesses_fresh 1.0" in lines
        at = context.clock().timestamp()
        [last] = [line for line in lines if "last_cosigned" in line]
        assert float(last.split()[-1]) == at
        clock.advance(181)
        assert told()[0] == "failing"


@on_one_engine
def test_a_server_asks_by_itself(context: Context, one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.ledger.cosigning.LOOK_S", 0.01)
    context = named(context, one)
    with local_client(create_app(context)) as client:
        until = time.monotonic() + 20
        while client.get("/v1/ledger/checkpoint").json()["cosigned_by"] != ["one.example/w"]:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert 'result="inconsistent",witness="one.example/w"} 0.0' in client.get("/metrics").text


@on_one_engine
def test_settings_that_name_what_cannot_be_are_refused(context: Context, one: Served, serve: Serve) -> None:
    two = serve("two.example/w")
    same_key = Served(Key("three.example/w", Kind.COSIGNER, one.key.public), one.state, 1)
    same_name = Served(Key(one.key.name, Kind.COSIGNER, two.key.public), one.state, 1)
    of_log = Served(Key("one.example/w", Kind.LOG, one.key.public), one.state, 1)
    for wrong, reason in (
        (named(context, one, same_key), "the same key"),
        (named(context, one, same_name), "the same name"),
        (named(context, of_log), "not a public key of a witness"),
        (named(context, one, witness_quorum=2), "2 must cosign, but there are only 1"),
        (named(context, witness_quorum=1), "1 must cosign, but there are only 0"),
    ):
        with pytest.raises(WrongWitnesses, match=reason):
            witnesses_of(wrong.settings)
    for text in (str(one.key), f"{one.key} ftp://w", f"{one.key} http://w/?a", f"{one.key} http://w {two.key}"):
        with pytest.raises(ValueError, match="witnesses"):
            named(context, witnesses=text)
    assert witnesses_of(named(context, one).settings).members == (Witness(WitnessKey.parse(str(one.key)), one.url),)


def test_the_command_line_asks_for_cosignatures(api: Api, context: Context, serve: Serve, tmp_path: Path) -> None:
    one, two = serve("one.example/w", clock=now), serve("two.example/w", clock=now)
    api.budget()
    assert ok(context.settings, "witnesses") == "Nobody cosigns: EPSILOND_WITNESSES is empty.\n"
    context = named(context, one, two, witness_quorum=1)
    shown = run(context.settings, "witnesses")
    assert (shown.exit_code, "0 of 2 have cosigned lately; 1 must." in shown.output) == (1, True)
    assert "There is no witnessed checkpoint: 1 of 2" in refused(context.settings, "checkpoint", "--witnessed")
    listed = json.loads(ok(context.settings, "witnesses", "--ask", "--json"))
    assert [each["result"] for each in listed["witnesses"]] == ["cosigned", "cosigned"]
    assert (listed["fresh"], listed["quorum"], listed["witnesses"][0]["tree_size"]) == (2, 1, 1)
    kept = tmp_path / "kept.txt"
    ok(named(context, one).settings, "checkpoint", "--witnessed", "--output", str(kept))
    verify = ("verify", "--checkpoint", str(kept), "--witness", str(one.key))
    both = (*verify, "--witness", str(two.key))
    assert ok(context.settings, *verify).startswith("valid")
    assert "the checkpoint needs 2 cosignatures and has 1; missing: two.example/w" in refused(context.settings, *both)
    assert "the checkpoint needs 2 cosignatures" in refused(context.settings, *both, "--quorum", "2")
    assert ok(context.settings, *both, "--quorum", "1").startswith("valid")
    assert "--quorum is 3" in refused(context.settings, *both, "--quorum", "3")
    assert "--quorum is 1, but --witness names only 0" in refused(
        context.settings, "verify", "--checkpoint", str(kept), "--quorum", "1"
    )
    assert "--witness needs --checkpoint" in refused(context.settings, "verify", "--witness", str(one.key))
    assert "--witness is refused" in refused(context.settings, *verify, "--witness", str(ours(context)))
    assert "the same key" in refused(context.settings, *verify, "--witness", str(one.key))
    kept.write_text(kept.read_text().rpartition("\u2014")[0])
    assert "the checkpoint needs 1 cosignatures and has 0" in refused(context.settings, *verify)


def test_a_quorum_is_of_keys_that_are_known(api: Api, context: Context, serve: Serve) -> None:
    one, two = serve("one.example/w"), serve("two.example/w")
    api.budget()
    assert results(named(context, one)) == [Result.COSIGNED]
    note = transparency.witnessed(named(context, one)).note
    keys = [WitnessKey.parse(str(each.key)) for each in (one, two)]
    checkpoint, signatures = read_note(note)
    check_quorum(keys, 1, checkpoint, signatures)
    with pytest.raises(InvalidNote, match=r"the checkpoint needs 2 cosignatures and has 1; missing: two\.example/w"):
        check_quorum(keys, 2, checkpoint, signatures)
    doubled, signatures = read_note(note + note.rpartition("\n\n")[2].splitlines(keepends=True)[-1])
    with pytest.raises(InvalidNote, match="the checkpoint needs 2 cosignatures and has 1"):
        check_quorum(keys, 2, doubled, signatures)
    other = replace(checkpoint, root=bytes(32))
    with pytest.raises(InvalidNote, match=r"one\.example/w does not verify"):
        check_quorum(keys, 1, other, signatures)
    with context.database.read() as session:
        assert repository.last(session, keys[1:2]) == {}
