"""This reproduction compares DP-SVRG with DP-GD at the same privacy: risks, bounds and numbers of gradients (Wang, Ye &
Xu 2017).

The problem is least squares on rows of a scaled Hadamard matrix, |x| = 1. Every record's loss is 1-smooth, and the mean
loss has a Hessian that is diagonal, known and the same for every n, so that mu, D_0 and the minimum are exact. Theorem
4.2 is about such strongly convex losses. For DP-GD (Theorem 6.2), mu is also a Polyak-Lojasiewicz constant of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import hadamard

from accounting.targets import ApproximateDpTarget
from benchmarks.papers.reproduction import Cell, Lines, Reproduction, mean_and_error, slope
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.run import run

NAME = "dp_svrg"
TITLE = "DP-SVRG beside DP-GD: Theorems 4.2 and 6.2 of Wang, Ye & Xu"

EPSILON, DELTA = 1.0, 1e-6
DIMENSION, EPOCHS = 4, 3
#: The eigenvalues of the Hessian, from mu to L. Their sum is the squared norm of a row.
EIGENVALUES = np.linspace(0.2, 0.3, DIMENSION)
BEST = np.full(DIMENSION, 0.5 / math.sqrt(DIMENSION))
#: A bound on the norms of gradients within distance 0.7 of the minimiser. The start is at distance 0.5.
LIPSCHITZ = 0.8
SIZES = (1024, 2048, 4096)
ALGORITHMS = ("dp_svrg", "dp_gd")

MODEL = LinearModel(Squared(), DIMENSION, fit_intercept=False)
Vector = npt.NDArray[np.float64]
Row = dict[str, Cell]


@dataclass(frozen=True)
class Data:
    """Records and their labels, which are x . w* plus an error of +-0.1 that is orthogonal to all features."""

    features: Vector
    labels: Vector

    @property
    def size(self) -> int:
        return int(self.labels.size)


def reproduce(quick: bool) -> Reproduction:
    """Return the results of both algorithms for each n, with the sizes of each algorithm's own theorem."""
    sizes, repeats = (SIZES[:2], 2) if quick else (SIZES, 4)
    rows = [_row(algorithm, _data(n), repeats) for algorithm in ALGORITHMS for n in sizes]
    return {
        "inputs": {
            "epsilon": EPSILON,
            "delta": DELTA,
            "relation": "replace_one",
            "dimension": DIMENSION,
            "smoothness of a record": 1.0,
            "mu": float(EIGENVALUES.min()),
            "excess risk at the start": _excess(np.zeros(DIMENSION)),
            "epochs of DP-SVRG": EPOCHS,
            "runs each": repeats,
        },
        "rows": rows,
        "sentences": [*_under(rows), *_beside(rows), *_slopes(rows)],
        "plots": [_plot(rows, sizes)],
    }


def _data(n: int) -> Data:
    block = hadamard(16)[:, 1 : DIMENSION + 1] * np.sqrt(EIGENVALUES)
    features: Vector = np.tile(block, (n // 16, 1))
    return Data(features, features @ BEST + 0.1 * np.tile(hadamard(16)[:, 15], n // 16))


def _excess(point: Vector) -> float:
    return float(np.sum(0.5 * EIGENVALUES * (point - BEST) ** 2))


def _calibrated(algorithm: str, n: int) -> Calibration:
    gap = _excess(np.zeros(DIMENSION))
    largest, mu = float(EIGENVALUES.max()), float(EIGENVALUES.min())
    svrg = algorithm == "dp_svrg"
    assumptions = (
        {"smoothness": 1.0, "strong_convexity": mu, "initial_gap": gap}
        if svrg
        else {"smoothness": largest, "pl_constant": mu, "initial_gap": gap}
    )
    spec = Spec(
        n,
        ApproximateDpTarget(EPSILON, DELTA),
        gradient_bound=Clip(LIPSCHITZ),
        dimension=DIMENSION,
        iterations=EPOCHS if svrg else None,
        assumptions=assumptions,
    )
    return calibrate(algorithm, spec)


def _row(algorithm: str, data: Data, repeats: int) -> Row:
    found = _calibrated(algorithm, data.size)
    risks = [
        _excess(run(found.plan, MODEL, data.features, data.labels, seed=seed).parameters["weights"])
        for seed in range(repeats)
    ]
    mean, error = mean_and_error(risks)
    known = {item.name: item.value for item in found.utility}
    return {
        "algorithm": algorithm,
        "n": data.size,
        "steps": found.plan.iterations,
        "gradients": _number(known["gradient_evaluations"]),
        "excess risk": mean,
        "standard error": error,
        "bound": _number(known["excess_risk_bound"]),
    }


def _of(rows: Sequence[Row], algorithm: str) -> list[Row]:
    return [row for row in rows if row["algorithm"] == algorithm]


def _under(rows: Sequence[Row]) -> list[str]:
    shares = {
        algorithm: [_number(row["excess risk"]) / _number(row["bound"]) for row in _of(rows, algorithm)]
        for algorithm in ALGORITHMS
    }
    under = sum(share <= 1.0 for some in shares.values() for share in some)
    spans = ", ".join(f"{min(some):.2g} to {max(some):.2g} for {name}" for name, some in shares.items())
    start = _excess(np.zeros(DIMENSION))
    vacuous = sum(_number(row["bound"]) >= start for row in rows)
    return [
        f"The measured excess risk is under its bound in {under} of {len(rows)} rows. Divided by the bound, it is "
        f"{spans}. In {vacuous} rows the bound is above {start:.2g}, the excess risk at the start.",
    ]


def _beside(rows: Sequence[Row]) -> list[str]:
    pairs = list(zip(_of(rows, "dp_svrg"), _of(rows, "dp_gd"), strict=True))
    risk = [_number(one["excess risk"]) / _number(other["excess risk"]) for one, other in pairs]
    work = [_number(one["gradients"]) / _number(other["gradients"]) for one, other in pairs]
    return [
        f"At the same privacy, the excess risk of DP-SVRG is {min(risk):.2g} to {max(risk):.2g} times that of DP-GD, "
        f"with {min(work):.2g} to {max(work):.2g} times as many gradients. In each epoch the theorem takes about 96 "
        "inner steps times the condition number, each with noise of its own.",
    ]


def _slopes(rows: Sequence[Row]) -> list[str]:
    found = []
    for algorithm in ALGORITHMS:
        some = _of(rows, algorithm)
        n = [_number(row["n"]) for row in some]
        measured, bound = (slope(n, [_number(row[name]) for row in some]) for name in ("excess risk", "bound"))
        found.append(f"{algorithm} n^{measured:.2f} (bound n^{bound:.2f})")
    return [f"Over these sizes the excess risk falls as {', '.join(found)}. Both rates are n^-2 up to logarithms."]


def _plot(rows: Sequence[Row], sizes: Sequence[int]) -> Lines:
    series = {}
    for algorithm in ALGORITHMS:
        some = _of(rows, algorithm)
        series[algorithm] = [_number(row["excess risk"]) for row in some]
        series[f"its bound ({algorithm})"] = [_number(row["bound"]) for row in some]
    return {
        "kind": "lines",
        "title": f"DP-SVRG and DP-GD: excess risk against the records, epsilon = {EPSILON:g}",
        "x": [float(n) for n in sizes],
        "series": series,
        "x_label": "records n",
        "y_label": "excess empirical risk",
        "log_x": True,
        "log_y": True,
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float), "a number, not missing"
    return float(value)
