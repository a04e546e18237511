"""`python -m benchmarks.runs.minutes`: compare the time of the default number of steps with its estimate.

The command writes benchmarks/results/minutes.json. ``--quick`` times fewer steps, and writes elsewhere. If a request
gives no number of steps, the default is at most the number that takes a minute of one core by the estimate of
`calibrators.work`. Each case carries out some of these steps on random rows, and measures the CPU time of a step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from accounting.targets import ApproximateDpTarget
from app.algorithms.constants import Derivation
from benchmarks import report
from calibrators.draft import Draft
from calibrators.presets import Objective
from calibrators.spec import Calibration, Spec
from calibrators.work import minutes_of, work_of
from trainer.models import LinearModel, softmax_regression
from trainer.run import RunCancelled, run
from trainer.scaling import NumberColumn

CLASSES = 10
#: The numbers of rows and features. Runs on fewer rows take only seconds.
SHAPES = ((10_000, 100), (60_000, 784), (1_000_000, 100))
#: The algorithms: two with large batches, one with a single record in each step, mirror descent, and Frank-Wolfe, whose
#: steps each select a vertex of a polytope.
ALGORITHMS = ("dp_adam", "dp_sgd", "dp_sgd_output", "noisy_mirror_descent", "dp_fw")
#: The goal: a default takes at most this many times its estimate. It may take less time than estimated.
GOAL = 3.0
SECONDS, QUICK_SECONDS = 8.0, 0.5
DISTRIBUTIONS = ("numpy", "scipy", "randomgen")


def calibrated(algorithm: str, model: LinearModel, rows: int, features: int) -> Calibration:
    """Return the calibration if a request gives only the algorithm, the data, the model and the target."""
    spec = Spec(rows, ApproximateDpTarget(3.0, 1e-6), dimension=model.num_parameters, judge_published=False)
    derivation = Derivation(model, (NumberColumn(0.0, 1.0),) * features, None, None)
    return Draft(algorithm, spec, None, Objective(derivation, is_convex=True)).calibrate()


def measure(algorithm: str, rows: int, features: int, seconds: float) -> dict[str, Any]:
    """Return the estimated minutes of the default number of steps, and the minutes of CPU time that the steps take."""
    model = softmax_regression(features, CLASSES)
    found = calibrated(algorithm, model, rows, features)
    draw = np.random.default_rng(0)
    inputs, labels = draw.random((rows, features), dtype=np.float32), draw.integers(0, CLASSES, rows)
    begun, done = 0.0, 0

    def on_progress(steps: int, _all: int) -> None:
        nonlocal begun, done
        # The first step also prepares data for the others, so the clock starts after it.
        begun, done = (time.process_time(), 0) if steps <= 1 else (begun, steps - 1)

    def is_enough() -> bool:
        return done > 0 and time.process_time() - begun >= seconds

    with suppress(RunCancelled):
        run(found.plan, model, inputs, labels, seed=0, on_progress=on_progress, is_cancelled=is_enough)
    taken = (time.process_time() - begun) / done * found.plan.iterations / 60.0
    stated = minutes_of(work_of(found, model.num_parameters))
    return {
        "algorithm": algorithm,
        "rows": rows,
        "features": features,
        "steps": found.plan.iterations,
        "steps_timed": done,
        "minutes_stated": stated,
        "minutes": taken,
        "ratio": taken / stated,
    }


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for the estimate."""
    ratios = [each["ratio"] for each in figures["cases"]]
    return [
        {
            "what": "CPU time of the default number of steps, over the estimate",
            "goal": f"at most {GOAL:g}",
            "measured": f"{min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} cases",
            "met": all(ratio <= GOAL for ratio in ratios),
        }
    ]


def minutes_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section: the goal, then every figure."""
    rows = [
        [
            each["algorithm"],
            f"{each['rows']} x {each['features']}",
            str(each["steps"]),
            f"{each['minutes_stated']:.2g}",
            f"{each['minutes']:.2g}",
            f"{each['ratio']:.2f}",
        ]
        for each in figures["cases"]
    ]
    header = ["algorithm", "rows", "steps", "minutes, estimated", "minutes, from the steps timed", "ratio"]
    return [
        f"`{figures['command']}`, {figures['date']}, {report.commit_of(figures)}.",
        "If a request gives no number of steps, the service chooses one by an estimate of the time. This table "
        f"compares the estimate with the CPU time, for softmax regression with {CLASSES} classes on one core of "
        f"{figures['machine']['cpu']}.",
        "All figures are in [minutes.json](../benchmarks/results/minutes.json).",
        "",
        *report.goals_table(figures["goals"]),
        "",
        *report.markdown_table(header, rows),
    ]


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("minutes", __doc__)
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        raise SystemExit("set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1, since the estimate is for one core")
    started = time.perf_counter()
    command = "python -m benchmarks.runs.minutes"
    figures = report.header("minutes", command, is_quick, DISTRIBUTIONS, ["calibrators", "trainer"])
    seconds = QUICK_SECONDS if is_quick else SECONDS
    figures["cases"] = [
        measure(algorithm, rows, features, seconds) for rows, features in SHAPES for algorithm in ALGORITHMS
    ]
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
