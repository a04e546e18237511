"""The server of the benchmark: durable, with errors that nobody can swallow, and pgbench on it."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import DatabaseError

from benchmarks.ledger.pgbench import Client, PgBench, tps_in
from benchmarks.ledger.postgresql import errors_in, execute, postgresql

OUTPUT = """transaction type: <builtin: TPC-B (sort of)>
number of transactions actually processed: 18549
number of failed transactions: 0 (0.000%)
latency average = 1.726 ms
tps = 4634.138176 (without initial connection time)
"""


@pytest.mark.thorough
def test_the_server_is_durable_runs_pgbench_and_logs_each_error_with_its_database() -> None:
    with postgresql() as server:
        settings = server.settings()
        assert (settings["fsync"], settings["synchronous_commit"]) == ("on", "on")
        url, other = server.create_database(), server.create_database()
        with pytest.raises(DatabaseError):
            execute(url, "DO $$ BEGIN RAISE EXCEPTION SQLSTATE '40001'; END $$")
        with pytest.raises(DatabaseError):
            execute(other, "SELECT 1 / 0")
        assert server.errors(url) == {"40001": 1}
        assert server.errors(other) == {"22012": 1}
        assert PgBench(server).transactions_per_second(Client("prepared", 2), 1) > 0.0


def test_what_pgbench_prints_is_read() -> None:
    assert tps_in(OUTPUT) == 4634.138176


@pytest.mark.parametrize(
    "output", ["", OUTPUT.replace("tps", "rate"), OUTPUT.replace("failed transactions: 0", "failed transactions: 3")]
)
def test_a_run_of_pgbench_that_failed_is_no_figure(output: str) -> None:
    with pytest.raises(ValueError, match="did not finish"):
        tps_in(output)


def test_only_errors_of_the_database_are_counted() -> None:
    log = """2026 [7] sqlstate=00000 database=a LOG:  checkpoint starting
2026 [7] sqlstate=40P01 database=a ERROR:  deadlock detected
2026 [7] sqlstate=40P01 database=a DETAIL:  Process 7 waits
2026 [8] sqlstate=40001 database=ab ERROR:  could not serialize access
2026 [9] sqlstate=57P01 database=a FATAL:  terminating connection
"""
    assert errors_in(log, "a") == {"40P01": 1, "57P01": 1}
