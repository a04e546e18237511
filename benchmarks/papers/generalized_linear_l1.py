"""This reproduction runs private Frank-Wolfe on smoothed links over the l1 ball. It compares the excess risk of a hinge
with its explicit bound, for several n and smoothings.

The population is a finite set of rows of random signs with labels of a sparse half-space, of which a tenth are flipped.
The least risk in the ball is the value of a linear programme, and the excess risk of any point is exact. Records are
drawn from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from accounting.targets import ApproximateDpTarget
from benchmarks.papers.reproduction import Cell, Lines, Reproduction, mean_and_error, slope
from calibrators.phases.smoothed_vertex_steps import SmoothedVertexSteps
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from trainer.losses import QNormHinge
from trainer.models import LinearModel
from trainer.run import run

NAME = "generalized_linear_l1"
TITLE = (
    "Generalised linear losses over the l1 ball: Frank-Wolfe on smoothed links (after Bassily, Guzman & Menart 2021)"
)

DIMENSION, RADIUS, POPULATION = 20, 2.0, 400
EPSILON, DELTA = 2.0, 1e-6
SIZES, MIDDLE = (500, 1000, 2000, 4000), 2000
FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)

MODEL = LinearModel(QNormHinge(1.0), DIMENSION, fit_intercept=False)
Vector = npt.NDArray[np.float64]
Row = dict[str, Cell]


@dataclass(frozen=True)
class Population:
    """Rows, their labels -1 and 1, and the least risk in the ball."""

    rows: Vector
    signs: Vector
    least_risk: float

    def excess(self, point: Vector) -> float:
        """Return the excess risk of the hinge without smoothing, exactly."""
        return float(np.mean(np.maximum(0.0, 1.0 - self.signs * (self.rows @ point)))) - self.least_risk


@lru_cache
def population() -> Population:
    """Return the population, which is the same in every run."""
    generator = np.random.default_rng(7)
    rows = generator.choice([-1.0, 1.0], size=(POPULATION, DIMENSION))
    signs = np.sign(rows[:, :3] @ np.array([1.0, -0.7, 0.5]))
    signs = np.where(generator.random(POPULATION) < 0.1, -signs, signs)
    # The variables are p, q >= 0 with x = p - q, and slacks s >= 1 - sign <a, x>. The mean slack is the risk.
    turned = -signs[:, None] * rows
    inside = np.concatenate([np.ones(2 * DIMENSION), np.zeros(POPULATION)])
    solved = linprog(
        np.concatenate([np.zeros(2 * DIMENSION), np.full(POPULATION, 1.0 / POPULATION)]),
        A_ub=np.vstack([np.hstack([turned, -turned, -np.eye(POPULATION)]), inside[None]]),
        b_ub=np.append(np.full(POPULATION, -1.0), RADIUS),
    )
    assert solved.fun is not None, "a point of the ball is feasible, and no risk is negative"
    return Population(rows, signs, float(solved.fun))


def reproduce(quick: bool) -> Reproduction:
    """Return the results for several n with the smoothing and the number of steps of least bound, and for several
    smoothings at one n.
    """
    sizes, repeats = (SIZES[:2], 2) if quick else (SIZES, 3)
    by_size = [_row(n, 1.0, repeats) for n in sizes]
    by_smoothing = [_row(MIDDLE, factor, repeats) for factor in FACTORS]
    return {
        "inputs": {
            "loss": "hinge",
            "d": DIMENSION,
            "radius": RADIUS,
            "epsilon": EPSILON,
            "delta": DELTA,
            "excess risk at the start": population().excess(np.zeros(DIMENSION)),
            "runs each": repeats,
        },
        "rows": [*by_size, *by_smoothing],
        "sentences": [*_under([*by_size, *by_smoothing]), *_slopes(by_size), *_of_smoothing(by_smoothing)],
        "plots": [
            _curves("Excess population risk of the hinge against the records", by_size, "n"),
            _curves(f"The same against the smoothing, n = {MIDDLE}", by_smoothing, "smoothing"),
        ],
    }


def _calibrated(n: int, factor: float) -> Calibration:
    """Return the calibration with a factor times the smoothing of least bound, and with the number of steps of least
    bound."""
    assumptions = {"lipschitz": 1.0, "link_lipschitz": 1.0, "radius": RADIUS}
    spec = Spec(n, ApproximateDpTarget(EPSILON, DELTA), dimension=DIMENSION, assumptions=assumptions)
    best = calibrate(NAME, spec)
    own = {"smoothing": factor * _phase(best).smoothing}
    again = Spec(
        n,
        ApproximateDpTarget(EPSILON, DELTA),
        dimension=DIMENSION,
        iterations=best.plan.iterations,
        assumptions=assumptions | own,
    )
    return best if factor == 1.0 else calibrate(NAME, again)


def _phase(found: Calibration) -> SmoothedVertexSteps:
    [phase] = found.plan.phases
    assert isinstance(phase, SmoothedVertexSteps)
    return phase


def _row(n: int, factor: float, repeats: int) -> Row:
    found, whole = _calibrated(n, factor), population()
    excess = []
    for seed in range(repeats):
        drawn = np.random.default_rng((seed, n)).integers(0, POPULATION, n)
        labels = (whole.signs[drawn] > 0.0).astype(np.int64)
        excess.append(whole.excess(run(found.plan, MODEL, whole.rows[drawn], labels, seed=seed).parameters["weights"]))
    mean, error = mean_and_error(excess)
    [bound] = [item for item in found.utility if item.name == "excess_risk_bound"]
    return {
        "n": n,
        "steps": found.plan.iterations,
        "smoothing": _phase(found).smoothing,
        "excess risk": mean,
        "standard error": error,
        "bound": _number(bound.value),
        "vacuous": bound.vacuous,
    }


def _under(rows: Sequence[Row]) -> list[str]:
    shares = [_number(row["excess risk"]) / _number(row["bound"]) for row in rows]
    return [
        f"The measured excess risk is under its bound in {sum(share <= 1.0 for share in shares)} of {len(rows)} "
        f"settings, and {min(shares):.2g} to {max(shares):.2g} times the bound. The bound is vacuous in "
        f"{sum(row['vacuous'] is True for row in rows)} settings.",
    ]


def _slopes(by_size: Sequence[Row]) -> list[str]:
    n = [_number(row["n"]) for row in by_size]
    measured, bound = (slope(n, [_number(row[name]) for row in by_size]) for name in ("excess risk", "bound"))
    return [
        f"The excess risk falls as n^{measured:.2f} and the bound as n^{bound:.2f}. Both terms of the rate are n^-1/2."
    ]


def _of_smoothing(by_smoothing: Sequence[Row]) -> list[str]:
    best = min(by_smoothing, key=lambda row: _number(row["excess risk"]))
    [preset] = [row for factor, row in zip(FACTORS, by_smoothing, strict=True) if factor == 1.0]
    return [
        "Each of five smoothings is ten times the one before. Of these, "
        f"{_number(best['smoothing']):.2g} has the least measured excess risk ({_number(best['excess risk']):.2g}), "
        f"and {_number(preset['smoothing']):.2g} has the least bound (with the excess risk "
        f"{_number(preset['excess risk']):.2g}).",
    ]


def _curves(title: str, rows: Sequence[Row], x: str) -> Lines:
    return {
        "kind": "lines",
        "title": title,
        "x": [_number(row[x]) for row in rows],
        "series": {name: [_number(row[name]) for row in rows] for name in ("excess risk", "bound")},
        "x_label": "records n" if x == "n" else "smoothing, in losses per squared logit",
        "y_label": "excess population risk",
        "log_x": True,
        "log_y": True,
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float), "a number, not missing"
    return float(value)
