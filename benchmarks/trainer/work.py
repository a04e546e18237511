"""This module has the trainings of all sides, and their data, which are public random numbers in the sizes of MNIST."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ROWS = 60_000
FEATURES = 784
CLASSES = 10
HIDDEN = 256
#: The rows and features of the linear regression, which only the benchmark for GPUs trains.
LINEAR_ROWS, LINEAR_FEATURES = 10**6, 100
MAX_GRAD_NORM = 1.0
NOISE_MULTIPLIER = 1.0
#: The step size. It is small, so that no side's parameters diverge in thousands of steps.
STEP_SIZE = 0.01

#: The sides in the order of a round. Our three kinds of batches are next to the sides with which they are compared.
SIDES = ("torch", "ours", "ours_cut", "ours_fixed", "ghost", "hooks")
MODELS = ("softmax", "mlp")
BATCH_SIZES = (256, 1024)


@dataclass(frozen=True, slots=True)
class Task:
    """A training that each side carries out.

    Attributes:
        model: "softmax" (784 inputs with an intercept, 10 classes), "mlp" (784-256-10, ReLU, biases) or "linear"
            (least squares with 100 inputs and an intercept, on many rows).
        batch_size: The number of rows of a step, or the expected number if batches are Poisson.
    """

    model: str
    batch_size: int

    @property
    def rows(self) -> int:
        return LINEAR_ROWS if self.model == "linear" else ROWS

    @property
    def features(self) -> int:
        return LINEAR_FEATURES if self.model == "linear" else FEATURES

    @property
    def sampling_probability(self) -> float:
        return self.batch_size / self.rows


TASKS = tuple(Task(model, batch_size) for model in MODELS for batch_size in BATCH_SIZES)

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def write_data(folder: Path, rows: int = ROWS, width: int = FEATURES) -> None:
    """Write features in [0, 1), and the labels that a random linear rule gives them, to files that each side reads."""
    draw = np.random.default_rng(0)
    features = draw.random((rows, width), dtype=np.float32)
    rule = draw.standard_normal((width, CLASSES), dtype=np.float32)
    np.save(folder / "features.npy", features)
    np.save(folder / "labels.npy", np.argmax((features - 0.5) @ rule, axis=1).astype(np.int64))


def read_data(folder: Path) -> tuple[Features, Labels]:
    """Return the arrays that `write_data` made: (n, p) float32 and (n,) int64."""
    features: Any = np.load(folder / "features.npy")
    labels: Any = np.load(folder / "labels.npy")
    return features, labels
