"""`python -m benchmarks.trainer.child SIDE MODEL BATCH_SIZE FOLDER` runs one side of the benchmark in its own process.

First the process writes a description of the side. Then it reads commands (`benchmarks.trainer.pace`) from its standard
input.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.trainer.pace import Pace, resident_bytes
from benchmarks.trainer.work import Features, Labels, Task, read_data

CORES = 2


def main(side: str, model: str, batch_size: str, folder: str) -> None:
    """Describe the side, and train as commanded until the command to stop."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # lines that a library prints must not be read as answers
    warnings.simplefilter("ignore")  # Opacus warns about torch, torch about Opacus
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    train = prepare(side, Task(model, int(batch_size)))
    description = {"cores": len(os.sched_getaffinity(0)), "libraries_bytes": resident_bytes()}
    answers.write(json.dumps(description) + "\n")
    answers.flush()
    train(*read_data(Path(folder)), Pace(sys.stdin, answers))


def prepare(side: str, task: Task) -> Callable[[Features, Labels, Pace], None]:
    """Return a function that trains as the side does. Only the modules that the side needs are loaded."""
    ours = dict.fromkeys(("ours", "ours_cut", "ours_fixed"), "trainer.ours")
    module = (ours | {"ours_on_gpu": "gpu.ours", "cupy": "gpu.plain"}).get(side, "trainer.torch_sides")
    train: Callable[[Features, Labels, Pace], None] = import_module(f"benchmarks.{module}").prepare(side, task)
    return train


if __name__ == "__main__":
    main(*sys.argv[1:])
