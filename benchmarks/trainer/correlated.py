"""What correlated noise costs and gives: `python -m benchmarks.trainer.correlated` writes results/correlated.json.

The noise of a step beside independent noise, in turns on one thread, by the processor's time of all threads together;
and the accuracy on held-out digits beside independent noise at the same privacy, each at its own best step size.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accounting.events import CyclicPoisson, Poisson
from accounting.relations import NeighboringRelation
from accounting.targets import ApproximateDpTarget
from benchmarks import report
from benchmarks.papers.yang_digits import HELD_OUT, Data, data
from benchmarks.report import markdown_table
from benchmarks.trainer.release import in_turns
from benchmarks.trainer.rounds import spread
from calibrators.correlation import Correlation
from calibrators.matrix_factorisation.strategy import Workload, optimal
from calibrators.plan import Clip, CorrelatedSteps, Plan
from calibrators.registry import calibrate
from calibrators.spec import Spec
from trainer.exact.correlated import CorrelatedNoise, Recursion
from trainer.grid import LARGEST_SCALE
from trainer.models import softmax_regression
from trainer.run import run
from trainer.streams import random_streams

#: Numbers of parameters, and the most that a step's noise may cost over independent noise.
LARGEST_RATIOS = {7850: 1.5, 1_000_000: 3.0}
BANDS, STEPS = 16, 2000
DISTRIBUTIONS = ("numpy", "randomgen")
SOURCES = ("trainer", "calibrators", "accounting")

EPSILONS, DELTA = (1.0, 8.0), 1e-5
BATCH, EPOCHS, SEEDS = 64, 8, 5
STEP_SIZES = tuple(2.0**k for k in range(-3, 6))
#: Kinds of noise, by algorithm and momentum.
SIDES = (("dp_sgd", 0.0), ("dp_bandmf", 0.0), ("dp_bandmf", 0.9))
Figures = Mapping[str, Any]


def main() -> None:
    """Measure, write, and say how it went."""
    output, is_quick = report.asked("correlated", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = {
        "benchmark": "correlated",
        "command": "make bench-trainer",
        "quick": is_quick,
        "load_average_before": os.getloadavg()[0],
        **report.provenance(DISTRIBUTIONS, SOURCES),
        "bands": BANDS,
        "noise": [noise(dimension, 5 if is_quick else 31) for dimension in LARGEST_RATIOS],
        "digits": {"epochs": EPOCHS, "batch_size": BATCH, "held_out": HELD_OUT, "seeds": 2 if is_quick else SEEDS},
    }
    sizes = STEP_SIZES[2::3] if is_quick else STEP_SIZES
    figures["accuracy"] = accuracies(data(), sizes, figures["digits"]["seeds"])
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


def goals(figures: Figures) -> list[dict[str, Any]]:
    """The goals of time, and those of accuracy: nowhere worse by two standard errors, better by two at the largest."""
    found = []
    for row in figures["noise"]:
        most = LARGEST_RATIOS[row["dimension"]]
        found.append(
            {
                "what": f"noise of a step with {BANDS} bands over independent noise, {row['dimension']} parameters",
                "goal": f"at most {most:g}",
                "measured": f"{row['ratio']['ratio']:.2f}",
                "met": row["ratio"]["ratio"] <= most,
            }
        )
    for epsilon in EPSILONS:
        own, other = (best(figures["accuracy"], epsilon, algorithm) for algorithm in ("dp_bandmf", "dp_sgd"))
        gain = own["accuracy"] - other["accuracy"]
        error = math.hypot(own["standard_error"], other["standard_error"])
        least = 2.0 if epsilon == max(EPSILONS) else -2.0
        found.append(
            {
                "what": f"accuracy on held-out digits over dp_sgd's, epsilon {epsilon:g}, in standard errors",
                "goal": f"at least {least:g}",
                "measured": f"{own['accuracy']:.4f} - {other['accuracy']:.4f} = {gain / error:+.1f} x {error:.4f}",
                "met": gain >= least * error,
            }
        )
    return found


def noise(dimension: int, rounds: int) -> dict[str, Any]:
    """Microseconds a step, independent and correlated."""
    phase = correlated_phase()
    recursion = Recursion(phase.whole_coefficients, phase.coefficient_bits)
    alone = random_streams().gaussian_noise()
    together = CorrelatedNoise(random_streams().gaussian_noise(), recursion, dimension)
    # Of the coarsest grid that keeps all numbers exact.
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
    """Return steps with the optimal coefficients of prefix sums."""
    spec = _spec(50_000, 500, STEPS, ApproximateDpTarget(8.0, DELTA), "dp_bandmf", 0.05, 0.0)
    [phase] = calibrate("dp_bandmf", replace(spec, correlation=Correlation(bands=BANDS))).plan.phases
    assert isinstance(phase, CorrelatedSteps)
    assert phase.coefficients == optimal(Workload(STEPS), BANDS).coefficients
    return phase


def accuracies(rows: Data, step_sizes: Sequence[float], seeds: int) -> list[dict[str, Any]]:
    """For each epsilon and kind of noise the accuracy at each step size, in the mean over the seeds."""
    x, y, held_x, held_y = rows
    model = softmax_regression(x.shape[1], 10)
    found = []
    for epsilon in EPSILONS:
        for algorithm, momentum in SIDES:
            for step_size in step_sizes:
                plan = plan_for(len(y), epsilon, algorithm, step_size, momentum)
                scores = [
                    model.score(run(plan, model, x, y, seed=seed).parameters, held_x, held_y) for seed in range(seeds)
                ]
                [phase] = plan.phases
                found.append(
                    {
                        "epsilon": epsilon,
                        "algorithm": algorithm,
                        "momentum": momentum,
                        "bands": len(phase.coefficients) if isinstance(phase, CorrelatedSteps) else 1,
                        "step_size": step_size,
                        "accuracy": statistics.mean(scores),
                        "standard_error": float(np.std(scores, ddof=1)) / math.sqrt(seeds),
                    }
                )
    return found


def plan_for(size: int, epsilon: float, algorithm: str, step_size: float, momentum: float) -> Plan:
    """Return the plan of a few epochs at this privacy; the number of bands is chosen."""
    steps = EPOCHS * size // BATCH
    spec = _spec(size, BATCH, steps, ApproximateDpTarget(epsilon, DELTA), algorithm, step_size, momentum)
    return calibrate(algorithm, spec).plan


def _spec(
    size: int,
    batch: int,
    steps: int,
    target: ApproximateDpTarget,
    algorithm: str,
    step_size: float,
    momentum: float,
) -> Spec:
    spec = Spec(
        dataset_size=size,
        target=target,
        batch_size=batch,
        iterations=steps,
        sampling=Poisson.kind,
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        gradient_bound=Clip(1.0),
        step_size=step_size,
    )
    if algorithm == "dp_sgd":
        return spec
    return replace(spec, sampling=CyclicPoisson.kind, correlation=Correlation(), momentum=momentum or None)


def best(rows: Sequence[Figures], epsilon: float, algorithm: str) -> Figures:
    """The row with the best accuracy of an algorithm at an epsilon."""
    return max(
        (row for row in rows if (row["epsilon"], row["algorithm"]) == (epsilon, algorithm)),
        key=lambda row: float(row["accuracy"]),
    )


def correlated_section(figures: Figures) -> list[str]:
    """The lines of the part of docs/measured.md about correlated noise."""
    machine, versions, digits = figures["machine"], figures["versions"], figures["digits"]
    others = ", ".join(f"{name} {versions[name]}" for name in versions if name != "python")
    return [
        f"What correlated noise costs and gives: `make bench-trainer`, {figures['date']}, commit "
        f"{figures['commit'][:10]}{' with uncommitted changes' if figures['uncommitted_changes'] else ''}; one thread "
        f"of {machine['cpu']},",
        f"Python {versions['python']}, {others}. Processor time, in turns, "
        f"{figures['noise'][0]['ratio']['rounds']} rounds; a ratio is the median over the rounds. "
        f"The load average was {figures['load_average_before']:.1f} before.",
        *(
            f"Goal: {goal['what']} {goal['goal']}; measured {goal['measured']}: "
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
        "",
        f"Softmax regression on the digits, {digits['epochs']} epochs, batches of {digits['batch_size']}, clip "
        f"threshold 1, delta {DELTA:g}, {digits['seeds']} seeds: the best step size of each, on {digits['held_out']} "
        "rows that were held out.",
        "",
        *markdown_table(
            ["epsilon", "algorithm", "momentum", "bands", "step size", "accuracy"],
            [
                [
                    f"{row['epsilon']:g}",
                    f"`{row['algorithm']}`",
                    f"{row['momentum']:g}",
                    f"{row['bands']}",
                    f"{row['step_size']:g}",
                    f"{row['accuracy']:.4f} +- {row['standard_error']:.4f}",
                ]
                for row in _best_of_each(figures["accuracy"])
            ],
        ),
    ]


def _best_of_each(rows: Sequence[Figures]) -> list[Figures]:
    return [
        best([row for row in rows if row["momentum"] == momentum], epsilon, algorithm)
        for epsilon in EPSILONS
        for algorithm, momentum in SIDES
    ]


if __name__ == "__main__":
    main()
