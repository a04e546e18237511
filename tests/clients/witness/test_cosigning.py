"""A witness over HTTP: what it cosigns, what it refuses, and what nobody can make it do."""

from __future__ import annotations

import base64
import hashlib
import socket
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from epsilond_witness import cosigning
from epsilond_witness.cosigning import MOST_BYTES
from epsilond_witness.notes import Key, Kind, Note, cosign
from epsilond_witness.state import MOST_CONFLICTS, Unusable, make, open_folder

from app.ledger.checkpoints import read_note
from app.ledger.cosignatures import WitnessKey, cosigned_by
from tests.clients.witness.cases import NAME, ORIGIN, Log, Served, leaves, serving

EMPTY = hashlib.sha256(b"").digest()


@pytest.fixture
def log() -> Log:
    return Log(leaves(40))


@pytest.fixture
def witness(tmp_path: Path, log: Log) -> Iterator[Served]:
    with serving(tmp_path / "witness", log.key) as served:
        yield served


def cosigned(witness: Served, log: Log, old: int, size: int) -> int:
    """The time of the cosignature that is answered, read by the service's own code."""
    status, line = witness.add(log.request(old, size))
    assert status == 200, line
    checkpoint, signatures = read_note(log.note(size) + line)
    key = WitnessKey.parse(str(witness.key))
    [(_, time)] = cosigned_by([key], checkpoint, signatures).items()
    return time


#: The address of the newest checkpoint that was cosigned.
PATH = f"/{hashlib.sha256(ORIGIN.encode()).hexdigest()}/checkpoint"


@pytest.mark.parametrize("first", range(1, 17))
def test_it_follows_a_log_that_grows_by_anything(witness: Served, log: Log, first: int) -> None:
    size = cosigned(witness, log, 0, first) and first
    for following in (first, first + 1, 17, 31, 32, 40):
        cosigned(witness, log, size, following)
        size = following
    assert Note.parse(witness.ask("GET", PATH)[2]).size == 40


def test_its_state_is_what_it_answers(witness: Served, log: Log) -> None:
    assert witness.ask("GET", PATH)[0] == 404, "nothing was cosigned"
    _, line = witness.add(log.request(0, 7))
    status, kind, text = witness.ask("GET", PATH)
    assert (status, kind, text) == (200, "text/plain; charset=utf-8", log.note(7) + line)
    note = Note.parse(text)
    assert note.is_signed_by(log.key)
    assert note.cosigned_at(witness.key)
    for other in (PATH[:-1], f"{PATH}/", f"{PATH}?a=b", "/checkpoint", f"/{'0' * 64}/checkpoint", "/"):
        assert witness.ask("GET", other)[0] == 404


def test_another_old_size_is_told_the_one_that_is_known(witness: Served, log: Log) -> None:
    cosigned(witness, log, 0, 7)
    status, kind, text = witness.ask("POST", "/add-checkpoint", log.request(0, 9))
    assert (status, kind, text) == (409, "text/x.tlog.size", "7\n")
    assert witness.add(log.request(5, 9)) == (409, "7\n")
    assert witness.add(log.request(0, 7)) == (409, "7\n"), "the request of before, sent again"
    assert witness.add(log.request(0, 5)) == (409, "7\n"), "an older one"
    assert witness.add(log.request(5, 5)) == (409, "7\n")
    assert cosigned(witness, log, 7, 7), "an answer that was lost is given again"


def test_a_history_that_was_rewritten_is_not_cosigned(witness: Served, log: Log) -> None:
    """Rolled back, forked below, forked at the same size; each with every proof that its log can make."""
    cosigned(witness, log, 0, 20)
    known = witness.ask("GET", f"/{hashlib.sha256(ORIGIN.encode()).hexdigest()}/checkpoint")
    for at in (0, 1, 10, 16, 19):
        other = log.fork(at)
        assert witness.add(other.request(20, 20))[0] == 422
        assert witness.add(other.request(20, 33))[0] == 422
        assert witness.add(log.request(20, 33, other.note(33)))[0] == 422, "the proof of the true log"
        assert witness.add(other.request(0, 33)) == (409, "20\n")
        assert witness.add(other.request(19, 33)) == (409, "20\n")
    assert witness.add(log.request(20, 19))[0] == 400
    assert witness.add(log.request(19, 19)) == (409, "20\n")
    assert witness.ask("GET", f"/{hashlib.sha256(ORIGIN.encode()).hexdigest()}/checkpoint") == known
    with witness.state.reading() as records:
        conflicts = records.conflicts()
    proofs = [each for each in conflicts if each.is_proof]
    assert len(proofs) == 5
    for each in proofs:
        known_note, offered = Note.parse(each.known), Note.parse(each.offered)
        assert known_note.is_signed_by(log.key)
        assert offered.is_signed_by(log.key)
        assert (known_note.size, known_note.root != offered.root) == (offered.size, True)


