"""A thousand queued runs, and kills of whatever takes part until all of them have ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests.app.runs.executors.clusters import ClusterProcesses
from tests.crash.cluster import running_cluster
from tests.crash.orders import sending
from tests.crash.run_campaign import SETTINGS, RunCampaign
from tests.crash.run_victims import (
    DaskScheduler,
    DaskWorker,
    DatabaseServer,
    OneWorker,
    RunVictim,
    ServerAlone,
    ServerAndWorkers,
    StoppedServer,
)
from tests.crash.server_process import running_server
from tests.databases import DatabaseFactory
from tests.soak.report import write_report

#: A run takes about a tenth of a second, and a kill comes every second or so.
STEPS, WITHIN_S = 300, 1.0
#: While they are queued kills come less often: the time goes into starting the server again.
QUEUED_WITHIN_S = 8.0
WORKERS = "3"
#: Of so many kills one is of the server alone, one of the server with its workers, and one is a stop; what is killed by
#: the others comes back sooner.
KILLS_OF_THREE_SERVERS = 12


def survive(
    database_url: str, folder: Path, runs: int, report: str, others: Sequence[RunVictim] = (), **settings: str
) -> None:
    """Queue so many runs while the server is killed, have them carried out while everything is, and read the books.

    Args:
        others: What is killed as often as a worker.
        settings: More of the server's settings.
    """
    began = time.monotonic()
    with running_server(database_url, folder, EPSILOND_WORKERS=WORKERS, **SETTINGS, **settings) as server:
        campaign = RunCampaign(server, database_url, folder / "var", STEPS)
        campaign.prepare()
        # Nobody carries them out until all of them wait.
        server.environment["EPSILOND_WORKERS"] = "0"
        server.kill()
        server.start()
        alone, whole, stopped = ServerAlone(server), ServerAndWorkers(server), StoppedServer(server)
        with sending(server, campaign.new_orders(runs)) as orders:
            while orders.is_alive():
                campaign.kill(whole, QUEUED_WITHIN_S)
        queued, before = campaign.unfinished, campaign.outcome.kills.total()
        server.environment["EPSILOND_WORKERS"] = WORKERS
        server.kill()
        server.start()
        cheap = cycle([OneWorker(server, campaign.random), *others])
        victims: list[RunVictim] = [alone, whole, stopped, *islice(cheap, KILLS_OF_THREE_SERVERS - 3)]
        campaign.random.shuffle(victims)
        campaign.kill_until_all_have_ended(cycle(victims), WITHIN_S)
        outcome = campaign.finish()
    figures = {"queued_at_once": queued, "kills_while_they_were_queued": before}
    seconds = round(time.monotonic() - began)
    write_report(report, "make soak", outcome.figures() | figures | {"seconds": seconds})
    assert queued == runs
    outcome.check(Counter({victim.name: 1 for victim in victims}))


@pytest.mark.soak
def test_a_thousand_queued_runs_survive_kills_of_the_server_and_its_workers(database_url: str, tmp_path: Path) -> None:
    survive(database_url, tmp_path, 1000, f"runs_on_{make_url(database_url).get_backend_name()}")


@pytest.mark.soak
def test_queued_runs_survive_kills_of_the_database_server_too(tmp_path: Path) -> None:
    with running_cluster() as cluster:
        survive(cluster.url, tmp_path, 200, "runs_with_database_kills", [DatabaseServer(cluster)])


@pytest.mark.soak
def test_queued_runs_survive_kills_of_the_dask_scheduler_and_of_its_workers(
    sqlite_databases: DatabaseFactory, tmp_path: Path
) -> None:
    cluster = ClusterProcesses(tmp_path / "dask")
    try:
        cluster.start_scheduler()
        for _ in range(2):
            cluster.start_worker()
        others: list[RunVictim] = [DaskScheduler(cluster), DaskWorker(cluster)]
        url = sqlite_databases.migrated()
        survive(url, tmp_path, 200, "runs_on_dask", others, EPSILOND_DASK_SCHEDULER=cluster.address)
    finally:
        cluster.stop()
