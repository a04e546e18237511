"""`python -m benchmarks.accounting.factorisations`: compare our banded matrices with those that JAX Privacy finds.

First each side finds the matrix with a given number of bands. Then each side chooses the number of bands for a target,
with the noise that the target needs. The same function in float64 judges both: it computes the error of prefix sums
with a matrix of sensitivity 1. JAX compiles its code in each call; a caller waits for the compilation, so it is timed.
Our side clears its caches before each call. JAX Privacy needs an environment of its own.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from accounting.events import CyclicPoisson
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from benchmarks import report
from benchmarks.report import commit_of, goals_table, markdown_table
from calibrators.correlation import Correlation, Objective
from calibrators.matrix_factorisation.bands import solve
from calibrators.matrix_factorisation.strategy import Workload, evaluated, optimal
from calibrators.plan import Clip
from calibrators.spec import Spec

DISTRIBUTIONS = ("numpy", "scipy", "jax-privacy", "jax", "dp-accounting")
SOURCES = ("accounting", "calibrators")
#: The numbers of steps and of bands of each matrix.
SIZES = ((1000, 2), (2000, 8), (2000, 32), (10_000, 16))
RECORDS, BATCH, STEPS, DELTA = 50_000, 500, 2000, 1e-5
EPSILONS = (2.0, 8.0)
LARGEST_RATIO = 1.0001
Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """The coefficients of a matrix, the seconds that it took to find them, and the noise multiplier. The noise
    multiplier is 1 if no target was given."""

    coefficients: tuple[float, ...]
    seconds: float
    noise: float = 1.0

    def error(self, steps: int, objective: Objective) -> float:
        """Return the error of prefix sums with the matrix scaled to sensitivity 1, in units of the contribution
        bound."""
        mean, largest = evaluated(Workload(steps), self.coefficients)
        return (
            self.noise * float(np.linalg.norm(self.coefficients)) * (mean if objective is Objective.MEAN else largest)
        )


def timed(find: Callable[[], tuple[Sequence[float], float]]) -> Found:
    """Call ``find``, and return its coefficients and noise multiplier with the time that it took."""
    optimal.cache_clear()
    begun = time.perf_counter()
    coefficients, noise = find()
    seconds = time.perf_counter() - begun
    return Found(tuple(float(value) for value in coefficients), seconds, noise)


def matrices(steps: int, bands: int, objective: Objective, rounds: int) -> dict[str, Any]:
    """Return both sides' matrix with the given number of bands, and the median of the times over the rounds."""
    toeplitz: Any = import_module("jax_privacy.matrix_factorization.toeplitz")
    reduction = getattr(import_module("jax.numpy"), objective.value)
    ours = [timed(lambda: (optimal(Workload(steps), bands, objective).coefficients, 1.0)) for _ in range(rounds)]
    theirs = [
        timed(lambda: (toeplitz.optimize_banded_toeplitz(steps, bands, reduction_fn=reduction), 1.0))
        for _ in range(rounds)
    ]
    return {"steps": steps, "bands": bands, "objective": objective.value, **_beside(ours, theirs, steps, objective)}


def choices(epsilon: float) -> dict[str, Any]:
    """Return the number of bands and the noise that this engine and JAX Privacy choose for a target."""
    toeplitz: Any = import_module("jax_privacy.matrix_factorization.toeplitz")

    def ours() -> tuple[Sequence[float], float]:
        spec = Spec(
            RECORDS,
            ApproximateDpTarget(epsilon, DELTA),
            batch_size=BATCH,
            iterations=STEPS,
            sampling=CyclicPoisson.kind,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            gradient_bound=Clip(1.0),
            correlation=Correlation(),
        )
        found = solve(spec)
        norm = float(np.linalg.norm(found.strategy.coefficients))
        chosen = next(each for each in found.alternatives if each.is_chosen)
        return found.strategy.coefficients, chosen.noise_multiplier / norm

    def theirs() -> tuple[Sequence[float], float]:
        coefficients, stddev = toeplitz.optimize_coefs_for_amplifications(
            STEPS, dataset_size=RECORDS, expected_batch_size=BATCH, epsilon=epsilon, delta=DELTA
        )
        return coefficients, float(stddev) / float(np.linalg.norm(coefficients))

    sides = [timed(ours)], [timed(theirs)]
    bands = {name: len(found[0].coefficients) for name, found in zip(("ours", "theirs"), sides, strict=True)}
    return {"epsilon": epsilon, "bands": bands, **_beside(*sides, STEPS, Objective.MEAN)}


