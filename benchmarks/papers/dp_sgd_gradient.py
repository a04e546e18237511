"""This reproduction runs Algorithm 2 of Wang, Lei, Ying & Zhang 2022. It compares the optimisation error with its
bounds, computes slopes, and checks the region that Lemma 13 claims.

The loss is the q-norm hinge with q = 1.5, on synthetic records in the unit ball. There are n steps of one record each,
and neighbouring data sets differ by replacing one record. This is the paper's own setting with alpha = 1/2, for which
the paper claims a linear number of gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import NonlinearConstraint, minimize

from accounting.targets import ApproximateDpTarget
from benchmarks.papers.reproduction import Cell, HeatMap, Lines, mean_and_error, slope
from calibrators.registry import calibrate
from calibrators.spec import Calibration, Spec
from calibrators.wang_nonsmooth.feasible_noise import Theorem11, least_epsilon_of_lemma_13, least_feasible_epsilon
from trainer.losses import QNormHinge
from trainer.models import LinearModel
from trainer.run import run

NAME = "dp_sgd_gradient"
TITLE = "Noisy gradients on a non-smooth loss (Wang, Lei, Ying & Zhang 2022, Theorems 11 and 12)"

Q, DIMENSION, RADIUS, GAMMA = 1.5, 5, 1.0, 0.05
SIZES = (500, 1000, 2000, 4000, 8000)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
FIXED_SIZE, FIXED_EPSILON = 2000, 2.0
FRESH_RECORDS = 50_000

MODEL = LinearModel(QNormHinge(Q), DIMENSION, fit_intercept=False)
Matrix = npt.NDArray[np.float64]
Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Data:
    """Records with their labels, 0 or 1, and the least mean loss of any point in the ball."""

    features: Matrix
    labels: npt.NDArray[np.int64]
    least_risk: float

    def risk(self, point: Matrix) -> float:
        """Return the mean loss."""
        return _risk(point, self.features, self.labels)


def reproduce(quick: bool) -> dict[str, Any]:
    """Train with the theorem's step size and with the step size of least bound, and compute where a beta is
    feasible."""
    sizes, epsilons = (SIZES[:3], EPSILONS[1:4]) if quick else (SIZES, EPSILONS)
    repeats = 4 if quick else 12
    fresh = _data(FRESH_RECORDS, seed=1)
    by_size = [_row(n, FIXED_EPSILON, repeats, fresh) for n in sizes]
    by_epsilon = [_row(FIXED_SIZE, epsilon, repeats, fresh) for epsilon in epsilons]
    rows = [*by_size, *(row for row in by_epsilon if row not in by_size)]
    records = [float(n) for n in np.unique(np.logspace(math.log10(18), 6, 7 if quick else 25).astype(int))]
    return {
        "inputs": {
            "loss": f"q-norm hinge, q = {Q}",
            "d": DIMENSION,
            "R": RADIUS,
            "delta": "1/n^2",
            "gamma": GAMMA,
            "T": "n",
            "runs each": repeats,
        },
        "rows": rows,
        "sentences": [*_errors(rows), *_slopes(by_size, by_epsilon), *_noise(rows), *_longer(), *_lemma_13()],
        "plots": [
            _curves("Optimisation error against the number of records, epsilon = 2", by_size, "n", "records n"),
            _curves("Optimisation error against epsilon, n = 2000", by_epsilon, "epsilon", "epsilon"),
            _thresholds(records),
            _region(quick),
        ],
    }


def _row(n: int, epsilon: float, repeats: int, fresh: Data) -> Row:
    data = _data(n, seed=n)
    own = _calibrated(n, epsilon)
    values = {item.name: item.value for item in (*own.hyperparameters, *own.utility)}
    best = _calibrated(n, epsilon, step_size=float(str(values["step_size_of_least_bound"])))
    errors, excess = _measured(own, data, fresh, repeats)
    best_errors, _ = _measured(best, data, fresh, repeats)
    theorem = Theorem11(n, n, epsilon, float(n) ** -2.0)
    printed = theorem.least_noise()
    best_bound = next(item.value for item in best.utility if item.name == "expected_excess_risk_bound")
    return {
        "n": n,
        "epsilon": epsilon,
        "sigma^2/G^2": _noise_multiplier(own) ** 2,
        "of Theorem 11": None if printed is None else printed.relative_variance,
        "that Theorem 12 assumes": theorem.split(theorem.unconstrained_beta).relative_variance,
        "error": mean_and_error(errors)[0],
        "its standard error": mean_and_error(errors)[1],
        "largest error": max(errors),
        "expected bound": _number(values["expected_excess_risk_bound"]),
        f"bound with probability {1.0 - GAMMA / 3.0:.4g}": _number(values["excess_risk_bound"]),
        "error at the step of least bound": mean_and_error(best_errors)[0],
        "its bound": _number(best_bound),
        "excess on fresh records": mean_and_error(excess)[0],
        "rate of Theorem 12": _number(values["excess_risk_rate"]),
    }


def _calibrated(
    n: int, epsilon: float, *, step_size: float | None = None, iterations: int | None = None
) -> Calibration:
    constants = MODEL.holder(1.0)
    spec = Spec(
        dataset_size=n,
        target=ApproximateDpTarget(epsilon, float(n) ** -2.0),
        dimension=DIMENSION,
        assumptions={
            "radius": RADIUS,
            "holder_exponent": constants.exponent,
            "holder_constant": constants.constant,
            "gradient_at_zero": constants.gradient_at_zero,
            "loss_at_zero": constants.loss_at_zero,
            "failure_probability": GAMMA,
        },
    )
    return calibrate(NAME, replace(spec, step_size=step_size, iterations=iterations))


def _noise_multiplier(found: Calibration) -> float:
    assert isinstance(found.value, float), "one noise for all steps"
    return found.value


def _measured(found: Calibration, data: Data, fresh: Data, repeats: int) -> tuple[list[float], list[float]]:
    """Return the optimisation errors of the given number of runs, and their excess risks on fresh records."""
    errors, excess = [], []
    for seed in range(repeats):
        weights = run(found.plan, MODEL, data.features, data.labels, seed=seed).parameters["weights"]
        errors.append(data.risk(weights) - data.least_risk)
        excess.append(fresh.risk(weights) - fresh.least_risk)
    return errors, excess


def _data(n: int, seed: int) -> Data:
    """Return directions on the unit sphere, labelled by a fixed half-space with a tenth of the labels flipped."""
    random = np.random.default_rng(seed)
    features = random.standard_normal((n, DIMENSION))
    features[:, 0] += 1.5 * random.choice([-1.0, 1.0], n)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = ((features[:, 0] > 0.0) ^ (random.random(n) < 0.1)).astype(np.int64)
    solve: Any = minimize  # its type stubs require shapes that NumPy's stubs do not state
    solution = solve(
        lambda w: _risk(w, features, labels),
        np.zeros(DIMENSION),
        jac=lambda w: _gradient(w, features, labels),
        method="SLSQP",
        constraints=NonlinearConstraint(lambda w: w @ w, -np.inf, RADIUS**2, jac=lambda w: 2.0 * w[None, :]),
        tol=1e-12,
    )
    return Data(features, labels, float(solution.fun))


def _margins(point: Matrix, features: Matrix, labels: npt.NDArray[np.int64]) -> Matrix:
    return np.maximum(0.0, 1.0 - (2 * labels - 1) * (features @ point))


def _risk(point: Matrix, features: Matrix, labels: npt.NDArray[np.int64]) -> float:
    return float(np.mean(_margins(point, features, labels) ** Q))


def _gradient(point: Matrix, features: Matrix, labels: npt.NDArray[np.int64]) -> Matrix:
    slopes = -Q * (2 * labels - 1) * _margins(point, features, labels) ** (Q - 1.0)
    mean: Matrix = features.T @ slopes / len(labels)
    return mean


def _errors(rows: Sequence[Row]) -> list[str]:
    bound = next(name for name in rows[0] if name.startswith("bound with"))
    under = all(_number(row["error"]) <= _number(row["expected bound"]) for row in rows)
    within = all(_number(row["largest error"]) <= _number(row[bound]) for row in rows)
    best = all(_number(row["error at the step of least bound"]) <= _number(row["its bound"]) for row in rows)
    shares = [_number(row["error"]) / _number(row["expected bound"]) for row in rows]
    gains = [_number(row["expected bound"]) / _number(row["its bound"]) for row in rows]
    return [
        f"The mean optimisation error is {'under' if under else 'NOT always under'} its expected bound, and "
        f"{min(shares):.2g} to {max(shares):.2g} times the bound. The error of {'every' if within else 'NOT every'} "
        "single run is under the bound that holds with probability 1 - gamma/3.",
        "The step size of least bound has a bound that is "
        f"{min(gains):.3g} to {max(gains):.3g} times smaller than that of Theorem 12's step size 1/(T A). With this "
        f"step size, the error is {'under its bound, too' if best else 'NOT always under its bound'}.",
    ]


def _slopes(by_size: Sequence[Row], by_epsilon: Sequence[Row]) -> list[str]:
    def of(rows: Sequence[Row], x: str, y: str) -> float:
        return slope([_number(row[x]) for row in rows], [_number(row[y]) for row in rows])

    n_error, n_bound = (
        of(by_size, "n", "error at the step of least bound"),
        of(by_size, "n", "its bound"),
    )
    e_error, e_bound = (
        of(by_epsilon, "epsilon", "error at the step of least bound"),
        of(by_epsilon, "epsilon", "its bound"),
    )
    return [
        f"At T = n and the step size of least bound, the error falls as n^{n_error:.2f} (bound n^{n_bound:.2f}) and "
        f"epsilon^{e_error:.2f} (bound epsilon^{e_bound:.2f}). The noise of a step stays of order G, so the privacy "
        "term is of order G sqrt(d/n). It does not have the order sqrt(d log(1/delta))/(n epsilon) of Theorem 12.",
    ]


def _noise(rows: Sequence[Row]) -> list[str]:
    known = [row for row in rows if row["of Theorem 11"] is not None]
    loose = [math.sqrt(_number(row["of Theorem 11"]) / _number(row["sigma^2/G^2"])) for row in known]
    small = [math.sqrt(_number(row["sigma^2/G^2"]) / _number(row["that Theorem 12 assumes"])) for row in rows]
    return [
        f"The noise that Theorem 12 assumes is {min(small):.2g} to {max(small):.2g} times smaller than what privacy "
        "needs at these sizes. The noise of Theorem 11 with the best feasible beta is "
        f"{min(loose):.2g} to {max(loose):.2g} times as large as privacy needs. In {len(rows) - len(known)} of "
        f"{len(rows)} settings, no beta is feasible.",
    ]


def _longer() -> list[str]:
    """Return the bound for more steps with more noise each, at the step size of least bound, with n = 10^4 and epsilon
    = 1."""
    n = 10**4
    bounds = []
    for steps in (n, n * 100, n**2):
        found = _calibrated(n, 1.0, iterations=steps)
        [best] = [float(str(item.value)) for item in found.hyperparameters if item.name == "step_size_of_least_bound"]
        again = _calibrated(n, 1.0, iterations=steps, step_size=best)
        bounds += [_number(item.value) for item in again.utility if item.name == "expected_excess_risk_bound"]
    one, hundred, most = bounds
    return [
        f"More than n steps help. At n = 10^4 and epsilon = 1, the least bound is {one:.3g} after n steps, "
        f"{hundred:.3g} after 100 n and {most:.3g} after n^2 steps. The noise that hides the record of a single step "
        "is enough for many more steps.",
    ]


def _lemma_13() -> list[str]:
    false = [n for n in range(18, 101) if least_feasible_epsilon(n, n, float(n) ** -2.0) > least_epsilon_of_lemma_13(n)]
    where = f"{false[0]} to {false[-1]}" if false == list(range(false[0], false[-1] + 1)) else str(false)
    return [
        f"Of the n from 18 to 100, Lemma 13 is false for n from {where}, at epsilons just above its curve. At n = 18 "
        f"it claims that {least_epsilon_of_lemma_13(18):.4g} is enough, and no beta is feasible below "
        f"{least_feasible_epsilon(18, 18, 18.0**-2.0):.4g}. For larger n its condition is far from necessary: at n = "
        f"10^6 it requires {least_epsilon_of_lemma_13(10**6):.3g}, and "
        f"{least_feasible_epsilon(10**6, 10**6, 1e-12):.3g} is enough.",
    ]


def _curves(title: str, rows: Sequence[Row], x: str, label: str) -> Lines:
    names = ("error", "expected bound", "error at the step of least bound", "its bound")
    return {
        "kind": "lines",
        "title": title,
        "x": [_number(row[x]) for row in rows],
        "series": {name: [_number(row[name]) for row in rows] for name in names},
        "x_label": label,
        "y_label": "R_S(w) - min R_S",
        "log_x": True,
        "log_y": True,
    }


def _thresholds(records: Sequence[float]) -> Lines:
    return {
        "kind": "lines",
        "title": "Figure 1: from which epsilon on Theorem 11 has a feasible beta (T = n, delta = 1/n^2)",
        "x": list(records),
        "series": {
            "Lemma 13 claims": [least_epsilon_of_lemma_13(int(n)) for n in records],
            "by search": [least_feasible_epsilon(int(n), int(n), n**-2.0) for n in records],
        },
        "x_label": "records n",
        "y_label": "epsilon",
        "log_x": True,
        "log_y": True,
    }


def _region(quick: bool) -> HeatMap:
    """Return where a beta is feasible for Theorem 11, and the noise at the best feasible beta."""
    sizes = [20, 10**3, 10**5] if quick else [20, 50, 100, 300, 10**3, 10**4, 10**5, 10**6]
    epsilons = [0.1, 1.0, 10.0] if quick else [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0]
    found = [[Theorem11(n, n, epsilon, float(n) ** -2.0).least_noise() for n in sizes] for epsilon in epsilons]
    return {
        "kind": "heat_map",
        "title": "sigma/G of Theorem 11 at its best feasible beta; 0 where none is feasible",
        "x": [float(n) for n in sizes],
        "y": list(epsilons),
        "values": [
            [0.0 if split is None else round(math.sqrt(split.relative_variance), 1) for split in row] for row in found
        ],
        "x_label": "records n = steps T",
        "y_label": "epsilon",
    }


def _number(value: object) -> float:
    assert isinstance(value, int | float), "a number, not missing"
    return float(value)
