"""What every side trains, on what: the sizes are those of MNIST, the values are public random numbers."""

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
MAX_GRAD_NORM = 1.0
NOISE_MULTIPLIER = 1.0
#: Small, so that no side's parameters run away in the thousands of steps that are timed.
STEP_SIZE = 0.01

#: The sides, in the order of a round. Ours is next to the one that it has to keep up with.
SIDES = ("torch", "ours", "ghost", "hooks")
MODELS = ("softmax", "mlp")
BATCH_SIZES = (256, 1024)


@dataclass(frozen=True, slots=True)
class Task:
    """One training that all sides do.

    Attributes:
        model: "softmax" (784 inputs with an intercept, 10 classes) or "mlp" (784-256-10, ReLU, biases).
        batch_size: rows of a step; their expected number where batches are Poisson.
    """

    model: str
    batch_size: int

    @property
    def sampling_probability(self) -> float:
        return self.batch_size / ROWS


TASKS = tuple(Task(model, batch_size) for model in MODELS for batch_size in BATCH_SIZES)

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


def write_data(folder: Path, rows: int = ROWS) -> None:
    """Features in [0, 1) and, for labels, what a random linear rule makes of them, as files that each side reads."""
    draw = np.random.default_rng(0)
    features = draw.random((rows, FEATURES), dtype=np.float32)
    rule = draw.standard_normal((FEATURES, CLASSES), dtype=np.float32)
    np.save(folder / "features.npy", features)
    np.save(folder / "labels.npy", np.argmax((features - 0.5) @ rule, axis=1).astype(np.int64))


def read_data(folder: Path) -> tuple[Features, Labels]:
    """The arrays that `write_data` made: (n, 784) float32 and (n,) int64."""
    features: Any = np.load(folder / "features.npy")
    labels: Any = np.load(folder / "labels.npy")
    return features, labels
