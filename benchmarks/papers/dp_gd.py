"""This reproduction runs DP-GD in the settings of Theorems 6.2 (Polyak-Lojasiewicz, PL) and 6.3 (no convexity) of Wang,
Ye & Xu 2017.

**PL.** The problem is least squares on rows of a scaled Hadamard matrix, so that the Hessian is diagonal, known, and
the same for every n. So the PL constant mu, the smoothness L, the initial gap D_0 and the minimum are exact. The
expected risk after every step is also exact, and the trainer's result is compared with it, too.

**No convexity.** The loss is (sigmoid(x . w) - y)^2 on rows of norm 1. For every w its gradients have a norm of at most
8/27 and its curvature is below 0.16, so nothing is clipped anywhere, and D_0 = 1/4 is known without looking at data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard
from scipy.special import expit

from accounting.targets import ApproximateDpTarget
from benchmarks.papers.path import Path
from benchmarks.papers.reproduction import Cell, Lines, Reproduction, mean_and_error, only_phase, slope
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from trainer.models import PerRecordModel
from trainer.run import run

NAME = "dp_gd"
TITLE = "DP-GD: Theorems 6.2 and 6.3 of Wang, Ye & Xu"

DELTA = 1e-6
DIMENSION = 10
#: The eigenvalues of the PL problem's Hessian, from mu to L. Their sum is the squared norm of a row.
EIGENVALUES = np.linspace(0.04, 0.16, DIMENSION)

Vector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """A problem: records and a loss with known constants.

    Attributes:
        gradient: The gradient of each record's loss, in the form that `PerRecordModel` needs.
        figure: The quantity that the theorem bounds, at a released point.
        lipschitz: A bound on the norms of the records' gradients at all points that a run can reach.
        exact: A function that returns the expected figure after T steps, for noise s on the mean gradient and the step
            size eta; None if there is no closed form.
    """

    features: Vector
    labels: Vector
    gradient: Callable[[Vector, Vector, Vector], Vector]
    figure: Callable[[Vector], float]
    lipschitz: float
    assumptions: dict[str, float]
    bound: str
    exact: Callable[[float, int, float], float] | None = None


def least_squares(num_records: int) -> Problem:
    """Return the problem of |x . w - y|^2 / 2 with the Hessian diag(EIGENVALUES), and labels x . w* plus an error of
    +-0.1."""
    block = hadamard(16)[:, 1 : DIMENSION + 1] * np.sqrt(EIGENVALUES)
    features: Vector = np.tile(block, (num_records // 16, 1))
    best = np.full(DIMENSION, 0.5 / math.sqrt(DIMENSION))
    # The errors are a Hadamard column that is orthogonal to every feature, so w* stays the minimiser.
    labels = features @ best + 0.1 * np.tile(hadamard(16)[:, 15], num_records // 16)
    gap = 0.5 * EIGENVALUES * best**2

    def exact(stddev: float, steps: int, eta: float) -> float:
        kept = (1.0 - eta * EIGENVALUES) ** 2
        floor = np.divide((eta * stddev) ** 2 * (1.0 - kept**steps), 1.0 - kept)
        return float(np.sum(kept**steps * gap + 0.5 * EIGENVALUES * floor))

    return Problem(
        features,
        labels,
        lambda point, x, y: (x @ point - y)[:, None] * x,
        lambda point: float(np.sum(0.5 * EIGENVALUES * (point - best) ** 2)),
        lipschitz=0.75,
        assumptions={
            "smoothness": float(EIGENVALUES.max()),
            "pl_constant": float(EIGENVALUES.min()),
            "initial_gap": float(gap.sum()),
        },
        bound="excess_risk_bound",
        exact=exact,
    )


def sigmoid_squares(num_records: int) -> Problem:
    """Return the problem of (sigmoid(x . w) - y)^2 with rows of norm 1, and labels from a logistic model with noise."""
    rng = np.random.default_rng(num_records)
    features: Vector = rng.normal(size=(num_records, DIMENSION))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = (rng.random(num_records) < expit(6.0 * features[:, 0])).astype(np.float64)

    def gradient(point: Vector, x: Vector, y: Vector) -> Vector:
        share = expit(x @ point)
        slopes: Vector = 2.0 * (share - y) * share * (1.0 - share)
        return slopes[:, None] * x

    s = np.linspace(0.0, 1.0, 100_001)
    curvature = float(np.abs(2.0 * s**2 * (1.0 - s) * (2.0 - 3.0 * s)).max())
    return Problem(
        features,
        labels,
        gradient,
        lambda point: float(np.linalg.norm(gradient(point, features, labels).mean(axis=0))),
        lipschitz=8.0 / 27.0 * (1.0 + 1e-4),  # so that the trainer's margin clips nothing
        assumptions={"smoothness": curvature * (1.0 + 1e-6), "initial_gap": 0.25},
        bound="gradient_norm_bound",
    )


@dataclass(frozen=True)
class Setting:
    """The setting of one theorem: a function that makes the problem of any size, and the sizes that are run.

    Attributes:
        middle: The number of records in the runs over epsilon. It is one of the sizes.
    """

    make: Callable[[int], Problem]
    sizes: Sequence[int]
    middle: int


SETTINGS = {
    "PL": Setting(least_squares, (2048, 4096, 8192, 16384, 32768, 65536), 16384),
    "no convexity": Setting(sigmoid_squares, (512, 1024, 2048, 4096, 8192), 2048),
}


def calibration(problem: Problem, epsilon: float) -> Calibration:
    """Return the theorem's own step size and number of steps at this epsilon."""
    spec = Spec(
        dataset_size=len(problem.labels),
        target=ApproximateDpTarget(epsilon, DELTA),
        gradient_bound=Clip(problem.lipschitz),
        dimension=DIMENSION,
        assumptions=problem.assumptions,
    )
    return calibrate("dp_gd", spec)


