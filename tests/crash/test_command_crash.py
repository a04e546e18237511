"""A server is killed on the way to its answer, at each of three places: the command, sent again, has one effect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.context import Context
from app.main import create_app
from app.settings import environment_of
from tests.app.budgets.conftest import audit_all
from tests.app.run_sweeps.conftest import Sweeps
from tests.concurrency.keyed_commands import COMMANDS, KEY, Command, Sent, added, rows
from tests.local_access import local_client

PROJECT_ROOT = Path(__file__).parents[2]

#: For every line that it reads, a server in a process of its own is sent a request, and kills itself at the place that
#: the line names. Modules are loaded once.
PROGRAM = """
import json, os, signal, sys
from sqlalchemy import text
from app.db.database import Database
from app.fence.service import Fence
from app.fence.watching import fenced_context
from app.main import create_app
from app.settings import Settings
from tests.concurrency.keyed_commands import Sent
from tests.local_access import local_client

def dies(place, key):
    before_commit, after_commit, deciding = Fence.before_commit, Fence.after_commit, []

    def before(fence, connection):
        moves = before_commit(fence, connection)
        # A denial may take a transaction that writes nothing before the one that remembers it.
        deciding[:] = connection.execute(text("SELECT key FROM idempotency_records WHERE key = :key"), {"key": key})
        if deciding and place == "before the commit":
            os.kill(os.getpid(), signal.SIGKILL)
        return moves

    def after(fence, moves):
        if place == "before the answer":
            after_commit(fence, moves)
        if deciding:
            os.kill(os.getpid(), signal.SIGKILL)

    Fence.before_commit, Fence.after_commit = before, after

for line in sys.stdin:
    place, environment, path, body, file, key = json.loads(line)
    server = os.fork()
    if server == 0:
        os.environ.update(environment)
        settings = Settings()
        with local_client(create_app(fenced_context(settings, Database(settings.database_url)))) as client:
            dies(place, key)
            client.post(path, **Sent(path, body, file).content, headers={"Idempotency-Key": key})
        os._exit(0)
    print("died", os.waitstatus_to_exitcode(os.waitpid(server, 0)[1]), flush=True)
"""
#: Whether the command has had its effect when the server dies there.
PLACES = {"before the commit": False, "after the commit": True, "before the answer": True}

Kill = Callable[[str, Context, Sent], None]


@pytest.fixture(scope="module")
def kill_a_server() -> Iterator[Kill]:
    """Let a server die at a place while it carries a request out."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def kill(place: str, context: Context, request: Sent) -> None:
        line = json.dumps([place, environment_of(context.settings), request.path, request.body, request.file, KEY])
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        lines = [process.stdout.readline()]
        while not lines[-1].startswith("died"):
            assert lines[-1], lines
            lines.append(process.stdout.readline())
        assert lines[-1] == "died -9\n", lines

    try:
        yield kill
    finally:
        process.stdin.close()
        process.kill()
        process.wait()
        process.stdout.close()


#: A server that has keys writes when they are used, and would die of that.
WITHOUT_KEYS = {name: command for name, command in COMMANDS.items() if not command.needs_a_key}


@pytest.mark.one_in(10)
@pytest.mark.parametrize("place", [*list(PLACES)[:2], pytest.param("before the answer", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("command", WITHOUT_KEYS.values(), ids=WITHOUT_KEYS)
def test_a_command_whose_server_is_killed_has_one_effect_and_one_answer(
    context: Context, kill_a_server: Kill, command: Command, place: str
) -> None:
    with local_client(create_app(context)) as client:
        request = command.prepare(Sweeps(client, context))
        before = rows(context)
        kill_a_server(place, context, request)
        assert added(before, rows(context)) == (command.effect if PLACES[place] else {})

        def send() -> Any:
            return client.post(request.path, **request.content, headers={"Idempotency-Key": KEY})

        answers = [send(), send()]
    assert [answer.status_code for answer in answers] == [command.status] * 2
    first, again = ({**answer.json(), "request_id": ""} for answer in answers)
    assert first == again
    assert ["idempotency-replayed" in answer.headers for answer in answers] == [PLACES[place], True]
    assert added(before, rows(context)) == command.effect
    audit_all(context)
