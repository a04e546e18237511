"""`python -m benchmarks.trainer.release` measures what an exact release costs, and writes
benchmarks/results/release.json.

It compares the trainer's exact noise with NumPy's normal variates from a random stream of the same kind. It also
compares a private step with a step without privacy that has the same matrix products. All run in one process and on one
thread, in turns. Times are CPU times of all threads together, and a ratio is the median over the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.report import markdown_table
from benchmarks.trainer.goals import NAMES
from benchmarks.trainer.ours import model_of, plan
from benchmarks.trainer.rounds import spread
from benchmarks.trainer.work import (
    CLASSES,
    FEATURES,
    HIDDEN,
    ROWS,
    STEP_SIZE,
    Features,
    Labels,
    Task,
    read_data,
    write_data,
)
from trainer.algorithms import EXECUTIONS
from trainer.arrays import silent
from trainer.exact.gaussian import rounded_normals
from trainer.exact.ziggurat import Sources
from trainer.loop import Task as Run
from trainer.models import LinearModel
from trainer.records import prepare
from trainer.streams import random_streams

#: The exponents k of the measured noise, whose standard deviation is 2^k steps of the grid. The last is the largest
#: that the trainer allows.
EXPONENTS = (20, 28, 34, 36)
DRAW = 1 << 17
OVER_NUMPY = 1.15
DTYPES = ("float32", "float64")
BATCH_SIZE = 1024
DISTRIBUTIONS = ("numpy", "randomgen")
SOURCES = ("trainer", "calibrators", "accounting")
Call = Callable[[], object]
Figures = Mapping[str, Any]


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("release", __doc__)
    rounds = 5 if is_quick else 61
    started = time.perf_counter()
    figures: dict[str, Any] = {
        **report.header("release", "make bench-trainer", is_quick, DISTRIBUTIONS, SOURCES),
        "normals_a_draw": DRAW,
        "batch_size": BATCH_SIZE,
        "noise": [noise(exponent, rounds) for exponent in EXPONENTS],
    }
    with TemporaryDirectory(prefix="epsilond-bench-") as name:
        write_data(Path(name))
        features, labels = read_data(Path(name))
        figures["steps"] = [
            step(Task(model, BATCH_SIZE), dtype, features, labels, rounds)
            for model in ("softmax", "mlp")
            for dtype in DTYPES
        ]
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


def goals(figures: Figures) -> list[dict[str, Any]]:
    """Return the goal for exact noise. Steps have no goal in this benchmark."""
    worst = max(row["ratio"]["ratio"] for row in figures["noise"])
    return [
        {
            "what": "CPU time of exact noise, over that of NumPy's normal variates from AES in counter mode",
            "goal": f"at most {OVER_NUMPY:g}",
            "measured": ", ".join(f"{row['ratio']['ratio']:.2f} (K = 2^{row['exponent']})" for row in figures["noise"]),
            "met": worst <= OVER_NUMPY,
        }
    ]


def in_turns(calls: Mapping[str, Call], rounds: int, each: int) -> dict[str, list[float]]:
    """Return the CPU seconds of each call in each round. The first round is dropped."""
    measured: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name in list(calls)[:: 1 if turn % 2 == 0 else -1]:
            before = time.process_time_ns()
            for _ in range(each):
                calls[name]()
            measured[name].append(1e-9 * (time.process_time_ns() - before) / each)
    return {name: seconds[1:] for name, seconds in measured.items()}


def _compared(over: list[float], under: list[float], unit: float, names: tuple[str, str]) -> dict[str, Any]:
    medians = {name: statistics.median(found) / unit for name, found in zip(names, (over, under), strict=True)}
    return {**medians, "ratio": spread([one / other for one, other in zip(over, under, strict=True)])}


def noise(exponent: int, rounds: int) -> dict[str, Any]:
    """Return the nanoseconds for each random number, by our noise and by NumPy."""
    ours, numpys = Sources.of(random_streams().noise), random_streams().noise.generator()
    scale = 2.0**exponent
    calls: dict[str, Call] = {
        "ours": lambda: rounded_normals(ours, DRAW, scale),
        "numpy": lambda: numpys.standard_normal(DRAW),
    }
    measured = in_turns(calls, rounds, 4)
    names = "nanoseconds_ours", "nanoseconds_numpy"
    return {"exponent": exponent, **_compared(measured["ours"], measured["numpy"], 1e-9 * DRAW, names)}


def step(task: Task, dtype: str, features: Features, labels: Labels, rounds: int) -> dict[str, Any]:
    """Return the milliseconds for each private step and for each plain step."""
    given, model, streams = replace(plan(task), dtype=dtype), model_of(task), random_streams()
    records = prepare(model, features, labels, dtype, ROWS, streams.slots)
    trainer = EXECUTIONS[given.algorithm].make(Run(given, model, records, streams))
    plain = Plain(task, features.astype(dtype), labels)
    with silent():
        measured = in_turns({"private": trainer.step, "plain": plain.step}, rounds, 4)
    trainer.close()
    names = "milliseconds_private", "milliseconds_plain"
    compared = _compared(measured["private"], measured["plain"], 1e-3, names)
    return {"model": task.model, "dtype": dtype, **compared}


class Plain:
    """Stochastic gradient descent in NumPy, on batches of exactly the given size that are drawn with replacement.

    Attributes:
        weights: The layers' matrices.
        biases: The layers' biases.
    """

    def __init__(self, task: Task, features: Features, labels: Labels) -> None:
        model, self._draw = model_of(task), np.random.default_rng()
        hidden = () if isinstance(model, LinearModel) else (HIDDEN,)
        shapes = list(pairwise((FEATURES, *hidden, CLASSES)))
        self._task, self._features, self._labels = task, features, labels
        self.weights = [
            (self._draw.standard_normal(shape) / np.sqrt(shape[0])).astype(features.dtype) for shape in shapes
        ]
        self.biases = [np.zeros(columns, dtype=features.dtype) for _, columns in shapes]

    def step(self) -> None:
        rows = self._draw.integers(self._features.shape[0], size=self._task.batch_size)
        values, deltas = self._forward(self._features[rows])
        deltas[np.arange(rows.size), self._labels[rows]] -= 1.0
        for layer in reversed(range(len(self.weights))):
            matrix, bias = values[layer].T @ deltas, deltas.sum(axis=0)
            if layer:
                deltas = (deltas @ self.weights[layer].T) * (values[layer] > 0.0)
            self.weights[layer] -= STEP_SIZE / self._task.batch_size * matrix
            self.biases[layer] -= STEP_SIZE / self._task.batch_size * bias

    def loss(self) -> float:
        """Return the mean cross-entropy over all rows."""
        _, likelihoods = self._forward(self._features)
        return float(-np.mean(np.log(likelihoods[np.arange(self._labels.size), self._labels])))

    def _forward(self, features: Any) -> tuple[list[Any], Any]:
        """Return each layer's inputs, and the classes' probabilities."""
        values = [features]
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            values.append(np.maximum(values[-1] @ weight + bias, 0.0))
        logits = values[-1] @ self.weights[-1] + self.biases[-1]
        found = np.exp(logits - logits.max(axis=1, keepdims=True))
        found /= found.sum(axis=1, keepdims=True)
        return values, found


def release_section(figures: Figures) -> list[str]:
    """Return the lines of the part of docs/measured.md about exact releases."""
    machine, versions = figures["machine"], figures["versions"]
    others = ", ".join(f"{name} {versions[name]}" for name in versions if name != "python")
    (goal,) = figures["goals"]
    return [
        f"`make bench-trainer`, {figures['date']}, {report.commit_of(figures)}; one thread of {machine['cpu']},",
        f"Python {versions['python']}, {others}. Times are CPU times, measured in turns; "
        f"a ratio is the median over {figures['noise'][0]['ratio']['rounds']} rounds. "
        f"The load average was {figures['load_average_before']:.1f} before.",
        f"Goal: {goal['what']}: {goal['goal']}. Measured: {goal['measured']}: "
        f"{'met' if goal['met'] else '**missed**'}.",
        "",
        *markdown_table(
            ["deviation K, in steps of the grid", "ours, ns per number", "NumPy, ns per number", "ours over NumPy"],
            [
                [
                    f"2^{row['exponent']}",
                    f"{row['nanoseconds_ours']:.1f}",
                    f"{row['nanoseconds_numpy']:.1f}",
                    _ratio(row["ratio"]),
                ]
                for row in figures["noise"]
            ],
        ),
        "",
        f"This table has a private step on padded Poisson batches of {figures['batch_size']} rows on average, beside a "
        "plain step in NumPy on as many rows, without clipping, noise or padding.",
        "",
        *markdown_table(
            ["model, dtype", "private, ms", "plain, ms", "private over plain"],
            [
                [
                    f"{NAMES[row['model']]}, {row['dtype']}",
                    f"{row['milliseconds_private']:.2f}",
                    f"{row['milliseconds_plain']:.2f}",
                    _ratio(row["ratio"]),
                ]
                for row in figures["steps"]
            ],
        ),
    ]


def _ratio(found: Figures) -> str:
    return f"{found['ratio']:.2f} ({found['smallest_ratio']:.2f} to {found['largest_ratio']:.2f})"


if __name__ == "__main__":
    main()
