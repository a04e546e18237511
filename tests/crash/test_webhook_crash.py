"""A server is killed after a commit and before what it has to tell was sent: the message comes all the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.app.webhooks.receiver import Receiver, receiving
from tests.crash.connection import Connection
from tests.crash.server_process import ServerProcess, running_server
from tests.databases import DatabaseFactory

PATIENCE_S = 60
ADDRESSES, NETWORKS = "EPSILOND_WEBHOOK_ADDRESSES", "EPSILOND_WEBHOOK_NETWORKS"


def post(server: ServerProcess, path: str, body: dict[str, Any], key: str) -> dict[str, Any]:
    with Connection(server.address) as connection:
        answer = connection.send("POST", path, body, key)
        assert answer.status_code in (200, 201), vars(answer)
        return dict(answer.json())


def wait_for(receiver: Receiver, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(receiver.received) < count:
        assert time.monotonic() < deadline, f"{len(receiver.received)} messages of {count}"
        time.sleep(0.05)


@pytest.mark.thorough  # tests/app/webhooks has the shorter ones
def test_a_message_comes_after_the_server_was_killed(databases: DatabaseFactory, tmp_path: Path) -> None:
    with (
        receiving() as receiver,
        running_server(
            databases.migrated(), tmp_path, **{ADDRESSES: f"http://127.0.0.1:{receiver.port}/", NETWORKS: "127.0.0.0/8"}
        ) as server,
    ):
        limit = {"kind": "zcdp", "rho": 1}
        asked = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": limit}
        budget = post(server, "/v1/budgets", asked, "budget")["id"]
        wanted = {"url": receiver.url, "events": ["limit_requested", "spending_threshold"], "fractions": [0.5]}
        post(server, f"/v1/budgets/{budget}/webhooks", wanted, "webhook")
        post(server, f"/v1/budgets/{budget}/limit-requests", {"filter": limit, "reason": "r"}, "ask")
        wait_for(receiver, 1)
        # A server that delivers nothing stands for one that has not come to it yet.
        server.kill()
        server.environment[ADDRESSES] = ""
        server.start()
        charge = {"events": [{"mechanism": {"kind": "zcdp", "rho": 0.75}}], "reason": "r"}
        post(server, f"/v1/budgets/{budget}/corrections", charge, "charge")
        server.kill()
        assert len(receiver.received) == 1
        server.environment[ADDRESSES] = f"http://127.0.0.1:{receiver.port}/"
        server.start()
        wait_for(receiver, 2)
        assert [received.said["type"] for received in receiver.received] == ["limit_requested", "spending_threshold"]
        assert receiver.received[1].said["data"]["spent"] == {"rho": 0.75}