def test_a_proof_that_shows_nothing_is_refused(witness: Served, log: Log) -> None:
    assert witness.add(log.request(0, 8, path=[bytes(32)]))[0] == 422, "of the empty tree nothing is to be proved"
    cosigned(witness, log, 0, 8)
    path = [base64.b64decode(line) for line in log.request(8, 21).decode().partition("\n\n")[0].split("\n")[1:]]
    assert len(path) >= 2
    for wrong in ([], path[:-1], [*path, bytes(32)], path[::-1], [bytes(32)] * 63, [bytes(32), *path[1:]]):
        assert witness.add(log.request(8, 21, path=wrong))[0] == 422
    assert witness.add(log.request(8, 8, path=[bytes(32)]))[0] == 422
    cosigned(witness, log, 8, 21)


def test_an_empty_log_has_one_root(witness: Served, log: Log) -> None:
    assert witness.add(log.request(0, 0, log.note(0, bytes(32))))[0] == 422
    assert witness.add(log.request(0, 0, log.note(0, EMPTY)))[0] == 200
    cosigned(witness, log, 0, 5)


def test_only_the_key_of_a_known_log_is_believed(witness: Served, log: Log) -> None:
    stranger = Log(log.leaves)
    assert witness.add(stranger.request(0, 5))[0] == 403
    good = log.note(5)
    text, _, line = good.rpartition("\n\n")
    assert witness.add(log.request(0, 6, good.replace("\n5\n", "\n6\n")))[0] == 403, "changed after it was signed"
    assert witness.add(log.request(0, 5, f"{text}\n\n{line}{line.replace(line[-8:-3], 'AAAAA')}"))[0] == 403
    unknown = good.replace(ORIGIN, "epsilond/led_other")
    assert witness.add(log.request(0, 5, unknown))[0] == 404
    # Signatures of others are passed over, and are not kept.
    other_line = stranger.note(5).rpartition("\n\n")[2]
    status, cosignature = witness.add(log.request(0, 5, f"{text}\n\n{other_line}{line}"))
    assert status == 200
    kept = witness.ask("GET", f"/{hashlib.sha256(ORIGIN.encode()).hexdigest()}/checkpoint")[2]
    assert kept == good + cosignature


def test_several_keys_of_a_log_are_keys_of_one_log(tmp_path: Path, log: Log) -> None:
    newer = Log(log.leaves)
    with serving(tmp_path / "w", log.key, newer.key) as witness:
        cosigned(witness, log, 0, 5)
        cosigned(witness, newer, 5, 9)
        assert witness.add(newer.request(0, 9)) == (409, "9\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda body: b"",
        lambda body: b"\xff" + body,
        lambda body: body.replace(b"old 0", b"old 00"),
        lambda body: body.replace(b"old 0", b"old -1"),
        lambda body: body.replace(b"old 0", b"old 9999999999999999999"),
        lambda body: body.replace(b"old 0", b"old \xd9\xa0"),
        lambda body: body.replace(b"old 0", b"Old 0"),
        lambda body: body.replace(b"old 0", b"old 6"),
        lambda body: body.replace(b"old 0\n", b"old 0\nAAAA\n"),
        lambda body: body.replace(b"old 0\n", b"old 0\n" + b"A" * 43 + b"=\n" * 1 + (b"A" * 43 + b"=\n") * 63),
        lambda body: body.replace(b"\n5\n", b"\n05\n"),
        lambda body: body.replace(b"\n5\n", b"\n5\n\n"),
        lambda body: body.replace(b"\n5\n", b"\n5\r\n"),
        lambda body: body.removesuffix(b"\n"),
        lambda body: body.replace("\u2014 ".encode(), b"- "),
        lambda body: body.replace(b"\n\n", b"\n"),
    ],
)
def test_what_is_no_request_is_refused(witness: Served, log: Log, change) -> None:
    body = log.request(0, 5)
    assert change(body) != body
    assert witness.add(change(body))[0] == 400
    with witness.state.reading() as records:
        assert records.known(ORIGIN).size == 0


def test_extension_lines_are_cosigned_with_the_rest(witness: Served, log: Log) -> None:
    note = log.note(5, lines="of no meaning\n")
    status, line = witness.add(log.request(0, 5, note))
    assert status == 200
    assert Note.parse(note + line).cosigned_at(witness.key)
    with pytest.raises(Exception, match="does not verify"):
        Note.parse(log.note(5) + line).cosigned_at(witness.key)


