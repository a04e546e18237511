"""This reproduction runs tree Frank-Wolfe over the l1 ball. It compares the population risk with its explicit bound,
and measures slopes and the effect of the number of trees.

The problem is least squares, f = (<a, x> - y)^2 / 2 with y = <a, x*>, on rows of random signs, in the l1 ball of
radius 1. There L_0 = 2 and L_1 = 1 hold exactly, nothing is clipped, and the excess population risk is exactly |x -
x*|_2^2 / 2. Every run draws fresh records, since the bound is on the population risk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from accounting.targets import ApproximateDpTarget, PureDpTarget, Target
from benchmarks.papers.reproduction import Cell, Lines, Reproduction, mean_and_error, slope
from calibrators.phases.vertex_trees import TreePhase
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.run import run

NAME = "tree_sfw_l1"
TITLE = "Tree Frank-Wolfe over the l1 ball (Asi, Feldman, Koren & Talwar 2021; Bassily & Guzman)"

DELTA = 1e-6
DIMENSION, SIZE, EPSILON = 50, 50_000, 1.0
SIZES = (10_000, 20_000, 50_000, 100_000, 200_000)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
DIMENSIONS = (10, 30, 100, 200)
#: The numbers of records for which only the bound is computed. No rows are drawn for them.
LARGE_SIZES = tuple(10**k for k in range(4, 10))

Vector = npt.NDArray[np.float64]
Row = dict[str, Cell]


def reproduce(quick: bool) -> Reproduction:
    """Return the excess risk for several numbers of records, budgets, dimensions and numbers of trees, and the bound
    alone at larger sizes.
    """
    repeats = 3 if quick else 8
    sizes, epsilons = (SIZES[:3], EPSILONS[::2]) if quick else (SIZES, EPSILONS)
    dimensions = DIMENSIONS[:2] if quick else DIMENSIONS
    by_size = [_row(n, _approximate(EPSILON), DIMENSION, None, repeats) for n in sizes]
    by_epsilon = [_row(SIZE, _approximate(epsilon), DIMENSION, None, repeats) for epsilon in epsilons]
    by_dimension = [_row(SIZE, _approximate(EPSILON), d, 3, repeats) for d in dimensions]
    by_trees = [_row(SIZE, _approximate(EPSILON), DIMENSION, trees, repeats) for trees in range(1, 9)]
    pure = [_row(SIZE, PureDpTarget(EPSILON), DIMENSION, None, repeats)]
    rows = [*by_size, *by_epsilon, *by_dimension, *by_trees, *pure]
    bounds = [_number(_bound(_calibrated(n, _approximate(EPSILON), DIMENSION))) for n in LARGE_SIZES]
    orders = [_order(_calibrated(n, _approximate(EPSILON), DIMENSION)) for n in LARGE_SIZES]
    return {
        "inputs": {
            "loss": "(<a, x> - y)^2 / 2, a of random signs",
            "radius": 1.0,
            "lipschitz": 2.0,
            "smoothness": 1.0,
            "delta": DELTA,
            "excess risk at the start": _excess(np.zeros(DIMENSION)),
            "runs each": repeats,
        },
        "rows": rows,
        "sentences": [
            *_under(rows),
            *_slopes(by_size, by_epsilon, by_dimension),
            *_of_trees(by_trees),
            *_of_bound(bounds, orders),
        ],
        "plots": [
            _curves("Excess population risk against the records, epsilon = 1", by_size, "n", "records n"),
            _curves(f"Excess population risk against epsilon, n = {SIZE}", by_epsilon, "epsilon", "epsilon"),
            _curves(f"Excess population risk against the trees, n = {SIZE}", by_trees, "trees T", "trees T"),
            {
                "kind": "lines",
                "title": "The bound at the best number of trees, and the rate with constant 1",
                "x": [float(n) for n in LARGE_SIZES],
                "series": {"bound": bounds, "rate": orders},
                "x_label": "records n",
                "y_label": "excess population risk",
                "log_x": True,
                "log_y": True,
            },
        ],
    }


def _approximate(epsilon: float) -> ApproximateDpTarget:
    return ApproximateDpTarget(epsilon, DELTA)


def _best_point(dimension: int) -> Vector:
    """Return x*, which has l1 norm 1 and three nonzero entries, so that the first steps cannot guess it."""
    point = np.zeros(dimension)
    point[:3] = (0.5, -0.3, 0.2)
    return point


def _excess(point: Vector) -> float:
    """Return the excess population risk, which is exact, since the rows' second moment is the identity."""
    return 0.5 * float(np.sum((point - _best_point(point.size)) ** 2))