def _beside(ours: Sequence[Found], theirs: Sequence[Found], steps: int, objective: Objective) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, found in (("ours", ours), ("theirs", theirs)):
        figures[name] = {
            "error": found[0].error(steps, objective),
            "seconds": statistics.median(each.seconds for each in found),
        }
    figures["error_ratio"] = figures["ours"]["error"] / figures["theirs"]["error"]
    figures["time_ratio"] = figures["theirs"]["seconds"] / figures["ours"]["seconds"]
    return figures


def goals(figures: Figures) -> list[dict[str, Any]]:
    """Return the goals: up to rounding, our matrices have no more error than theirs, at the same number of bands and
    for a target, and are found in less time."""
    same, chosen = figures["matrices"], figures["choices"]
    worst = max(row["error_ratio"] for row in same)
    errors = [row["error_ratio"] for row in chosen]
    times = [row["time_ratio"] for row in (*same, *chosen)]
    return [
        {
            "what": f"error over JAX Privacy's at the same bands, {len(same)} matrices",
            "goal": f"at most {LARGEST_RATIO}",
            "measured": f"{min(row['error_ratio'] for row in same):.6f} to {worst:.6f}",
            "met": worst <= LARGEST_RATIO,
        },
        {
            "what": "error over JAX Privacy's for a target, if each side chooses bands and noise",
            "goal": "at most 1",
            "measured": ", ".join(f"{value:.4f}" for value in errors),
            "met": max(errors) <= 1.0,
        },
        {
            "what": "JAX Privacy's time over ours, its compilation included",
            "goal": "at least 1",
            "measured": f"{min(times):.0f} to {max(times):.0f} times",
            "met": min(times) >= 1.0,
        },
    ]


def factorisations_section(figures: Figures) -> list[str]:
    """Return the part of docs/measured.md about matrices, from the committed figures alone."""
    versions = figures["versions"]
    peers = ", ".join(f"{name} {versions[name]}" for name in DISTRIBUTIONS)
    return [
        "Our banded matrices for correlated noise are compared with those that JAX Privacy finds "
        f"(`{figures['command']}`, {figures['date']}, {commit_of(figures)}; {peers};",
        f"load average {figures['load_average_before']:.1f} before). The error is that of prefix sums with a matrix of "
        "sensitivity 1;",
        "the same function evaluates it for both sides. Our coefficients are rounded to multiples of a power of two, "
        "as runs need them.",
        "",
        *goals_table(figures["goals"]),
        "",
        *markdown_table(
            ["steps", "bands", "error", "ours", "theirs", "ratio", "ours, ms", "theirs, s"],
            [
                [
                    f"{row['steps']}",
                    f"{row['bands']}",
                    row["objective"],
                    f"{row['ours']['error']:.6f}",
                    f"{row['theirs']['error']:.6f}",
                    f"{row['error_ratio']:.6f}",
                    f"{1e3 * row['ours']['seconds']:.0f}",
                    f"{row['theirs']['seconds']:.1f}",
                ]
                for row in figures["matrices"]
            ],
        ),
        "",
        "In this table each side also chooses the number of bands and the noise for a target epsilon, with "
        f"{RECORDS} records, batches of {BATCH}, {STEPS} steps and delta",
        f"{DELTA:g}. JAX Privacy tries the divisors of the number of records as numbers of bands, and accounts by "
        "Rényi orders.",
        "",
        *markdown_table(
            ["epsilon", "bands, ours", "theirs", "error, ours", "theirs", "ratio", "ours, s", "theirs, s"],
            [
                [
                    f"{row['epsilon']:g}",
                    f"{row['bands']['ours']}",
                    f"{row['bands']['theirs']}",
                    f"{row['ours']['error']:.4f}",
                    f"{row['theirs']['error']:.4f}",
                    f"{row['error_ratio']:.4f}",
                    f"{row['ours']['seconds']:.1f}",
                    f"{row['theirs']['seconds']:.0f}",
                ]
                for row in figures["choices"]
            ],
        ),
    ]


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("factorisations", __doc__)
    logging.disable(logging.WARNING)  # JAX Privacy logs thousands of warnings about Rényi orders that do not converge
    started = time.perf_counter()
    sizes, rounds = (SIZES[:1], 1) if is_quick else (SIZES, 3)
    figures: dict[str, Any] = {
        **report.header("factorisations", "make bench-accounting", is_quick, DISTRIBUTIONS, SOURCES),
        "matrices": [
            matrices(steps, bands, objective, rounds) for steps, bands in sizes for objective in (*Objective,)
        ],
    }
    sys.stderr.write(f"matrices: {time.perf_counter() - started:.0f} s\n")
    figures["choices"] = [choices(epsilon) for epsilon in EPSILONS[: 1 if is_quick else None]]
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
