"""This module compares reserving and committing over many budgets with pgbench, in turns on the same PostgreSQL."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.ledger import ours, work
from benchmarks.ledger.pgbench import Client, PgBench
from benchmarks.ledger.processes import Gate, at_once

BUDGETS = 256
#: The limit of each budget, which is so high that no command is denied.
LIMIT = 1000.0
CALLERS = 64
WARM_UP_PAIRS = 4

CLIENTS = tuple(Client(mode, clients) for mode in ("simple", "prepared") for clients in (8, 16))
#: The query mode of pgbench in the goal, which is its default. The goal takes its best number of clients.
HEADLINE_MODE = "simple"


@dataclass(frozen=True, slots=True)
class Layout:
    """A number of processes, each with `CALLERS` concurrent callers, that send commands to `BUDGETS` budgets with one
    kind of filter."""

    filter: str
    processes: int


LAYOUTS = tuple(Layout(kind, processes) for kind in work.FILTERS for processes in (1, 2))


@dataclass(frozen=True, slots=True)
class Done:
    """The number of pairs that one process made, and the times at which it began and ended, by the machine's
    monotonic clock."""

    pairs: int
    began: float
    ended: float


def beside_pgbench(bench: PgBench, url: str, data_dir: Path, rounds: int, seconds: int) -> dict[str, Any]:
    """Return the transactions per second of both sides, each measured for ``seconds`` in every round.

    Args:
        bench: The pgbench on the server that also has the database at ``url``.
        url: The URL of a migrated database for the ledger.
        data_dir: The folder with the ledger's secret.
        rounds: The number of rounds; every other round has the reverse order.
        seconds: The time that one measurement takes.
    """
    budgets = {kind: open_budgets(url, data_dir, kind) for kind in work.FILTERS}

    def pairs_per_second(layout: Layout, for_seconds: float) -> float:
        spend = [
            (url, data_dir, budgets[layout.filter], for_seconds, random.randrange(2**32))
            for _ in range(layout.processes)
        ]
        return rate(at_once(spend_over_many, spend))

    contenders: dict[Client | Layout, Callable[[int], float]] = {}
    for client, layout in zip_longest(CLIENTS, LAYOUTS):
        if client is not None:
            contenders[client] = partial(bench.transactions_per_second, client)
        contenders[layout] = partial(pairs_per_second, layout)
    for measure in contenders.values():
        measure(1)
    measured: dict[Client | Layout, list[float]] = {contender: [] for contender in contenders}
    for turn in range(rounds):
        for contender in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
            measured[contender].append(contenders[contender](seconds))
    return figures(
        {client: measured[client] for client in CLIENTS}, {layout: measured[layout] for layout in LAYOUTS}, seconds
    )


def figures(
    pgbench: Mapping[Client, Sequence[float]], pairs: Mapping[Layout, Sequence[float]], seconds: float
) -> dict[str, Any]:
    """Return the medians of both sides, and the ledger's commands per second (two for each pair) divided by pgbench's
    transactions per second.
    """
    best = {
        mode: max((client for client in pgbench if client.mode == mode), key=lambda c: statistics.median(pgbench[c]))
        for mode in dict.fromkeys(client.mode for client in pgbench)
    }
    rows = []
    for layout, each_round in pairs.items():
        row: dict[str, Any] = asdict(layout) | {
            "callers": layout.processes * CALLERS,
            "pairs_per_second": statistics.median(each_round),
            "commands_per_second": 2 * statistics.median(each_round),
            "each_round": list(each_round),
        }
        for mode, client in best.items():
            ratios = [2 * ours / theirs for ours, theirs in zip(each_round, pgbench[client], strict=True)]
            row[f"over_{mode}"] = spread(ratios)
        rows.append(row)
    return {
        "seconds": seconds,
        "budgets": BUDGETS,
        "headline": asdict(best[HEADLINE_MODE]),
        "pgbench": [
            asdict(client) | {"tps": statistics.median(each_round), "each_round": list(each_round)}
            for client, each_round in pgbench.items()
        ],
        "ours": rows,
    }


def spread(ratios: Sequence[float]) -> dict[str, Any]:
    """Return the median, the smallest and the largest of the rounds' ratios."""
    return {
        "ratio": statistics.median(ratios),
        "smallest_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "rounds": len(ratios),
    }


def rate(done: Sequence[Done]) -> float:
    """Return the pairs per second of all processes together, over the time in which any of them worked.

    >>> rate([Done(30, 0.0, 2.0), Done(10, 1.0, 4.0)])
    10.0
    """
    return sum(one.pairs for one in done) / (max(one.ended for one in done) - min(one.began for one in done))


def open_budgets(url: str, data_dir: Path, kind: str, limit: float = LIMIT, number: int = BUDGETS) -> list[str]:
    """Open ``number`` budgets and return their ids."""
    with ours.ledger(url, data_dir) as context:
        request = work.budget_request(kind, limit)
        return [ours.create_budget(context, request, new_key("budget", index)) for index in range(number)]


def new_key(*parts: object) -> str:
    """Return an idempotency key that nobody else has used."""
    return "-".join(map(str, (*parts, f"{random.getrandbits(64):x}")))


def spend_over_many(gate: Gate, url: str, data_dir: Path, budget_ids: Sequence[str], seconds: float, seed: int) -> Done:
    """Let `CALLERS` coroutines of one event loop reserve from random budgets and commit, again and again."""
    with ours.ledger(url, data_dir) as context:

        async def call(number: int, *, until: float, at_most: float) -> int:
            draw, pairs = random.Random(seed + number), 0
            while pairs < at_most and time.monotonic() < until:
                budget_id, count = draw.choice(budget_ids), draw.randint(1, work.COUNTS)
                await ours.spend(context, budget_id, [work.event(count)], new_key("pair"))
                pairs += 1
            return pairs

        async def all_call(first: int, *, until: float, at_most: float) -> int:
            callers = [call(first + number, until=until, at_most=at_most) for number in range(CALLERS)]
            return sum(await asyncio.gather(*callers))

        with asyncio.Runner() as runner:
            runner.run(all_call(0, until=float("inf"), at_most=WARM_UP_PAIRS))
            gate()
            began = time.monotonic()
            pairs = runner.run(all_call(CALLERS, until=began + seconds, at_most=float("inf")))
            return Done(pairs, began, time.monotonic())
