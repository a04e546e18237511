"""This reproduction runs clipped SGD in the setting of Theorem 11 of Lowy & Razaviyayn 2023: a strongly convex, smooth
loss with heavy-tailed gradients.

The problem is least squares on rows of random signs, which are scaled so that the population's Hessian is diagonal and
known. The errors of labels have Student's law with 3.2 degrees of freedom. It has three moments but no fourth, so there
is no Lipschitz constant. The strong convexity mu, the smoothness beta, the minimiser and the excess risk of any point
are exact. The moments r_3 and r_2 of gradients are bounded in closed form: |grad f| = |a| |<w - w*, a> - xi| with |a|
constant, E <v, a>^4 <= 3 (beta |v|^2)^2, and E |xi|^3 by its formula.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import gamma

from accounting.targets import ZcdpTarget
from benchmarks.papers.reproduction import Cell, Lines, Reproduction, mean_and_error, only_phase, slope
from calibrators.plan import Clip
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from trainer.models import PerRecordModel
from trainer.run import run

NAME = "clipped_sgd_strongly_convex"
TITLE = "Clipped SGD, strongly convex: Theorem 11 of Lowy & Razaviyayn"

DIMENSION = 10
SPECTRUM = np.geomspace(1.0, 4.0, DIMENSION)
OPTIMUM = np.full(DIMENSION, 0.7 / math.sqrt(DIMENSION))
DIAMETER = 2.0
MOMENT_ORDER = 3.0
FREEDOM = 3.2
ERROR_SCALE = 0.5
#: The value of the paper's epsilon_p = sqrt(2 rho) in the runs over n, and the value of n in the runs over epsilon_p.
EPSILON = 1.0
MIDDLE = 80_000

Vector = npt.NDArray[np.float64]


def assumptions() -> dict[str, float]:
    """Return the constants that the theorem assumes, for all points of the ball."""
    length, beta = math.sqrt(float(SPECTRUM.sum())), float(SPECTRUM.max())
    third = FREEDOM**1.5 * gamma(2.0) * gamma((FREEDOM - 3.0) / 2.0) / (math.sqrt(math.pi) * gamma(FREEDOM / 2.0))
    error_3, error_2 = ERROR_SCALE * float(np.cbrt(third)), ERROR_SCALE * math.sqrt(FREEDOM / (FREEDOM - 2.0))
    return {
        "smoothness": beta,
        "strong_convexity": float(SPECTRUM.min()),
        "diameter": DIAMETER,
        "moment_order": MOMENT_ORDER,
        "moment_bound": length * (3.0**0.25 * math.sqrt(beta) * DIAMETER + error_3),
        "moment_bound_2": length * math.hypot(math.sqrt(beta) * DIAMETER, error_2),
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


@lru_cache
def planned(records: int, epsilon_p: float, clip_factor: float = 1.0) -> Calibration:
    """Return the plan with the paper's own settings, except that the clip threshold is multiplied by a factor."""
    spec = Spec(records, ZcdpTarget(0.5 * epsilon_p**2), dimension=DIMENSION, assumptions=assumptions())
    found = calibrate(NAME, spec)
    if clip_factor == 1.0:
        return found
    preset = only_phase(found.plan).gradient_bound.contribution_bound
    own = replace(spec, gradient_bound=Clip(clip_factor * preset), iterations=found.plan.iterations - 1)
    return calibrate(NAME, own)


def row_of(records: int, epsilon_p: float, runs: int, clip_factor: float = 1.0) -> dict[str, Cell]:
    """Return a row of the table: the measured excess risk beside its bounds."""
    found = planned(records, epsilon_p, clip_factor)
    risks = []
    for seed in range(runs):
        rows = sample(records, seed)
        released = run(found.plan, MODEL, rows, np.zeros(records), seed=seed)
        risks.append(excess_risk(released.parameters["point"]))
    mean, error = mean_and_error(risks)
    known = {item.name: item.value for item in found.utility}
    return {
        "records": records,
        "epsilon_p": epsilon_p,
        "clip over preset": clip_factor,
        "T": found.plan.iterations - 1,
        "excess risk": mean,
        "standard error": error,
        "bound": _number(known, "excess_risk_bound"),
        "closed form": _number(known, "excess_risk_bound_closed_form"),
        "rate (c = 1)": _number(known, "excess_risk_rate"),
        "lower bound": _number(known, "lower_bound"),
    }


def _number(known: Mapping[str, object], name: str) -> float:
    value = known[name]
    assert isinstance(value, float)
    return value


