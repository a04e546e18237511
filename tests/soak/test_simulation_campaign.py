"""A million commands of the simulation, in a hundred worlds; a world that fails names its seed, and repeats."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import pytest

from tests.simulation.world import Report, run
from tests.soak.report import write_report

SEEDS = range(1000, 1100)
COMMANDS = 10_000


@pytest.mark.soak
def test_a_million_commands() -> None:
    began = time.perf_counter()
    with ProcessPoolExecutor(os.cpu_count() or 1, get_context("spawn")) as pool:
        reports: list[Report] = list(pool.map(partial(run, commands=COMMANDS), SEEDS))
    seconds = time.perf_counter() - began
    commands, outcomes, happened = Counter[str](), Counter[str](), Counter[str]()
    for report in reports:
        commands += report.commands
        outcomes += report.outcomes
        happened += report.happened
    traces = hashlib.sha256("".join(report.trace_hash for report in reports).encode()).hexdigest()
    write_report(
        "simulation",
        "make soak",
        {
            "seeds": [SEEDS.start, SEEDS.stop - 1],
            "worlds": len(reports),
            "commands": commands.total(),
            "attempts": sum(report.attempts for report in reports),
            "entries": sum(report.entries for report in reports),
            "steps": sum(report.steps for report in reports),
            "refused_after_restore": sum(report.refused_after_restore for report in reports),
            "faults": 0,
            "seconds": round(seconds),
            "trace_hash": traces,
            "commands_by_kind": dict(commands.most_common()),
            "outcomes": dict(outcomes.most_common()),
            "happened": dict(happened.most_common()),
        },
    )
    assert commands.total() == len(SEEDS) * COMMANDS
