"""This module compares the times of reading a budget with a million entries and one with a thousand over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.kit.pagination import encode_cursor
from benchmarks import http_servers
from benchmarks.ledger import ours, work
from benchmarks.ledger.filling import TEMPLATES, filled_budget
from benchmarks.timing import Effort, in_turns

PAGE = 50


def of_long_and_short(url: str, data_dir: Path, few: int, many: int, effort: Effort) -> dict[str, Any]:
    """Return the times of one GET of the budgets with ``few`` and with ``many`` entries, in turns on one connection.

    Args:
        url: The URL of a migrated database without budgets.
        data_dir: The service's folder.
        few: The number of entries of the short history.
        many: The number of entries of the long history.
        effort: The rounds and the time for each kind of GET.
    """
    with ours.ledger(url, data_dir) as context:
        begun = time.perf_counter()
        short, long = filled_budget(context, few), filled_budget(context, many)
        filled = time.perf_counter() - begun
        name = "SQLite" if context.database.is_sqlite else "PostgreSQL"
    figures: dict[str, Any] = {
        "database": name,
        "few": few,
        "many": many,
        "entries_by_single_commands": 2 * TEMPLATES + 1,
        "seconds_to_fill": filled,
    }
    with http_servers.service(url, data_dir) as server, http_servers.client(server) as client:
        for read, path in paths().items():
            of_short, of_long = _reader(client, path(short, few)), _reader(client, path(long, many))
            _, comparison = in_turns(of_short, of_long, effort, calls_of_first=1)
            figures[read] = _named(asdict(comparison))
    return figures


def paths() -> Mapping[str, Callable[[str, int], str]]:
    """Return the paths of the timed GETs, for a budget's id and the number of its entries."""
    return {
        "budget": lambda budget_id, _: f"/v1/budgets/{budget_id}",
        "report": lambda budget_id, _: f"/v1/budgets/{budget_id}?delta={work.DELTA}",
        "first_page": lambda budget_id, _: f"/v1/budgets/{budget_id}/entries?limit={PAGE}",
        "last_page": lambda budget_id, entries: (
            f"/v1/budgets/{budget_id}/entries?limit={PAGE}&cursor={encode_cursor(entries - PAGE)}"
        ),
    }


def _reader(client: http_servers.Client, path: str) -> Callable[[int], Any]:
    return lambda _: client.get(path)


def _named(comparison: dict[str, Any]) -> dict[str, Any]:
    return {
        "few_milliseconds": comparison.pop("first_milliseconds"),
        "many_milliseconds": comparison.pop("second_milliseconds"),
    } | comparison