def reproduce(quick: bool) -> Reproduction:
    """Return the excess risk for several n, for several epsilon and for several clip thresholds."""
    runs = 4 if quick else 24
    sizes = [10_000, 40_000, 160_000] if quick else [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000]
    epsilons = [0.25, 1.0, 4.0] if quick else [0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
    factors = [0.125, 1.0, 4.0] if quick else [0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
    over_n = [row_of(records, EPSILON, runs) for records in sizes]
    over_epsilon = [row_of(MIDDLE, epsilon, runs) for epsilon in epsilons]
    over_clip = [row_of(MIDDLE, EPSILON, runs, factor) for factor in factors]
    rows = [*over_n, *over_epsilon, *over_clip]
    return {
        "inputs": {
            "d": DIMENSION,
            "runs": runs,
            "degrees of freedom of the errors": FREEDOM,
            "risk at the start": excess_risk(np.zeros(DIMENSION)),
            **assumptions(),
        },
        "rows": rows,
        "sentences": [*_bounds(rows), *_slopes(over_n, over_epsilon), _threshold(over_clip)],
        "plots": [
            _plot("Excess risk over the number of records, epsilon_p = 1", "records", over_n, "records"),
            _plot(
                f"Excess risk over epsilon_p, {MIDDLE} records", "epsilon_p", over_epsilon, "epsilon_p = sqrt(2 rho)"
            ),
            _plot(
                f"Excess risk over the clip threshold, {MIDDLE} records, epsilon_p = 1",
                "clip over preset",
                over_clip,
                "threshold over Theorem 11's",
            ),
        ],
    }


def _bounds(rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    ratios = [_of(row, "excess risk") / _of(row, "bound") for row in rows]
    held = sum(
        _of(row, "excess risk") + 4.0 * _of(row, "standard error") <= _of(row, "bound")
        and _of(row, "excess risk") >= _of(row, "lower bound")
        for row in rows
    )
    gain = [_of(row, "bound") / _of(row, "closed form") for row in rows]
    return [
        f"In {held} of {len(rows)} settings the measured excess risk plus four standard errors is below the bound, "
        "and the measured excess risk is above the lower bound. It is "
        f"{min(ratios):.2g} to {max(ratios):.2g} times the bound.",
        "If the bound is evaluated at the plan's own step sizes, it is "
        f"{min(gain):.2g} to {max(gain):.2g} times its closed form.",
    ]


def _slopes(over_n: Sequence[Mapping[str, Cell]], over_epsilon: Sequence[Mapping[str, Cell]]) -> list[str]:
    private, larger = 2.0 - 2.0 / MOMENT_ORDER, over_n[len(over_n) // 2 :]
    return [
        f"In n, the slope of the measured excess risk is {_slope(over_n, 'records', 'excess risk'):.2f}. It is "
        f"{_slope(larger, 'records', 'excess risk'):.2f} from {larger[0]['records']} records on, where the ball no "
        "longer limits the effect of the noise. The slope of the bound is "
        f"{_slope(over_n, 'records', 'bound'):.2f}, and that of the rate "
        f"{_slope(over_n, 'records', 'rate (c = 1)'):.2f}. The private term of the rate has the exponent "
        f"{-private:.2f}, and its other term -1.",
        "In epsilon, the slope of the measured excess risk is "
        f"{_slope(over_epsilon, 'epsilon_p', 'excess risk'):.2f}, that of the bound "
        f"{_slope(over_epsilon, 'epsilon_p', 'bound'):.2f}, and that of the rate "
        f"{_slope(over_epsilon, 'epsilon_p', 'rate (c = 1)'):.2f}. The private term of the rate has the exponent "
        f"{-private:.2f}, and its other term 0.",
    ]


def _threshold(rows: Sequence[Mapping[str, Cell]]) -> str:
    best = min(rows, key=lambda row: _of(row, "excess risk"))
    best_bound = min(rows, key=lambda row: _of(row, "bound"))
    [preset] = [row for row in rows if row["clip over preset"] == 1.0]
    return (
        f"Of the clip thresholds tried, {_of(best_bound, 'clip over preset'):g} times the preset has the least bound "
        f"({_of(best_bound, 'bound'):.2g} against {_of(preset, 'bound'):.2g}). The least measured risk is at "
        f"{_of(best, 'clip over preset'):g} times the preset ({_of(best, 'excess risk'):.2g} against "
        f"{_of(preset, 'excess risk'):.2g}). They differ since the moments are bounded over the whole ball, while a "
        "run stays near the middle of the ball."
    )


def _of(row: Mapping[str, Cell], column: str) -> float:
    value = row[column]
    assert isinstance(value, int | float)
    return float(value)


def _slope(rows: Sequence[Mapping[str, Cell]], x: str, y: str) -> float:
    return slope([_of(row, x) for row in rows], [_of(row, y) for row in rows])


def _plot(title: str, x: str, rows: Sequence[Mapping[str, Cell]], x_label: str) -> Lines:
    columns = ("excess risk", "bound", "closed form", "rate (c = 1)", "lower bound")
    return {
        "kind": "lines",
        "title": title,
        "x": [_of(row, x) for row in rows],
        "series": {column: [_of(row, column) for row in rows] for column in columns},
        "x_label": x_label,
        "y_label": "excess risk",
        "log_x": True,
        "log_y": True,
    }