def _row(n: int, target: Target, dimension: int, trees: int | None, repeats: int) -> Row:
    found = _calibrated(n, target, dimension, trees)
    [phase] = found.plan.phases
    assert isinstance(phase, TreePhase)
    model = LinearModel(Squared(), dimension, fit_intercept=False)
    excess = []
    for seed in range(repeats):
        signs = np.random.default_rng((seed, n, dimension)).choice([-1.0, 1.0], size=(n, dimension))
        result = run(found.plan, model, signs, signs @ _best_point(dimension), seed=seed)
        excess.append(_excess(result.parameters["weights"]))
    mean, error = mean_and_error(excess)
    return {
        "n": n,
        "target": target.kind,
        "epsilon": target.limit,
        "d": dimension,
        "trees T": phase.num_trees,
        "T is": "of least bound" if trees is None else "given",
        "records at a root": phase.records_per_tree,
        "largest noise scale": phase.noise_scales[-1],
        "excess risk": mean,
        "its standard error": error,
        "bound": _bound(found),
        "rate, constant 1": _order(found),
    }


def _calibrated(n: int, target: Target, dimension: int, trees: int | None = None) -> Calibration:
    spec = Spec(
        dataset_size=n,
        target=target,
        dimension=dimension,
        assumptions={"lipschitz": 2.0, "smoothness": 1.0, "radius": 1.0},
    )
    return calibrate(NAME, replace(spec, iterations=trees))


def _bound(found: Calibration) -> float:
    return next(_number(item.value) for item in found.utility if item.name == "excess_risk_bound")


def _order(found: Calibration) -> float:
    return next(_number(item.value) for item in found.utility if item.name == "excess_risk_rate")


def _under(rows: Sequence[Row]) -> list[str]:
    shares = [_number(row["excess risk"]) / _number(row["bound"]) for row in rows]
    under = all(share <= 1.0 for share in shares)
    start = _excess(np.zeros(DIMENSION))
    vacuous = sum(_number(row["bound"]) >= start for row in rows)
    return [
        f"The measured excess risk is {'under' if under else 'NOT always under'} its bound in {len(rows)} settings, "
        f"and {min(shares):.2g} to {max(shares):.2g} times the bound. In {vacuous} settings the bound is above "
        f"{start:.2g}, the excess risk at the start, since its constants are those of a worst case.",
    ]


def _slopes(by_size: Sequence[Row], by_epsilon: Sequence[Row], by_dimension: Sequence[Row]) -> list[str]:
    n, epsilon = (
        slope([_number(row[x]) for row in some], [_number(row["excess risk"]) for row in some])
        for x, some in (("n", by_size), ("epsilon", by_epsilon))
    )
    first, last = by_dimension[0], by_dimension[-1]
    growth = _number(last["excess risk"]) / _number(first["excess risk"])
    logs = math.log(2 * _number(last["d"])) / math.log(2 * _number(first["d"]))
    return [
        f"Over these sizes, the excess risk falls as n^{n:.2f} and as epsilon^{epsilon:.2f}. The private term of the "
        "rate has the exponent -2/3 in both, and its statistical term -1/2 in n and 0 in epsilon. With so few trees "
        "there are few steps, and jumps in the number of steps have as much effect.",
        f"With three trees, the excess risk grows {growth:.2g} times from d = {first['d']} to {last['d']}, where "
        f"ln(2d) grows {logs:.2g} times and the root of d {math.sqrt(_number(last['d']) / _number(first['d'])):.2g} "
        "times.",
    ]


def _of_trees(by_trees: Sequence[Row]) -> list[str]:
    measured = min(by_trees, key=lambda row: _number(row["excess risk"]))
    bounded = min(by_trees, key=lambda row: _number(row["bound"]))
    return [
        f"At n = {SIZE} the bound is least with {bounded['trees T']} trees. The measured excess risk is least with "
        f"{measured['trees T']} trees ({_number(measured['excess risk']):.3g}, against "
        f"{_number(bounded['excess risk']):.3g} with the number of trees of least bound).",
    ]


def _of_bound(bounds: Sequence[float], orders: Sequence[float]) -> list[str]:
    late = slope(LARGE_SIZES[-3:], bounds[-3:])
    rate = slope(LARGE_SIZES[-3:], orders[-3:])
    ratios = [bound / order for bound, order in zip(bounds, orders, strict=True)]
    return [
        f"The bound at the best number of trees falls as n^{late:.2f} from n = {LARGE_SIZES[-3]} on, and the rate as "
        f"n^{rate:.2f}. Over all sizes, the bound is {min(ratios):.2g} to {max(ratios):.2g} times the rate with "
        "constant 1.",
    ]


def _curves(title: str, rows: Sequence[Row], x: str, label: str) -> Lines:
    return {
        "kind": "lines",
        "title": title,
        "x": [_number(row[x]) for row in rows],
        "series": {name: [_number(row[name]) for row in rows] for name in ("excess risk", "bound", "rate, constant 1")},
        "x_label": label,
        "y_label": "excess population risk",
        "log_x": x != "trees T",
        "log_y": True,
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float), "a number, not missing"
    return float(value)
