"""Sixty kills of the server on either engine, and sixty of the database server."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.crash.campaign import SOAK_ROUNDS, run_campaign
from tests.crash.cluster import running_cluster
from tests.crash.server_process import running_server
from tests.crash.victims import DatabaseVictim, ServerVictim
from tests.soak.report import write_report


@pytest.mark.soak
def test_sixty_killed_servers_keep_what_they_acknowledged(database_url: str, tmp_path: Path) -> None:
    with running_server(database_url, tmp_path) as server:
        outcome = run_campaign(ServerVictim(server), SOAK_ROUNDS)
    write_report(f"crash_server_on_{make_url(database_url).get_backend_name()}", "make soak", outcome.figures())
    outcome.check(SOAK_ROUNDS)
    # Among so many, kills came on both sides of the moment at which a command is decided.
    assert 0 < outcome.decided_in_flight < outcome.in_flight, outcome


@pytest.mark.soak
def test_sixty_killed_database_servers_keep_it_too(tmp_path: Path) -> None:
    with running_cluster() as cluster, running_server(cluster.url, tmp_path) as server:
        outcome = run_campaign(DatabaseVictim(server, cluster), SOAK_ROUNDS)
    write_report("crash_database_server", "make soak", outcome.figures())
    outcome.check(SOAK_ROUNDS)
