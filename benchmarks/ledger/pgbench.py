"""This module runs pgbench, the benchmark of PostgreSQL, with its default script, which resembles TPC-B."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ledger.postgresql import PostgreSql, libpq_url

SCALE = 10
THREADS = 2

_TPS = re.compile(r"^tps = ([0-9.]+) \(without initial connection time\)$", re.MULTILINE)
_FAILED = re.compile(r"^number of failed transactions: (\d+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Client:
    """The settings of pgbench: ``mode`` is the query protocol, ``clients`` the number of connections."""

    mode: str
    clients: int


class PgBench:
    """A pgbench whose own database is filled at the scale factor `SCALE`."""

    def __init__(self, server: PostgreSql) -> None:
        self._program = server.programs / "pgbench"
        self._url = libpq_url(server.create_database())
        _run(self._program, "-i", "-q", "-s", str(SCALE), self._url)

    def transactions_per_second(self, client: Client, seconds: int) -> float:
        """Return the transactions per second that ``client`` reaches in the given time."""
        spec = ("-M", client.mode, "-c", str(client.clients), "-j", str(THREADS), "-T", str(seconds))
        return tps_in(_run(self._program, *spec, self._url))


def tps_in(output: str) -> float:
    """Return the transactions per second from pgbench's output.

    Raises:
        ValueError: If the output has no such number, or if a transaction failed, since the number is then not
            comparable.
    """
    tps, failed = _TPS.search(output), _FAILED.search(output)
    if tps is None or failed is None or int(failed[1]) > 0:
        raise ValueError(f"pgbench did not finish its transactions:\n{output}")
    return float(tps[1])


def _run(program: Path, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pgbench failed: {done.stderr}")
    return done.stdout
