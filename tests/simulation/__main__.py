"""One world again: `python -m tests.simulation --seed 7 --commands 10000`."""

from __future__ import annotations

import argparse

from tests.simulation.world import timed

parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
parser.add_argument(
    "--seed", type=int, required=True, help="Of the world; odd ones have one writer, even ones row locks."
)
parser.add_argument("--commands", type=int, default=10_000, help="How many are asked.")
given = parser.parse_args()
report, seconds = timed(given.seed, given.commands)
for name, value in vars(report).items():
    print(f"{name}: {dict(value) if hasattr(value, 'items') else value}")
print(f"seconds: {seconds:.1f}")