def measure(setting: str, problem: Problem, epsilon: float, runs: int) -> dict[str, Cell]:
    """Return one row of the table: the figure at the released point, as a mean over runs, beside its bound."""
    found = calibration(problem, epsilon)
    phase = only_phase(found.plan)
    figures, longest = [], 0.0
    for seed in range(runs):
        path = Path(problem.gradient)
        model = PerRecordModel(DIMENSION, np.zeros(DIMENSION), path)
        released = run(found.plan, model, problem.features, problem.labels, seed=seed)
        figures.append(problem.figure(released.parameters["point"]))
        for point in path.points if seed == 0 else ():
            gradients = problem.gradient(point, problem.features, problem.labels)
            longest = max(longest, float(np.linalg.norm(gradients, axis=1).max()))
    mean, error = mean_and_error(figures)
    [bound] = [item.value for item in found.utility if item.name == problem.bound]
    assert isinstance(bound, float)
    exact = problem.exact and problem.exact(phase.noise_stddev_on_mean, phase.steps, phase.step_size_at(0))
    return {
        "setting": setting,
        "records": len(problem.labels),
        "epsilon": epsilon,
        "steps": found.plan.iterations,
        "measured": mean,
        "standard error": error,
        "exact": exact,
        "bound": bound,
        "bound / measured": bound / mean,
        "longest gradient / G": longest / problem.lipschitz,
    }


def reproduce(quick: bool) -> Reproduction:
    """Return the results of both theorems for several n and for several epsilon."""
    runs = 5 if quick else 40
    epsilons = (0.5, 1.0) if quick else (0.25, 0.5, 1.0, 2.0, 4.0)
    rows: list[dict[str, Any]] = []
    for name, setting in SETTINGS.items():
        cells = [(size, 1.0) for size in setting.sizes if not quick or size <= setting.middle]
        cells += [(setting.middle, epsilon) for epsilon in epsilons if epsilon != 1.0]
        rows += [measure(name, setting.make(size), epsilon, runs) for size, epsilon in cells]
    over = {(setting, axis): _over(rows, setting, axis) for setting in SETTINGS for axis in ("records", "epsilon")}
    return {
        "inputs": {
            "delta": DELTA,
            "dimension": DIMENSION,
            "relation": "replace_one",
            "L / mu (PL)": float(EIGENVALUES.max() / EIGENVALUES.min()),
            "runs per row": runs,
            "dtype": "float64",
        },
        "rows": rows,
        "sentences": _sentences(rows, over),
        "plots": [_plot(setting, axis, found) for (setting, axis), found in over.items()],
    }


