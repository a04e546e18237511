"""A short world of the simulation, and twenty thousand commands beyond `make test`; `tests/soak` runs a million.

And it finds what it should find.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutations import MUTATIONS
from tests.simulation.scheduler import Fault
from tests.simulation.world import FAULTS, World, run

ROOT = Path(__file__).parents[2]
#: Even worlds have row locks, as PostgreSQL does, and odd ones one writer, as SQLite.
SEEDS, COMMANDS = (0, 1, 2, 3), 5_000
#: In a world of so many everything happens that is asked for below.
FEW_COMMANDS = 2_500
#: What quotas refuse, and what webhooks are told.
SEEN_OF_KEYS = (
    "quota refuses: entries",
    "quota refuses: open_reservations",
    "quota refuses: extensions",
    "messages to webhooks",
)


@pytest.mark.parametrize(("seed", "commands"), [(0, FEW_COMMANDS), *((seed, COMMANDS) for seed in SEEDS)])
@pytest.mark.one_in(1000)
def test_nothing_that_happens_breaks_a_promise(seed: int, commands: int) -> None:
    report = run(seed, commands)
    assert report.commands.total() == commands
    assert min(report.commands.values()) >= 5, "every command was asked"
    held = ("pending", "started", "committed", "voided", "changed", "budget_exceeded", "correction_lowers")
    asked = ("open", "approved", "refused", "withdrawn", "request_decided", "own_request", "limit_changed")
    for word in (*held, *asked, "quota_exceeded"):
        assert report.outcomes[word] > 0, word
    for fault in FAULTS:
        assert report.happened[fault] > 0, fault
    for seen in ("waits for a lock", "group of several commands", "comparisons of everything", *SEEN_OF_KEYS):
        assert report.happened[seen] > 0, seen
    assert report.refused_after_restore == 20


@pytest.mark.parametrize("name", MUTATIONS)
@pytest.mark.one_in(8)
def test_a_fault_of_the_machine_or_of_the_protocol_is_found(name: str) -> None:
    mutation = MUTATIONS[name]
    found = []
    for seed in SEEDS:
        if mutation.needs_row_locks and seed % 2:
            continue
        with mutation.made():
            try:
                run(seed, COMMANDS)
            except Fault as fault:
                found.append(str(fault))
                break
    assert found, name
    assert re.search(r"Run it again: python -m tests\.simulation --seed \d+ --commands 5000$", found[0])


def test_a_seed_repeats_a_world_to_the_step() -> None:
    """In any process, whatever the hashes of texts are there."""
    here = run(4, 400).trace_hash
    command = [sys.executable, "-m", "tests.simulation", "--seed", "4", "--commands", "400"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    printed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^trace_hash: ([0-9a-f]{64})$", printed, re.MULTILINE) == [here]
    assert run(5, 400).trace_hash != here


def test_a_seed_repeats_a_failure() -> None:
    texts, steps = [], []
    with MUTATIONS["a started hold is voided"].made():
        for _ in range(2):
            world = World(1, COMMANDS)
            with pytest.raises(Fault) as caught:
                world.run()
            texts.append(str(caught.value))
            steps.append(world.scheduler.trace_hash)
    assert texts[0] == texts[1]
    assert steps[0] == steps[1]
