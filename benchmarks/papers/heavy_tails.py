"""This reproduction runs clipped accelerated SGD and localised clipped subgradients on heavy-tailed linear regression
without strong convexity.

The problem is least squares on rows of random signs, which are scaled so that the population's Hessian is diagonal,
known and ill-conditioned. The errors of labels have Student's law with 5 degrees of freedom. It has four moments but no
fifth, so there is no Lipschitz constant. The smoothness, the minimiser and the excess risk of any point are exact,
and the moments are bounded in closed form: grad f = a (<a, w - w*> - xi) with |a| constant and E <a, v>^4 <= 3 (beta
|v|^2)^2. The localised algorithm needs the moments of the longest gradient over the ball, where |<a, v>| is as large as
|a| |v|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from accounting.targets import ZcdpTarget
from benchmarks.papers.reproduction import Cell, Lines, Reproduction, mean_and_error, slope
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from trainer.models import PerRecordModel
from trainer.run import run

NAME = "heavy_tails"
TITLE = "Heavy tails, convex: Algorithms 2 and 4 of Lowy & Razaviyayn"

DIMENSION, DIAMETER, RHO = 10, 2.0, 0.5
SPECTRUM = np.geomspace(0.01, 1.0, DIMENSION)
OPTIMUM = np.full(DIMENSION, 0.7 / math.sqrt(DIMENSION))
FREEDOM, ERROR_SCALE = 5.0, 0.3
SIZES = {"clipped_acsa": (10_000, 40_000, 160_000, 320_000), "localized_clipped_subgradient": (256, 512, 1024)}

Vector = npt.NDArray[np.float64]
Row = dict[str, Cell]


def assumptions(algorithm: str) -> dict[str, float]:
    """Return the constants that the theorems assume on the whole ball. Its farthest point has distance 1.7 from the
    minimiser."""
    length, farthest = math.sqrt(float(SPECTRUM.sum())), DIAMETER / 2.0 + float(np.linalg.norm(OPTIMUM))
    error = ERROR_SCALE * (3.0 * FREEDOM**2 / ((FREEDOM - 2.0) * (FREEDOM - 4.0))) ** 0.25
    if algorithm == "clipped_acsa":
        beta = float(SPECTRUM.max())
        return {
            "smoothness": beta,
            "diameter": DIAMETER,
            "moment_order": 4.0,
            "moment_bound": length * (3.0**0.25 * math.sqrt(beta) * farthest + error),
        }
    return {
        "diameter": DIAMETER,
        "moment_order": 2.0,
        "moment_bound_2k": length * (length * farthest + error),
        "localization_power": 1.0,
    }


def excess_risk(point: Vector) -> float:
    """Return the excess risk in the population, exactly."""
    return 0.5 * float(SPECTRUM @ (point - OPTIMUM) ** 2)


def gradients(point: Vector, rows: Vector, _labels: Vector) -> Vector:
    """Return the gradients of |<a, w - w*> - xi|^2 / 2, where a row is (a, xi)."""
    residuals: Vector = rows[:, :-1] @ (point - OPTIMUM) - rows[:, -1]
    return residuals[:, None] * rows[:, :-1]


MODEL = PerRecordModel(DIMENSION + 1, np.zeros(DIMENSION), gradients)


def sample(records: int, seed: int) -> Vector:
    """Return random rows (a, xi)."""
    rng = np.random.default_rng([records, seed])
    signs = rng.integers(0, 2, size=(records, DIMENSION)) * 2.0 - 1.0
    return np.column_stack([signs * np.sqrt(SPECTRUM), ERROR_SCALE * rng.standard_t(FREEDOM, size=records)])


def reproduce(quick: bool) -> Reproduction:
    """Return the results of both algorithms, each for the numbers of records n that its work allows."""
    repeats = 2 if quick else 3
    rows = [_row(name, n, repeats) for name, sizes in SIZES.items() for n in (sizes[:2] if quick else sizes)]
    return {
        "inputs": {
            "d": DIMENSION,
            "rho": RHO,
            "diameter": DIAMETER,
            "smoothness": float(SPECTRUM.max()),
            "least curvature": float(SPECTRUM.min()),
            "degrees of freedom of the errors": FREEDOM,
            "risk at the start": excess_risk(np.zeros(DIMENSION)),
            "runs each": repeats,
        },
        "rows": rows,
        "sentences": [*_under(rows), *_trained(rows)],
        "plots": [_plot(name, _of(rows, name)) for name in SIZES],
    }


def _calibrated(algorithm: str, n: int) -> Calibration:
    return calibrate(algorithm, Spec(n, ZcdpTarget(RHO), dimension=DIMENSION, assumptions=assumptions(algorithm)))


def _row(algorithm: str, n: int, repeats: int) -> Row:
    found = _calibrated(algorithm, n)
    risks = [
        excess_risk(run(found.plan, MODEL, sample(n, seed), np.zeros(n), seed=seed).parameters["point"])
        for seed in range(repeats)
    ]
    mean, error = mean_and_error(risks)
    known = {item.name: item for item in found.utility}
    bound = known["excess_risk_bound"]
    return {
        "algorithm": algorithm,
        "n": n,
        "steps": found.plan.iterations,
        "gradients": _number(known["gradient_evaluations"].value),
        "excess risk": mean,
        "standard error": error,
        "bound": _number(bound.value),
        "vacuous": bound.vacuous,
    }


def _of(rows: Sequence[Row], algorithm: str) -> list[Row]:
    return [row for row in rows if row["algorithm"] == algorithm]


def _under(rows: Sequence[Row]) -> list[str]:
    found = []
    for name in SIZES:
        some = _of(rows, name)
        shares = [_number(row["excess risk"]) / _number(row["bound"]) for row in some]
        n = [_number(row["n"]) for row in some]
        measured, bound = (slope(n, [_number(row[column]) for row in some]) for column in ("excess risk", "bound"))
        vacuous = sum(row["vacuous"] is True for row in some)
        found.append(
            f"{name}: the measured excess risk is under its bound in {sum(share <= 1.0 for share in shares)} of "
            f"{len(some)} rows, and {min(shares):.2g} to {max(shares):.2g} times the bound. The bound is vacuous in "
            f"{vacuous} of the rows. The measured risk varies as n^{measured:.2f}, and the bound as n^{bound:.2f}."
        )
    return found


def _trained(rows: Sequence[Row]) -> list[str]:
    start, last = excess_risk(np.zeros(DIMENSION)), {name: _of(rows, name)[-1] for name in SIZES}
    left = ", ".join(
        f"{_number(row['excess risk']) / start:.2g} with {row['n']} records and {_number(row['gradients']):.2g} "
        f"gradients ({name})"
        for name, row in last.items()
    )
    found = [f"The excess risk at the start is {start:.3g}. After training, these shares of it are left: {left}."]
    localized = _of(rows, "localized_clipped_subgradient")
    worse = sum(_number(row["excess risk"]) > start for row in localized)
    if worse:
        found.append(
            f"In {worse} of its {len(localized)} rows, the localised algorithm ends with more excess risk than at the "
            "start. Its work grows as n^2, so only small n are run, and there its noise has more effect than its "
            "training."
        )
    return found


def _plot(algorithm: str, rows: Sequence[Row]) -> Lines:
    return {
        "kind": "lines",
        "title": f"{algorithm}: excess risk over the number of records, rho = {RHO:g}",
        "x": [_number(row["n"]) for row in rows],
        "series": {column: [_number(row[column]) for row in rows] for column in ("excess risk", "bound")},
        "x_label": "records n",
        "y_label": "excess population risk",
        "log_x": True,
        "log_y": True,
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float), "a number, not missing"
    return float(value)
