"""`python -m benchmarks.gpu`: measure on a GPU with CuPy, or say that there is none, in benchmarks/results/gpu.json.

Figures that a GPU gave are not replaced by the message that there is none.
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
from benchmarks.trainer.work import TASKS, write_data

SIDES = ("cupy", "ours_on_gpu")
RATIOS = {"over_cupy": ("ours_on_gpu", "cupy")}
SCALE = Scale(rounds=15, seconds=0.5, least_steps=2)


def main() -> None:
    """Measure if it can be, write what is true, and say it."""
    output = report.FOLDER / "gpu.json"
    figures: dict[str, Any] = {"benchmark": "gpu", "command": "make bench-gpu"}
    try:
        library = device.cupy()
    except device.NoGpu as missing:
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
    }
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as name:
        write_data(Path(name))
        figures["speed"] = [side_by_side(task, Path(name), SCALE, SIDES, RATIOS) for task in TASKS]
    report.write(output, figures)
    for row in figures["speed"]:
        sys.stdout.write(
            f"{verdict(row)} {row['model']}, {row['batch_size']}: {row['ratios']['over_cupy']['ratio']:.2f}\n"
        )


if __name__ == "__main__":
    main()
