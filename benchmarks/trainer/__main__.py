"""`python -m benchmarks.trainer`: measure everything, and write benchmarks/results/trainer.json.

``--quick`` measures less, for people who work on the benchmark itself. Its figures are written elsewhere and are not
shown in docs/measured.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.trainer.goals import goals
from benchmarks.trainer.rounds import Scale, memory, side_by_side
from benchmarks.trainer.work import CLASSES, FEATURES, MAX_GRAD_NORM, NOISE_MULTIPLIER, ROWS, TASKS, write_data

DISTRIBUTIONS = ("numpy", "randomgen", "torch", "opacus")
SOURCES = ("trainer", "calibrators", "accounting")

FULL = Scale(rounds=15, seconds=0.6, least_steps=2)
QUICK = Scale(rounds=3, seconds=0.2, least_steps=1)


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="measure less, and write to var/, not to the committed file"
    )
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    committed, quick = report.FOLDER / "trainer.json", report.ROOT / "var" / "trainer.quick.json"
    output = arguments.output or (quick if arguments.quick else committed)
    scale = QUICK if arguments.quick else FULL
    started = time.perf_counter()
    figures: dict[str, Any] = {
        **report.header("trainer", "make bench-trainer", arguments.quick, DISTRIBUTIONS, SOURCES),
        "data": {"rows": ROWS, "features": FEATURES, "classes": CLASSES, "dtype": "float32"},
        "privacy": {"max_grad_norm": MAX_GRAD_NORM, "noise_multiplier": NOISE_MULTIPLIER},
        "seconds_a_side_and_round": scale.seconds,
        "speed": [],
        "memory": [],
    }
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as name:
        folder = Path(name)
        write_data(folder)
        for task in TASKS:
            begun = time.perf_counter()
            figures["speed"].append(side_by_side(task, folder, scale))
            figures["memory"].append(memory(task, folder))
            sys.stderr.write(f"{task.model}, batches of {task.batch_size}: {time.perf_counter() - begun:.0f} s\n")
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
