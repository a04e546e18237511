"""This reproduction runs noisy Frank-Wolfe in an l_1.5 ball for several n, and compares the paper's sums with prefix
trees and trees of batches.

The problem is least squares, f = (<a, x> - y)^2 / 2 with y = <a, x*>, on rows of random signs that are scaled to l_3
norm 1, in the l_1.5 ball of radius 1. There L_0 = 2 and L_1 = 1 hold exactly, nothing is clipped, and the excess
population risk is exactly |x - x*|_2^2 / (2 d^(2/3)). Every run draws fresh records, since the bounds are on population
risk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from accounting.targets import ApproximateDpTarget
from benchmarks.papers.reproduction import Cell, Lines, Reproduction, mean_and_error, slope
from calibrators.registry import calibrate
from calibrators.spec import Spec
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.run import run

NAME = "noisy_sfw_lp"
TITLE = "Noisy Frank-Wolfe in an l_1.5 ball, three ways (Bassily, Guzman & Nandi 2021)"

NORM_ORDER, DIMENSION, EPSILON, DELTA = 1.5, 30, 2.0, 1e-6
SIZES = (10_000, 20_000, 40_000, 80_000, 160_000)
VARIANTS = ("naive", "prefix_tree", "batch_tree")
WORDS = {"naive": "sums, as the paper has them", "prefix_tree": "prefix trees", "batch_tree": "trees of batches"}

Vector = npt.NDArray[np.float64]
Row = dict[str, Cell]


def reproduce(quick: bool) -> Reproduction:
    """Return the excess risk of the three variants for each number of records, at the same privacy."""
    sizes, repeats = (SIZES[:2], 2) if quick else (SIZES, 4)
    rows = [_row(variant, n, repeats) for variant in VARIANTS for n in sizes]
    return {
        "inputs": {
            "loss": "(<a, x> - y)^2 / 2, a of random signs",
            "p": NORM_ORDER,
            "d": DIMENSION,
            "radius": 1.0,
            "epsilon": EPSILON,
            "delta": DELTA,
            "excess risk at the start": _excess(np.zeros(DIMENSION)),
            "runs each": repeats,
        },
        "rows": rows,
        "sentences": [*_under(rows), *_order(rows), *_slopes(rows)],
        "plots": [_plot(rows, sizes)],
    }


def _best_point() -> Vector:
    """Return x*, of l_1.5 norm below 1."""
    point = np.zeros(DIMENSION)
    point[:3] = (0.5, -0.3, 0.2)
    return point


def _excess(point: Vector) -> float:
    """Return the excess population risk, which is exact, since the rows' second moment is d^(-2/3) times the
    identity."""
    return 0.5 * float(np.sum((point - _best_point()) ** 2)) / math.pow(DIMENSION, 2.0 / 3.0)


def _row(variant: str, n: int, repeats: int) -> Row:
    spec = Spec(
        n,
        ApproximateDpTarget(EPSILON, DELTA),
        dimension=DIMENSION,
        variant=variant,
        assumptions={"norm_order": NORM_ORDER, "lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
    )
    found = calibrate(NAME, spec)
    model = LinearModel(Squared(), DIMENSION, fit_intercept=False)
    excess = []
    for seed in range(repeats):
        signs = np.random.default_rng((seed, n)).choice([-1.0, 1.0], size=(n, DIMENSION))
        rows = signs / math.cbrt(DIMENSION)
        result = run(found.plan, model, rows, rows @ _best_point(), seed=seed)
        excess.append(_excess(result.parameters["weights"]))
    mean, error = mean_and_error(excess)
    known = {item.name: item.value for item in found.utility}
    return {
        "variant": variant,
        "n": n,
        "steps": found.plan.iterations,
        "gradients": _number(known["gradient_evaluations"]),
        "excess risk": mean,
        "standard error": error,
        "bound": _number(known["excess_risk_bound"]),
        "of the start": mean / _excess(np.zeros(DIMENSION)),
    }


def _of(rows: Sequence[Row], variant: str) -> list[Row]:
    return [row for row in rows if row["variant"] == variant]


def _under(rows: Sequence[Row]) -> list[str]:
    shares = [_number(row["excess risk"]) / _number(row["bound"]) for row in rows]
    under = sum(share <= 1.0 for share in shares)
    return [
        f"The measured excess risk is under its bound in {under} of {len(rows)} settings, and {min(shares):.2g} to "
        f"{max(shares):.2g} times the bound, whose constants are those of a worst case.",
    ]


def _order(rows: Sequence[Row]) -> list[str]:
    last = {variant: _of(rows, variant)[-1] for variant in VARIANTS}
    risks = ", ".join(f"{WORDS[variant]} {_number(row['of the start']):.2g}" for variant, row in last.items())
    bounds = ", ".join(f"{WORDS[variant]} {_number(row['bound']):.2g}" for variant, row in last.items())
    best = min(VARIANTS, key=lambda variant: _number(last[variant]["excess risk"]))
    least = min(VARIANTS, key=lambda variant: _number(last[variant]["bound"]))
    return [
        f"At n = {last['naive']['n']}, these shares of the start's excess risk are left: {risks}. The bounds are: "
        f"{bounds}. By the measured risk, the best are {WORDS[best]}. By the bounds, the best are {WORDS[least]}.",
        f"In {sum(_number(row['of the start']) > 1.0 for row in rows)} of {len(rows)} settings, the excess risk "
        "is larger than at the start. With so few records, the noise has more effect than the training.",
    ]


def _slopes(rows: Sequence[Row]) -> list[str]:
    found = []
    for variant in VARIANTS:
        some = _of(rows, variant)
        n = [_number(row["n"]) for row in some]
        measured, bound = (slope(n, [_number(row[name]) for row in some]) for name in ("excess risk", "bound"))
        found.append(f"{WORDS[variant]} n^{measured:.2f} (bound n^{bound:.2f})")
    return [f"Over these sizes the excess risk falls as {', '.join(found)}."]


def _plot(rows: Sequence[Row], sizes: Sequence[int]) -> Lines:
    series = {}
    for variant in VARIANTS:
        series[WORDS[variant]] = [_number(row["excess risk"]) for row in _of(rows, variant)]
        series[f"its bound ({variant})"] = [_number(row["bound"]) for row in _of(rows, variant)]
    return {
        "kind": "lines",
        "title": f"Excess population risk against the records, epsilon = {EPSILON:g}",
        "x": [float(n) for n in sizes],
        "series": series,
        "x_label": "records n",
        "y_label": "excess population risk",
        "log_x": True,
        "log_y": True,
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float), "a number, not missing"
    return float(value)
