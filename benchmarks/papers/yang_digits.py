"""This reproduction is a small version of the experiment of Yang, Zhang, Chen & Liu 2022. It measures accuracies for
several step sizes and clip thresholds or regularisers.

The paper trains a ResNet on CIFAR-10 and finds that DP-NSGD's accuracy hardly depends on the regulariser r, while
DP-SGD's accuracy depends on step size and clip threshold c jointly. Here a perceptron with one hidden layer is trained
on the public 8 x 8 digits of scikit-learn, of which a fifth is held out. Noise, sampling and bounds are real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from app.datasets import bundled
from benchmarks.papers.reproduction import HeatMap, Reproduction, slope
from calibrators.plan import Clip, GradientBound, Normalize
from calibrators.registry import calibrate
from calibrators.spec import Spec
from trainer.models import MultilayerPerceptron
from trainer.run import run
from trainer.scaling import NumberColumn, scale_features

NAME = "yang_digits"
TITLE = "Digits: step size against clip threshold and regulariser (Yang et al., section 4)"

EPSILON, DELTA = 4.0, 1e-5
HIDDEN = 32
BATCH = 256
HELD_OUT = 360
THRESHOLDS = tuple(10.0 ** (k / 2) for k in range(-4, 3))
REGULARIZERS = (1e-4, 1e-3, 1e-2, 0.1, 10**-0.5, 1.0, 10**0.5, 10.0)
#: An accuracy counts as good if it is at most this far below the best of its grid.
NEAR = 0.03

Vector = npt.NDArray[np.float64]
Data = tuple[Vector, npt.NDArray[np.int64], Vector, npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Grid:
    """A grid of accuracies, with ``values[j, i]`` at step size j and threshold or regulariser i."""

    algorithm: str
    step_sizes: tuple[float, ...]
    bounds: tuple[float, ...]
    values: Vector

    @property
    def best(self) -> float:
        return float(self.values.max())

    @property
    def _best_at(self) -> tuple[int, int]:
        j, i = np.unravel_index(int(self.values.argmax()), self.values.shape)
        return int(j), int(i)

    @property
    def best_step(self) -> float:
        return self.step_sizes[self._best_at[0]]

    @property
    def best_bound(self) -> float:
        return self.bounds[self._best_at[1]]

    @property
    def good(self) -> list[float]:
        """The thresholds or regularisers whose accuracy, at the best step size, is near the best."""
        accuracies = self.values[self._best_at[0]]
        return [bound for bound, value in zip(self.bounds, accuracies, strict=True) if value >= self.best - NEAR]

    @property
    def exponent(self) -> float:
        """The exponent of the best step size as a power of the threshold or regulariser. Values whose best step size is
        at the edge of the grid are left out."""
        rows = self.values.argmax(axis=0)
        inside = [i for i, row in enumerate(rows) if 0 < row < len(self.step_sizes) - 1]
        return slope([self.bounds[i] for i in inside], [self.step_sizes[int(rows[i])] for i in inside])

    def loss(self, away: int) -> float:
        """Return the loss of accuracy at the step size that is ``away`` places from the best one."""
        j, i = self._best_at
        return self.best - float(self.values[min(max(j + away, 0), len(self.step_sizes) - 1), i])

    def rows(self) -> list[dict[str, Any]]:
        """Return, for each threshold or regulariser, its best accuracy and the accuracy at the grid's best step
        size."""
        return [
            {
                "algorithm": self.algorithm,
                "threshold or regulariser": bound,
                "best accuracy": float(self.values[:, i].max()),
                "at step size": self.step_sizes[int(self.values[:, i].argmax())],
                "accuracy at the grid's best step size": float(self.values[self._best_at[0], i]),
            }
            for i, bound in enumerate(self.bounds)
        ]

    def plot(self) -> HeatMap:
        return {
            "kind": "heat_map",
            "title": f"{self.algorithm}: accuracy on held-out digits",
            "x": list(self.bounds),
            "y": list(self.step_sizes),
            "values": self.values.tolist(),
            "x_label": "clip threshold c" if self.algorithm == "dp_sgd" else "regulariser r",
            "y_label": "step size",
        }


def data() -> Data:
    """Return training rows and labels, and held-out rows and labels, scaled by the declared bounds of a pixel."""
    features, labels = bundled.load("ds_digits")
    scaled = scale_features([NumberColumn(0.0, 16.0)] * features.shape[1], list(features.T))
    order = np.random.default_rng(0).permutation(len(labels))
    held_out, trained_on = order[:HELD_OUT], order[HELD_OUT:]
    classes = labels.astype(np.int64)
    return scaled[trained_on], classes[trained_on], scaled[held_out], classes[held_out]


def accuracy(algorithm: str, bound: GradientBound, step_size: float, steps: int, rows: Data, runs: int) -> float:
    """Return the mean accuracy over runs, on the held-out rows."""
    x, y, held_x, held_y = rows
    spec = Spec(
        dataset_size=len(y),
        target=ApproximateDpTarget(EPSILON, DELTA),
        batch_size=BATCH,
        iterations=steps,
        sampling="poisson",
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        gradient_bound=bound,
        step_size=step_size,
    )
    plan = replace(calibrate(algorithm, spec).plan, dtype="float32")
    model = MultilayerPerceptron(x.shape[1], 10, hidden=(HIDDEN,), activation="tanh")
    scores = [model.score(run(plan, model, x, y, seed=seed).parameters, held_x, held_y) for seed in range(runs)]
    return float(np.mean(scores))


def reproduce(quick: bool) -> Reproduction:
    """Return both grids: every step size with every clip threshold, and every step size with every regulariser."""
    runs, steps = (1, 60) if quick else (4, 200)
    step_sizes = [4.0**k for k in (range(0, 4) if quick else range(-2, 5))]
    rows_of_data = data()
    grids = [
        _grid("dp_sgd", Clip, step_sizes, THRESHOLDS[::3] if quick else THRESHOLDS, steps, rows_of_data, runs),
        _grid(
            "dp_nsgd", Normalize, step_sizes, REGULARIZERS[::3] if quick else REGULARIZERS, steps, rows_of_data, runs
        ),
    ]
    return {
        "inputs": {
            "epsilon": EPSILON,
            "delta": DELTA,
            "training rows": len(rows_of_data[1]),
            "held-out rows": HELD_OUT,
            "model": f"tanh perceptron 64-{HIDDEN}-10",
            "batch": f"{BATCH}, poisson",
            "relation": "add_or_remove_one",
            "steps": steps,
            "runs per cell": runs,
            "dtype": "float32",
        },
        "rows": [row for grid in grids for row in grid.rows()],
        "sentences": _sentences(*grids),
        "plots": [grid.plot() for grid in grids],
    }


def _grid(
    algorithm: str,
    kind: Callable[[float], GradientBound],
    step_sizes: Sequence[float],
    bounds: Sequence[float],
    steps: int,
    rows: Data,
    runs: int,
) -> Grid:
    values = [[accuracy(algorithm, kind(bound), step, steps, rows, runs) for bound in bounds] for step in step_sizes]
    return Grid(algorithm, tuple(step_sizes), tuple(bounds), np.array(values))


def _sentences(sgd: Grid, nsgd: Grid) -> list[str]:
    apart = abs(sgd.best - nsgd.best)
    return [
        f"The best accuracy is {sgd.best:.3f} with clipping (c = {sgd.best_bound:.3g}, eta = {sgd.best_step:g}) and "
        f"{nsgd.best:.3f} with normalisation (r = {nsgd.best_bound:.3g}, eta = {nsgd.best_step:g}). "
        + ("If both are tuned, they are alike." if apart < NEAR else "They differ even if both are tuned."),
        f"At its best step size DP-NSGD stays within {NEAR:g} of its best accuracy for r from {nsgd.good[0]:.3g} to "
        f"{nsgd.good[-1]:.3g}, which are {len(nsgd.good)} of {len(nsgd.bounds)} regularisers. DP-SGD does for c from "
        f"{sgd.good[0]:.3g} to {sgd.good[-1]:.3g}, which are {len(sgd.good)} of {len(sgd.bounds)} clip thresholds.",
        f"The best step size of DP-SGD varies with the threshold as c^{sgd.exponent:.2f}, so eta and c have to be "
        f"tuned together. That of DP-NSGD varies as r^{nsgd.exponent:.2f}. Only best step sizes inside the grid count.",
        "Both need tuning. If the step size is four times too small or too large, the accuracy of DP-NSGD falls by "
        f"{nsgd.loss(-1):.3f} or {nsgd.loss(1):.3f}, and that of DP-SGD by {sgd.loss(-1):.3f} or {sgd.loss(1):.3f}.",
    ]