def test_requests_at_once_leave_one_history(witness: Served, log: Log) -> None:
    """Of two histories at most one is cosigned, and sizes never go back, whoever comes first."""
    other = log.fork(3)
    bodies = [each.request(0, size) for size in range(4, 20) for each in (log, other)]
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(witness.add, bodies))
    assert sorted(status for status, _ in answers).count(200) == 1, "each was to be the first"
    size = int(next(text for status, text in answers if status == 409))
    winner = next(each for each in (log, other) if witness.add(each.request(size, size))[0] == 200)
    bodies = [winner.request(size, following) for following in range(size, 40)] * 2
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(witness.add, bodies))
    assert {status for status, _ in answers} <= {200, 409}
    told = [int(text) for status, text in answers if status == 409]
    with witness.state.reading() as records:
        known = records.known(ORIGIN)
    assert known.size >= max(told, default=size)
    assert known.root == winner.root(known.size)


def test_two_histories_at_once_are_decided_one_after_the_other(
    witness: Served, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is signed, the other one waits, and then finds what was signed."""

    def slowly(*values: Any) -> Any:
        time.sleep(0.3)
        return cosign(*values)

    monkeypatch.setattr(cosigning, "cosign", slowly)
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(witness.add, [log.request(0, 5), log.fork(1).request(0, 5)]))
    assert sorted(status for status, _ in answers) == [200, 409]


def test_large_bodies_and_unclear_lengths_are_refused(witness: Served, log: Log) -> None:
    body = log.request(0, 5)
    assert witness.ask("POST", "/add-checkpoint", b"old 0\n" * MOST_BYTES)[0] == 413
    assert witness.ask("POST", "/other", body)[0] == 404
    head = b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\n"
    for lengths, status in (
        (b"Content-Length: 99999999999999999999\r\n", b"413"),
        (b"Content-Length: -1\r\n", b"400"),
        (b"Content-Length: 5\r\nContent-Length: 6\r\n", b"411"),
        (b"Transfer-Encoding: chunked\r\n", b"411"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"411"),
        (b"", b"411"),
    ):
        with socket.create_connection(("127.0.0.1", witness.port), timeout=10) as connection:
            connection.sendall(head + lengths + b"\r\n")
            answer = b""
            while part := connection.recv(4096):
                answer += part
        assert answer.startswith(b"HTTP/1.1 " + status), lengths
        assert answer.count(b"HTTP/1.1") == 1, "the connection is closed behind it"


def test_who_is_slow_keeps_nobody_waiting(tmp_path: Path, log: Log) -> None:
    with serving(tmp_path / "w", log.key, deadline_s=0.5) as witness:
        slow = [socket.create_connection(("127.0.0.1", witness.port), timeout=10) for _ in range(31)]
        for connection in slow:
            connection.sendall(b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: 100\r\n\r\nold")
        cosigned(witness, log, 0, 5)
        for connection in slow:
            assert connection.recv(100) == b"", "it is closed"
            connection.close()
        cosigned(witness, log, 5, 6)


@pytest.mark.thorough
def test_contradictions_are_kept_and_do_not_grow_without_end(witness: Served, log: Log) -> None:
    cosigned(witness, log, 0, 5)
    for number in range(MOST_CONFLICTS + 5):
        other = Log([*log.leaves[:4], hashlib.sha256(bytes([number])).digest()], log.private)
        assert witness.add(other.request(5, 5))[0] == 422
        assert witness.add(other.request(5, 5))[0] == 422
    with witness.state.reading() as records:
        assert len(records.conflicts()) == MOST_CONFLICTS


def test_a_state_that_cannot_be_written_signs_nothing(witness: Served, log: Log, tmp_path: Path) -> None:
    cosigned(witness, log, 0, 5)
    keeper = sqlite3.connect(tmp_path / "witness" / "state.sqlite3", isolation_level=None)
    keeper.execute("BEGIN IMMEDIATE")
    try:
        status, text = witness.add(log.request(5, 9))
        assert (status, "no cosignature was given out" in text) == (503, True)
    finally:
        keeper.rollback()
        keeper.close()
    cosigned(witness, log, 5, 9)


def test_a_folder_that_must_not_be_used_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    key = make(folder, NAME)
    assert key == Key.parse(str(key), Kind.COSIGNER)
    assert oct((folder / "key.pem").stat().st_mode)[-3:] == "600"
    assert oct((folder / "state.sqlite3").stat().st_mode)[-3:] == "600"
    assert open_folder(folder)[1] == key
    with pytest.raises(Unusable, match="already"):
        make(folder, NAME)
    (folder / "key.pem").chmod(0o640)
    with pytest.raises(Unusable, match="chmod 600"):
        open_folder(folder)
    (folder / "key.pem").chmod(0o600)
    make(tmp_path / "other", NAME)
    (tmp_path / "other" / "key.pem").replace(folder / "key.pem")
    with pytest.raises(Unusable, match="is not the key"):
        open_folder(folder)
    (folder / "state.sqlite3").unlink()
    with pytest.raises(Unusable, match="lost its state"):
        open_folder(folder)
    assert not (folder / "state.sqlite3").exists(), "it is not made anew"
