"""The program itself: started, killed at any moment, and started again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import epsilond_witness
import pytest
from epsilond_witness.notes import Note
from epsilond_witness.state import open_folder

from tests.clients.witness.cases import NAME, ORIGIN, Log, leaves, said

SOURCE = Path(epsilond_witness.__file__).parent.parent
COMMAND = [sys.executable, "-m", "epsilond_witness"]


def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


class Program:
    """`epsilond-witness serve`."""

    def __init__(self, folder: Path, log: Log, port: int = 0, before: str = "") -> None:
        code = f"{before}\nfrom epsilond_witness.__main__ import main\nraise SystemExit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", str(folder), "--log", str(log.key), "--port", str(port)],
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.port = int(told["serving"].rpartition(":")[2])
        self.public_key = told["public_key"]
        # Nobody reads what it says further: a full pipe would stop it.
        self._reader = threading.Thread(target=self.process.stdout.read, daemon=True)
        self._reader.start()

    def add(self, body: bytes) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("POST", "/add-checkpoint", body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextlib.contextmanager
def started(*arguments: object, **options: object) -> Iterator[Program]:
    program = Program(*arguments, **options)  # type: ignore[arg-type]
    try:
        yield program
    finally:
        program.kill()


@pytest.fixture
def log() -> Log:
    return Log(leaves(200))


def test_the_commands_say_what_they_did(tmp_path: Path, log: Log) -> None:
    folder = tmp_path / "w"
    key = run("init", str(folder), "--name", NAME).stdout.strip()
    assert run("public-key", str(folder)).stdout.strip() == key
    assert "already" in run("init", str(folder), "--name", NAME, status=2).stderr
    assert "a name must not be empty" in run("init", str(tmp_path / "x"), "--name", "a name", status=2).stderr
    assert "must be a key of a log" in run("serve", str(folder), "--log", key, status=2).stderr
    assert "init" in run("serve", str(tmp_path / "none"), "--log", str(log.key), status=2).stderr
    with started(folder, log) as program:
        assert program.public_key == key
        assert program.add(log.request(0, 5))[0] == 200
        assert run("conflicts", str(folder)).stdout == ""
        assert program.add(log.fork(2).request(5, 5))[0] == 422
        [conflict] = said(run("conflicts", str(folder), status=1).stdout)
        assert (conflict["origin"], conflict["is_proof"]) == (ORIGIN, True)


@pytest.mark.thorough
def test_killed_between_storing_and_answering_it_goes_on_with_what_it_stored(tmp_path: Path, log: Log) -> None:
    """The log has no answer; asked again for another history, the witness still knows what it has signed."""
    folder = tmp_path / "w"
    run("init", str(folder), "--name", NAME)
    dies = (
        "import os, epsilond_witness.serving as serving\n"
        "decided = serving.Witness.add_checkpoint\n"
        "def add_checkpoint(self, body):\n"
        "    decided(self, body)\n"
        "    os._exit(9)\n"
        "serving.Witness.add_checkpoint = add_checkpoint\n"
    )
    with started(folder, log, before=dies) as program:
        with pytest.raises((HTTPException, OSError)):
            program.add(log.request(0, 5))
        assert program.process.wait(10) == 9
    with started(folder, log) as program:
        assert program.add(log.fork(1).request(0, 5)) == (409, "5\n")
        assert program.add(log.fork(1).request(5, 5))[0] == 422
        assert program.add(log.request(5, 5))[0] == 200
        assert program.add(log.request(5, 9))[0] == 200


def test_killed_before_storing_it_has_signed_nothing(tmp_path: Path, log: Log) -> None:
    folder = tmp_path / "w"
    run("init", str(folder), "--name", NAME)
    dies = (
        "import os, epsilond_witness.state as state\n"
        "keep = state.Records.keep\n"
        "def dying(self, *values):\n"
        "    keep(self, *values)\n"
        "    os._exit(9)\n"
        "state.Records.keep = dying\n"
    )
    with started(folder, log, before=dies) as program, pytest.raises((HTTPException, OSError)):
        program.add(log.request(0, 5))
    with started(folder, log) as program:
        assert program.add(log.fork(1).request(0, 5))[0] == 200, "nobody has seen a signature of the other one"


@pytest.mark.thorough
def test_killed_at_any_moment_it_never_goes_back(tmp_path: Path, log: Log) -> None:
    """Whatever was answered before a kill is known after it."""
    folder, seen = tmp_path / "w", 0
    run("init", str(folder), "--name", NAME)
    for number in range(10):
        with started(folder, log) as program:
            status, text = program.add(log.request(0, 1))
            known = int(text) if status == 409 else 1
            assert known >= seen
            killer = threading.Timer(0.02 + 0.01 * number, program.kill)
            killer.start()
            with contextlib.suppress(HTTPException, OSError):
                while known < 200:
                    status, _ = program.add(log.request(known, known + 1))
                    assert status == 200
                    seen = known = known + 1
            killer.join()
    assert seen > 10
    with open_folder(folder)[2].reading() as records:
        assert records.known(ORIGIN).root == log.root(records.known(ORIGIN).size)


def test_two_processes_of_one_folder_share_what_they_know(tmp_path: Path, log: Log) -> None:
    folder = tmp_path / "w"
    run("init", str(folder), "--name", NAME)
    with started(folder, log) as first, started(folder, log) as second:
        assert first.add(log.request(0, 5))[0] == 200
        assert second.add(log.fork(2).request(0, 6)) == (409, "5\n")
        assert second.add(log.request(5, 9))[0] == 200
        assert first.add(log.request(5, 7)) == (409, "9\n")


def test_a_cosignature_says_when_it_was_made(tmp_path: Path, log: Log) -> None:
    folder = tmp_path / "w"
    run("init", str(folder), "--name", NAME)
    before = int(time.time())
    with started(folder, log) as program:
        _, line = program.add(log.request(0, 5))
    key = open_folder(folder)[1]
    at = Note.parse(log.note(5) + line).cosigned_at(key)
    assert at is not None
    assert before <= at <= int(time.time())
    assert key.id == hashlib.sha256(f"{NAME}\n".encode() + b"\x04" + key.public).digest()[:4]
