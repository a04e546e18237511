"""This reproduction computes the errors of banded matrices (Choquette-Choo et al. 2023) with the noise that each needs,
and compares closed forms with values in other papers.

The error is that of prefix sums, which decides the error of a run with one step size. Nothing is trained here. For each
target, every number of bands has its own certified noise. The best of the numbers 1, 2, 4, ..., 64 is compared with the
best of all numbers up to 128. Each optimal matrix is compared with the square root, cut to the same number of bands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from accounting.events import CyclicPoisson, FixedOrderEpochs
from accounting.factorisations import square_root
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from benchmarks.papers.reproduction import Cell, Lines, Reproduction
from calibrators.correlation import Alternative, Correlation
from calibrators.matrix_factorisation.bands import solve
from calibrators.matrix_factorisation.strategy import Workload, evaluated, optimal
from calibrators.plan import Clip
from calibrators.spec import Spec

NAME = "dp_bandmf"
TITLE = "DP-BandMF: the error of banded matrices, after Choquette-Choo et al."

RECORDS, DELTA = 50_000, 1e-5
SETTINGS = ((500, 2000, 1.0), (500, 2000, 2.0), (500, 2000, 4.0), (500, 2000, 8.0), (1000, 5000, 8.0))
_CYCLIC, _FIXED = CyclicPoisson.kind, FixedOrderEpochs.kind


def reproduce(quick: bool) -> Reproduction:
    """Return the noise and the error for every target. ``quick`` leaves out the comparison with all numbers of
    bands."""
    rows: list[dict[str, Cell]] = []
    lines: dict[str, list[float | None]] = {}
    bands = [2**power for power in range(7)]
    lost = []
    for batch, steps, epsilon in SETTINGS:
        spec = _spec(batch, steps, epsilon)
        found = solve(spec).alternatives
        ratios = {each.bands: each.ratio for each in found}
        lines[f"epsilon {epsilon:g}, {steps} steps"] = [ratios.get(each) for each in bands]
        rows += [_row(spec, each) for each in found]
        if not quick:
            best = min(_errors_of_all(spec))
            lost.append(min(each.error for each in found) / best - 1.0)
    fixed = solve(_spec(500, 2000, 8.0, _FIXED, 128)).alternatives
    rows += [_row(_spec(500, 2000, 8.0, _FIXED, 128), each) for each in fixed if each.sampling == _FIXED]
    plot: Lines = {
        "kind": "lines",
        "title": "Error over that of independent noise",
        "x": [float(value) for value in bands],
        "series": lines,
        "x_label": "bands",
        "y_label": "error over that of one band",
        "log_x": True,
    }
    return {
        "inputs": {"records": RECORDS, "delta": DELTA, "workload": "prefix sums", "error": "root mean square"},
        "rows": rows,
        "sentences": [*_of_sampling(rows), *_of_brute_force(lost), *_of_roots(), *_of_closed_forms()],
        "plots": [plot],
    }


def _spec(batch: int, steps: int, epsilon: float, sampling: str = _CYCLIC, most: int = 64) -> Spec:
    is_cyclic = sampling == _CYCLIC
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE if is_cyclic else NeighboringRelation.REPLACE_SPECIAL
    return Spec(
        RECORDS,
        ApproximateDpTarget(epsilon, DELTA),
        batch_size=batch,
        iterations=steps,
        sampling=sampling,
        neighboring_relation=relation,
        gradient_bound=Clip(1.0),
        correlation=Correlation(max_bands=most),
    )


def _row(spec: Spec, found: Alternative) -> dict[str, Cell]:
    assert isinstance(spec.target, ApproximateDpTarget)
    return {
        "batches": found.sampling.replace("_", " "),
        "B": spec.batch_size,
        "T": spec.iterations,
        "epsilon": spec.target.epsilon,
        "bands": found.bands,
        "noise multiplier": found.noise_multiplier,
        "error": found.error,
        "over independent noise, Poisson": found.ratio,
        "chosen": found.is_chosen,
    }


def _errors_of_all(spec: Spec) -> Iterator[float]:
    """Yield the error of every number of bands that the sizes allow, up to 128."""
    assert spec.batch_size is not None
    for bands in range(1, min(128, RECORDS // spec.batch_size) + 1):
        found = solve(replace(spec, correlation=Correlation(bands=bands, max_bands=128))).alternatives
        yield next(each.error for each in found if each.is_chosen)


def _of_sampling(rows: list[dict[str, Cell]]) -> Iterator[str]:
    for epsilon in (2.0, 8.0):
        chosen = next(row for row in rows if (row["epsilon"], row["T"], row["chosen"]) == (epsilon, 2000, True))
        yield (
            f"In 20 epochs at epsilon {epsilon:g}, {chosen['bands']} bands have "
            f"{float(chosen['over independent noise, Poisson'] or 0.0):.4f} times the error of independent noise."
        )
    fixed = [row for row in rows if row["batches"] == _FIXED.replace("_", " ")]
    alone, best = fixed[0], min(fixed, key=lambda row: float(row["error"] or 0.0))
    without, least = float(alone["error"] or 0.0), float(best["error"] or 0.0)
    sampled = without / float(alone["over independent noise, Poisson"] or 1.0)
    yield (
        f"If batches cannot be sampled and have a fixed order, {best['bands']} bands have the error {least:.4g} at "
        f"epsilon 8, and independent noise has {without:.4g}. With Poisson batches, independent noise has "
        f"{sampled:.4g}."
    )


def _of_brute_force(lost: list[float]) -> Iterator[str]:
    if lost:
        yield (
            "The best number of bands up to 128 has at most "
            f"{100.0 * max(lost):.2g} % less error than the best of the numbers 1, 2, 4, ..., 64."
        )


def _of_roots() -> Iterator[str]:
    found = []
    for steps, bands in ((2000, 2), (2000, 8), (2000, 32), (10_000, 64)):
        cut = square_root(bands)
        error = float(np.linalg.norm(cut)) * evaluated(Workload(steps), tuple(cut))[0]
        found.append(
            f"{100.0 * (error / optimal(Workload(steps), bands).least - 1.0):.0f} % ({bands} bands, T = {steps})"
        )
    yield (
        "If the square root is cut to its first bands (Kalinin & Lampert 2024), it has more error than the optimum, by "
        f"{', '.join(found)}."
    )


def _of_closed_forms() -> Iterator[str]:
    """Yield a sentence about the closed forms of Fichtenberger, Henzinger & Upadhyay 2023 for one participation, and
    about a formula that is often quoted from this paper."""
    steps = 1000
    root = square_root(steps)
    norm = float(np.linalg.norm(root))
    mean, largest = evaluated(Workload(steps), tuple(root))
    attained = norm * largest
    bound = (math.log(steps) + np.euler_gamma + math.log(16.0)) / math.pi
    quoted = 1.0 + math.log(steps) / math.pi
    yield (
        f"With the whole square root, one participation and T = {steps}, the largest error is {attained:.6f}, which "
        f"equals the sum of squared coefficients ({float(root @ root):.6f}), and the mean error is {norm * mean:.6f}. "
        f"The number (ln T + gamma + ln 16)/pi = {bound:.6f} is a bound on the largest error. The number 1 + ln(T)/pi "
        f"= {quoted:.6f}, which is often quoted, is "
        f"{'below the largest error, and so no bound' if quoted < attained else 'above the largest error'}."
    )
