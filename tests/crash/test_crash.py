"""Acknowledged is durable, unacknowledged is all or nothing: `kill -9` of the server, and of the database server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.campaign import ROUNDS, run_campaign
from tests.crash.cluster import running_cluster
from tests.crash.conftest import Say
from tests.crash.server_process import running_server
from tests.crash.victims import DatabaseVictim, ServerVictim

each_number_of_rounds = pytest.mark.parametrize("rounds", [1, pytest.param(ROUNDS, marks=pytest.mark.thorough)])


@each_number_of_rounds
def test_a_killed_server_keeps_what_it_acknowledged_and_leaves_nothing_half_done(
    database_url: str, tmp_path: Path, say: Say, rounds: int
) -> None:
    with running_server(database_url, tmp_path) as server:
        outcome = run_campaign(ServerVictim(server), rounds)
    say(outcome)
    outcome.check(rounds)


@pytest.mark.thorough  # tests/faults/test_database_away.py has the shorter one
@each_number_of_rounds
def test_a_killed_database_server_keeps_it_too_and_the_service_answers_503_until_it_is_back(
    tmp_path: Path, say: Say, rounds: int
) -> None:
    with running_cluster() as cluster, running_server(cluster.url, tmp_path) as server:
        outcome = run_campaign(DatabaseVictim(server, cluster), rounds)
    say(outcome)
    outcome.check(rounds)
