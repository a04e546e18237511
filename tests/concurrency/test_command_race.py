"""One key, sent by several threads of two processes at once: whatever the command is, it is carried out once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context, default_gate
from app.db.database import Database
from app.fence.watching import fence_of
from app.kit.group_commit import GroupCommit
from app.main import create_app
from tests.app.budgets.conftest import audit_all
from tests.app.run_sweeps.conftest import Sweeps
from tests.concurrency.keyed_commands import COMMANDS, KEY, Command, Sent, added, rows
from tests.concurrency.processes import in_threads
from tests.local_access import BASE_URL, LOOPBACK_PEER

PROCESSES, THREADS = 2, 3
OTHER = Sent(
    "/v1/budgets",
    {"name": "other", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": "1"}},
)


@pytest.fixture
def clients(context: Context) -> Iterator[list[TestClient]]:
    """The service in processes that share nothing but the database and the secret, each with a client."""
    created = create_key(context, "tester", [Scope.ADMIN])
    assert created is not None
    access: dict[str, Any] = {
        "base_url": BASE_URL,
        "client": LOOPBACK_PEER,
        "headers": {"Authorization": f"Bearer {created.token}"},
    }
    with ExitStack() as stack:
        made = []
        for _ in range(PROCESSES):
            database = Database(context.database.url)
            stack.callback(database.dispose)
            process = replace(context, database=database, numerics=default_gate(), ledger_commits=GroupCommit())
            fence_of(process)
            made.append(stack.enter_context(TestClient(create_app(process), **access)))
        yield made


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.one_in(6)
def test_a_command_that_is_sent_at_once_and_everywhere_is_carried_out_once(
    clients: list[TestClient], context: Context, command: Command
) -> None:
    request = command.prepare(Sweeps(clients[0], context))
    before = rows(context)

    def send(client: TestClient) -> Any:
        return client.post(request.path, **request.content, headers={"Idempotency-Key": KEY})

    answers = in_threads(PROCESSES * THREADS, lambda number: send(clients[number % PROCESSES]))
    twins = [answer for answer in answers if answer.json().get("code") == "request_in_progress"]
    decided = [answer for answer in answers if answer not in twins]
    assert {answer.status_code for answer in twins} <= {409}
    assert {answer.status_code for answer in decided} == {command.status}
    assert added(before, rows(context)) == command.effect
    # What is shown once is the first answer's own.
    shown = [{**answer.json(), "request_id": "", "token": ""} for answer in [*decided, *map(send, clients)]]
    assert all(body == shown[0] for body in shown)
    assert sum("idempotency-replayed" not in answer.headers for answer in decided) == 1
    assert added(before, rows(context)) == command.effect
    audit_all(context)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.one_in(8)
def test_a_key_that_another_command_took_is_refused(
    clients: list[TestClient], context: Context, command: Command
) -> None:
    request = command.prepare(Sweeps(clients[0], context))
    assert clients[0].post(OTHER.path, json=OTHER.body, headers={"Idempotency-Key": KEY}).status_code == 201
    before = rows(context)
    for client in clients:
        answer = client.post(request.path, **request.content, headers={"Idempotency-Key": KEY})
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert added(before, rows(context)) == {}
