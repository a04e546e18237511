"""One order is one run, one charge and one model: `kill -9` of a worker, the server, both, or the database server."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.cluster import running_cluster
from tests.crash.conftest import Say
from tests.crash.orders import sending
from tests.crash.run_campaign import SETTINGS, RunCampaign
from tests.crash.run_victims import DatabaseServer, OneWorker, RunVictim, ServerAlone, ServerAndWorkers
from tests.crash.server_process import running_server

#: New runs before each kill; a run takes some tenths of a second, and a kill comes before they have all ended.
ORDERS, STEPS, WITHIN_S = 3, 600, 0.4
MOST_MORE = 12


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.thorough)])
def test_runs_survive_whatever_is_killed_and_each_is_charged_once(tmp_path: Path, say: Say, kills: int) -> None:
    with (
        running_cluster() as cluster,
        running_server(cluster.url, tmp_path, EPSILOND_WORKERS="1", **SETTINGS) as server,
    ):
        campaign = RunCampaign(server, cluster.url, tmp_path / "var", STEPS)
        campaign.prepare()
        worker: RunVictim = OneWorker(server, campaign.random)
        database: RunVictim = DatabaseServer(cluster)
        # A server takes seconds of work to start, and with it its workers.
        victims = [worker, database, ServerAlone(server), database, worker, ServerAndWorkers(server)][:kills]
        for number, victim in enumerate((*victims, *[worker] * MOST_MORE)):
            # Too little was hit: some more kills, so that luck alone fails nobody.
            if number >= len(victims) and campaign.has_hit:
                break
            with sending(server, campaign.new_orders(ORDERS)):
                campaign.kill_once_a_run_has_started(victim, WITHIN_S)
        outcome = campaign.finish()
    say(outcome)
    outcome.check(Counter(victim.name for victim in victims))
