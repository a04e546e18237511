"""`python -m benchmarks.trainer.correlated` measures what correlated noise costs, and writes
benchmarks/results/correlated.json.

It compares the time of a step's correlated noise with that of independent noise, in turns on one thread. Times are CPU
times of all threads together.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

from accounting.events import CyclicPoisson
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from benchmarks import report
from benchmarks.report import markdown_table
from benchmarks.trainer.release import in_turns
from benchmarks.trainer.rounds import spread
from calibrators.correlation import Correlation
from calibrators.matrix_factorisation.strategy import Workload, optimal
from calibrators.plan import Clip, CorrelatedSteps
from calibrators.registry import calibrate
from calibrators.spec import Spec
from trainer.exact.correlated import CorrelatedNoise, Recursion
from trainer.grid import LARGEST_SCALE
from trainer.streams import random_streams

#: The goal for each number of parameters: the largest ratio of the time of a step's noise to that of independent noise.
LARGEST_RATIOS = {7850: 1.5, 1_000_000: 3.0}
BANDS, STEPS = 16, 2000
DISTRIBUTIONS = ("numpy", "randomgen")
SOURCES = ("trainer", "calibrators", "accounting")
Figures = Mapping[str, Any]


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("correlated", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = {
        **report.header("correlated", "make bench-trainer", is_quick, DISTRIBUTIONS, SOURCES),
        "bands": BANDS,
        "noise": [noise(dimension, 5 if is_quick else 31) for dimension in LARGEST_RATIOS],
    }
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


def goals(figures: Figures) -> list[dict[str, Any]]:
    """Return the goals for the time of noise."""
    return [
        {
            "what": f"CPU time of a step's noise with {BANDS} bands, over that of independent noise, "
            f"with {row['dimension']} parameters",
            "goal": f"at most {LARGEST_RATIOS[row['dimension']]:g}",
            "measured": f"{row['ratio']['ratio']:.2f}",
            "met": row["ratio"]["ratio"] <= LARGEST_RATIOS[row["dimension"]],
        }
        for row in figures["noise"]
    ]


def noise(dimension: int, rounds: int) -> dict[str, Any]:
    """Return the microseconds that the noise of a step takes, independent and correlated."""
    phase = correlated_phase()
    recursion = Recursion(phase.whole_coefficients, phase.coefficient_bits)
    alone = random_streams().gaussian_noise()
    together = CorrelatedNoise(random_streams().gaussian_noise(), recursion, dimension)
    # The noise on the coarsest grid that keeps all numbers exact.
    scale = LARGEST_SCALE / recursion.spread(STEPS)
    calls = {
        "independent": lambda: alone.rounded(dimension, LARGEST_SCALE),
        "correlated": lambda: together.rounded(dimension, scale),
    }
    measured = in_turns(calls, rounds, max(2, 2_000_000 // dimension))
    alone.close()
    together.close()
    ratios = [one / other for one, other in zip(measured["correlated"], measured["independent"], strict=True)]
    medians = {f"microseconds_{name}": 1e6 * statistics.median(found) for name, found in measured.items()}
    return {"dimension": dimension, **medians, "ratio": spread(ratios)}


def correlated_phase() -> CorrelatedSteps:
    """Return a phase of steps whose noise has the optimal coefficients for prefix sums."""
    spec = Spec(
        dataset_size=50_000,
        target=ApproximateDpTarget(8.0, 1e-5),
        batch_size=500,
        iterations=STEPS,
        sampling=CyclicPoisson.kind,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        gradient_bound=Clip(1.0),
        correlation=Correlation(bands=BANDS),
    )
    [phase] = calibrate("dp_bandmf", spec).plan.phases
    assert isinstance(phase, CorrelatedSteps)
    assert phase.coefficients == optimal(Workload(STEPS), BANDS).coefficients
    return phase


def correlated_section(figures: Figures) -> list[str]:
    """Return the lines of the part of docs/measured.md about correlated noise."""
    machine, versions = figures["machine"], figures["versions"]
    others = ", ".join(f"{name} {versions[name]}" for name in versions if name != "python")
    return [
        f"`make bench-trainer`, {figures['date']}, {report.commit_of(figures)}; one thread of {machine['cpu']},",
        f"Python {versions['python']}, {others}. Times are CPU times, measured in turns; "
        f"a ratio is the median over {figures['noise'][0]['ratio']['rounds']} rounds. "
        f"The load average was {figures['load_average_before']:.1f} before.",
        *(
            f"Goal: {goal['what']}: {goal['goal']}. Measured: {goal['measured']}: "
            f"{'met' if goal['met'] else '**missed**'}."
            for goal in figures["goals"]
        ),
        "",
        *markdown_table(
            ["parameters", "independent, us", f"{figures['bands']} bands, us", "ratio"],
            [
                [
                    f"{row['dimension']}",
                    f"{row['microseconds_independent']:.0f}",
                    f"{row['microseconds_correlated']:.0f}",
                    f"{row['ratio']['ratio']:.2f} ({row['ratio']['smallest_ratio']:.2f} to "
                    f"{row['ratio']['largest_ratio']:.2f})",
                ]
                for row in figures["noise"]
            ],
        ),
    ]


if __name__ == "__main__":
    main()
