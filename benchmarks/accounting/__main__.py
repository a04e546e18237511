"""`python -m benchmarks.accounting`: measure everything, and write benchmarks/results/accounting.json.

``--quick`` measures less, for people who work on the benchmark itself. Its figures are written elsewhere and are not
shown in docs/measured.md.
"""

from __future__ import annotations

import contextlib
import io
import logging
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import report
from benchmarks.accounting import cases, ours, quality, speed
from benchmarks.accounting.goals import goals
from benchmarks.accounting.peers import DISTRIBUTIONS, PEERS
from benchmarks.timing import Effort

#: The limit of this process's memory. A library that asks for more gets an error, and the next ones are still measured.
MEMORY_BYTES = 6 * 2**30

ONE_ROUND = Effort(rounds_at_least=1, rounds_at_most=1, limit=10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """The sizes that decide how much one run of the benchmark measures: efforts, and numbers of cases of each kind."""

    effort: Effort
    calibration_effort: Effort
    flatness_effort: Effort
    trainings: int
    targets: int
    matched: int
    fixed_sizes: int
    random_targets: int
    few_participations: int
    wide: int
    peer_cases: int


FULL = Scale(
    effort=Effort(rounds_at_least=3, rounds_at_most=9, seconds=2.0, limit=8.0),
    calibration_effort=Effort(rounds_at_least=3, rounds_at_most=5, seconds=4.0, limit=60.0),
    flatness_effort=Effort(rounds_at_least=9, rounds_at_most=25, seconds=2.0),
    trainings=len(cases.TRAININGS),
    targets=len(cases.TARGETS),
    matched=len(cases.MATCHED),
    fixed_sizes=len(cases.FIXED_SIZES),
    random_targets=20,
    few_participations=30,
    wide=300,
    peer_cases=60,
)
QUICK = Scale(
    effort=ONE_ROUND,
    calibration_effort=ONE_ROUND,
    flatness_effort=ONE_ROUND,
    trainings=2,
    targets=1,
    matched=1,
    fixed_sizes=2,
    random_targets=2,
    few_participations=4,
    wide=10,
    peer_cases=3,
)


def measurements(scale: Scale) -> Mapping[str, Callable[[], Any]]:
    """Return each section of the results, in the order in which they are measured."""
    targets = cases.TARGETS[: scale.targets]
    return {
        "epsilon_calibrated": lambda: speed.epsilons(map(calibrated, targets), PEERS, scale.effort),
        "epsilon_trainings": lambda: speed.epsilons(cases.TRAININGS[: scale.trainings], PEERS, scale.effort),
        "calibration": lambda: speed.calibrations(targets, PEERS, scale.calibration_effort),
        "flatness": lambda: speed.flatness(cases.MATCHED[: scale.matched], scale.flatness_effort),
        "few_participations": lambda: speed.slow_cases(cases.few_participations(scale.few_participations), ONE_ROUND),
        "fixed_size": lambda: quality.fixed_sizes(cases.FIXED_SIZES[: scale.fixed_sizes], scale.effort),
        "targets": lambda: quality.target_use(cases.random_targets(scale.random_targets)),
        "width": lambda: quality.widths(cases.wide_draw(scale.wide), peer_cases=scale.peer_cases, limit=10.0),
        "disputes": lambda: quality.disputes(limit=30.0),
        "unavailable": lambda: quality.unavailable(limit=30.0),
    }


def calibrated(target: cases.Target) -> cases.Training:
    """Return a training run with the noise that our calibration finds for ``target``."""
    noise = ours.noise(target).noise_multiplier
    return cases.Training(noise, target.sampling_probability, target.steps, target.delta)


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("accounting", __doc__)
    be_quiet()
    started = time.perf_counter()
    figures: dict[str, Any] = {
        "benchmark": "accounting",
        "command": "make bench-accounting",
        "quick": is_quick,
        **report.provenance(DISTRIBUTIONS, ["accounting"]),
    }
    for name, measure in measurements(QUICK if is_quick else FULL).items():
        begun = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            figures[name] = measure()
        sys.stderr.write(f"{name}: {time.perf_counter() - begun:.0f} s\n")
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


def be_quiet() -> None:
    """Turn off the log lines and warnings of both sides. Writing them takes time, and one side writes more of them."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