def _over(rows: Sequence[dict[str, Any]], setting: str, axis: str) -> list[dict[str, Any]]:
    """Return the rows of a setting in which n or epsilon varies, in order. The other number has its middle value."""
    fixed, value = ("epsilon", 1.0) if axis == "records" else ("records", SETTINGS[setting].middle)
    return sorted((row for row in rows if row["setting"] == setting and row[fixed] == value), key=lambda row: row[axis])


def _slopes(rows: Sequence[dict[str, Any]], axis: str) -> tuple[float, float]:
    x = [row[axis] for row in rows]
    return slope(x, [row["measured"] for row in rows]), slope(x, [row["bound"] for row in rows])


def _sentences(rows: Sequence[dict[str, Any]], over: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    below = sum(row["measured"] <= row["bound"] for row in rows)
    exact = [abs(row["measured"] - row["exact"]) / row["standard error"] for row in rows if row["exact"] is not None]
    ratios = {setting: [row["bound / measured"] for row in rows if row["setting"] == setting] for setting in SETTINGS}
    last = _slopes(over["PL", "records"][-2:], "records")
    slopes = {key: _slopes(found, key[1]) for key, found in over.items()}
    return [
        f"The measured mean is below the explicit bound in {below} of {len(rows)} rows. The bound is "
        f"{min(ratios['PL']):.1f} to {max(ratios['PL']):.1f} times the excess risk (PL) and "
        f"{min(ratios['no convexity']):.1f} to {max(ratios['no convexity']):.1f} times the gradient norm.",
        "With PL, the expected excess risk of this problem is known exactly. The measured means are within "
        f"{max(exact):.1f} standard errors of it.",
        "With PL, the slope of the excess risk is "
        f"{slopes['PL', 'records'][0]:.2f} in n (bound {slopes['PL', 'records'][1]:.2f}) and "
        f"{slopes['PL', 'epsilon'][0]:.2f} in epsilon (bound {slopes['PL', 'epsilon'][1]:.2f}). The rate has the "
        "exponent -2 in both, up to logarithms. "
        f"Between the two largest n the slope is {last[0]:.2f} (bound {last[1]:.2f}).",
        "Without convexity, the slope of the gradient norm is "
        f"{slopes['no convexity', 'records'][0]:.2f} in n (bound {slopes['no convexity', 'records'][1]:.2f}) and "
        f"{slopes['no convexity', 'epsilon'][0]:.2f} in epsilon (bound {slopes['no convexity', 'epsilon'][1]:.2f}). "
        "The theorem promises -1/2 in the worst case, and this problem is not the worst.",
        f"No gradient was longer than {max(row['longest gradient / G'] for row in rows):.4f} G on the path of one run "
        "for each row. So nothing was clipped there, as the theorems require.",
    ]


def _plot(setting: str, axis: str, rows: Sequence[dict[str, Any]]) -> Lines:
    series = {"measured": [row["measured"] for row in rows], "bound": [row["bound"] for row in rows]}
    if setting == "PL":
        series["exact expectation"] = [row["exact"] for row in rows]
    risk = "excess risk" if setting == "PL" else "gradient norm"
    return {
        "kind": "lines",
        "title": f"DP-GD, {setting}: {risk} over {axis}",
        "x": [row[axis] for row in rows],
        "series": series,
        "x_label": axis,
        "y_label": risk,
        "log_x": True,
        "log_y": True,
    }
