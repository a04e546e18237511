"""One world again: `python -m tests.simulation --seed 7 --commands 10000`."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.world import timed

parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
parser.add_argument(
    "--seed", type=int, required=True, help="Of the world; odd ones have one writer, even ones row locks."
)
parser.add_argument("--commands", type=int, default=10_000, help="How many are asked.")
given = parser.parse_args()
report, seconds = timed(given.seed, given.commands)
told = {name: dict(value) if hasattr(value, "items") else value for name, value in vars(report).items()}
sys.stdout.writelines(f"{name}: {value}\n" for name, value in {**told, "seconds": round(seconds, 1)}.items())
