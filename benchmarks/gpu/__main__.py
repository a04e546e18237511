"""`python -m benchmarks.gpu`: measure on a GPU with CuPy, and write benchmarks/results/gpu.json.

Without a GPU, the file gets a message that says so, unless it already has figures from a GPU.
"""

from __future__ import annotations

import sys
import tempfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.gpu import device
from benchmarks.gpu.markdown import OVER_CUPY, verdict
from benchmarks.trainer.__main__ import SOURCES
from benchmarks.trainer.rounds import Scale, side_by_side
from benchmarks.trainer.work import Task, write_data
from trainer.devices import DeviceUnusable, cuda_device

SIDES = ("cupy", "ours_on_gpu", "ours")
RATIOS = {"over_cupy": ("ours_on_gpu", "cupy"), "host_over_gpu": ("ours", "ours_on_gpu")}
SCALE = Scale(rounds=9, seconds=0.3, least_steps=2)
TASKS = (
    Task("softmax", 256),
    Task("softmax", 4096),
    Task("mlp", 256),
    Task("mlp", 4096),
    Task("linear", 16384),
)


def main() -> None:
    """Measure if there is a GPU, and write and print the figures. Without a GPU, write and print that there is none."""
    output = report.FOLDER / "gpu.json"
    figures: dict[str, Any] = {"benchmark": "gpu", "command": "make bench-gpu"}
    try:
        library, found = device.cupy(), cuda_device()
    except (device.NoGpu, DeviceUnusable) as missing:
        sys.stdout.write(f"not run: no GPU ({missing})\n")
        if not (output.exists() and report.read("gpu")["ran"]):
            report.write(output, figures | {"ran": False, "goal": OVER_CUPY})
        return
    (distribution, *_) = packages_distributions()["cupy"]
    figures |= {
        "ran": True,
        "goal": OVER_CUPY,
        **report.provenance(("numpy", "randomgen", distribution), SOURCES),
        "gpu": device.name(library),
        "libraries": dict(found.versions),
    }
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as name:
        figures["speed"] = [side_by_side(task, _data_of(task, Path(name)), SCALE, SIDES, RATIOS) for task in TASKS]
    report.write(output, figures)
    for row in figures["speed"]:
        over, under = (row["ratios"][name]["ratio"] for name in RATIOS)
        sys.stdout.write(
            f"{verdict(row)} {row['model']}, {row['batch_size']}: {over:.2f} times CuPy's step; the host takes "
            f"{under:.2f} times ours\n"
        )


def _data_of(task: Task, folder: Path) -> Path:
    """Return the folder with the rows of a task. The rows are written if they are missing."""
    own = folder / f"{task.rows}x{task.features}"
    if not own.exists():
        own.mkdir()
        write_data(own, task.rows, task.features)
    return own


if __name__ == "__main__":
    main()
