"""`python -m benchmarks.accounting.draws`: measure how long random questions about every scheme take, and count
those without an answer.

Small sampling probabilities and small epsilons are drawn often on purpose. Times are CPU times of one core, at the
default effort. The command writes benchmarks/results/draws.json and prints a table. `--specs` sets the number of
questions about each scheme.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, FullBatch, Gaussian, Laplace, Mechanism, Poisson, Sampling, WithoutReplacement
from accounting.groups import group_epsilon_for_delta
from accounting.intervals import Answer
from accounting.relations import NeighboringRelation
from benchmarks import report

SPECS, SEED = 1000, 74
#: The goal in seconds: 99 of 100 questions take no longer.
DRAW_SECONDS = 2.0
_LEVELS = (0.5, 0.9, 0.99, 1.0)
_SLOWEST = 5


@dataclass(frozen=True, slots=True)
class Question:
    """A question: the epsilon of an event at a delta, for a group of the given size."""

    event: Event
    relation: NeighboringRelation
    delta: float
    group_size: int = 1

    def ask(self) -> Answer:
        """Return the engine's answer."""
        if self.group_size > 1:
            return group_epsilon_for_delta([self.event], self.relation, self.delta, self.group_size)
        return epsilon_for_delta([self.event], self.relation, self.delta)


Draw = Callable[[np.random.Generator], Question]


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def _probability(rng: np.random.Generator) -> float:
    """Return a random sampling probability, which is below 1e-5 in one of three cases."""
    return _log_uniform(rng, 1e-9, 1e-5) if rng.random() < 1 / 3 else _log_uniform(rng, 1e-5, 0.9)


def _noise(rng: np.random.Generator) -> float:
    """Return a random noise multiplier, which is above 8 in one of three cases, so that epsilon is small."""
    return _log_uniform(rng, 8.0, 800.0) if rng.random() < 1 / 3 else _log_uniform(rng, 0.3, 8.0)


def _question(
    rng: np.random.Generator,
    mechanism: Mechanism,
    sampling: Sampling,
    relation: NeighboringRelation,
    most_steps: float = 1e6,
    group_size: int = 1,
) -> Question:
    event = Event(mechanism, sampling, round(_log_uniform(rng, 1.0, most_steps)))
    return Question(event, relation, _log_uniform(rng, 1e-12, 1e-3), group_size)


def _poisson(relation: NeighboringRelation) -> Draw:
    return lambda rng: _question(rng, Gaussian(_noise(rng)), Poisson(_probability(rng)), relation)


def _fixed_size(rng: np.random.Generator) -> Question:
    size = round(_log_uniform(rng, 10.0, 1e8))
    sampling = WithoutReplacement(max(1, round(size * _probability(rng))), size)
    return _question(rng, Gaussian(_noise(rng)), sampling, NeighboringRelation.REPLACE_ONE)


def _full_batch(rng: np.random.Generator) -> Question:
    return _question(rng, Gaussian(_log_uniform(rng, 0.3, 1e4)), FullBatch(), NeighboringRelation.ADD_OR_REMOVE_ONE)


def _laplace(rng: np.random.Generator) -> Question:
    return _question(
        rng, Laplace(_log_uniform(rng, 0.5, 300.0)), FullBatch(), NeighboringRelation.ADD_OR_REMOVE_ONE, 1e4
    )


def _laplace_poisson(rng: np.random.Generator) -> Question:
    noise, sampling = _log_uniform(rng, 0.5, 300.0), Poisson(_probability(rng))
    return _question(rng, Laplace(noise), sampling, NeighboringRelation.ADD_OR_REMOVE_ONE, 1e4)


def _group(rng: np.random.Generator) -> Question:
    size, relations = round(_log_uniform(rng, 2.0, 12.0)), tuple(NeighboringRelation)
    relation = relations[int(rng.integers(len(relations)))]
    return _question(rng, Gaussian(size * _noise(rng)), Poisson(_log_uniform(rng, 1e-6, 0.6)), relation, 1e5, size)


SCHEMES: Mapping[str, Draw] = {
    "Gaussian, Poisson, add_or_remove_one": _poisson(NeighboringRelation.ADD_OR_REMOVE_ONE),
    "Gaussian, Poisson, replace_special": _poisson(NeighboringRelation.REPLACE_SPECIAL),
    "Gaussian, Poisson, replace_one": _poisson(NeighboringRelation.REPLACE_ONE),
    "Gaussian, fixed size, replace_one": _fixed_size,
    "Gaussian, full batches": _full_batch,
    "Laplace, full batches": _laplace,
    "Laplace, Poisson": _laplace_poisson,
    "groups of 2 to 12, Gaussian, Poisson": _group,
}


def measure(name: str, specs: int) -> dict[str, Any]:
    """Ask the given number of random questions about a scheme, and return the times and failures."""
    # The first answer of a process also loads the engine, so it is not timed.
    SCHEMES[name](np.random.default_rng(SEED)).ask()
    rng = np.random.default_rng([SEED, list(SCHEMES).index(name)])
    times: list[tuple[float, str]] = []
    refused: list[str] = []
    widths: list[float] = []
    at_effort = 0
    for _ in range(specs):
        question = SCHEMES[name](rng)
        began = time.process_time()
        try:
            answer = question.ask()
        except Exception as error:  # The benchmark counts questions without an answer, for whatever reason.
            refused.append(f"{question}: {error!r}")
            continue
        finally:
            times.append((time.process_time() - began, str(question)))
        if not math.isfinite(answer.value.upper):
            refused.append(f"{question}: no finite bound")
            continue
        widths.append(answer.value.width / max(1e-3, answer.value.upper))
        at_effort += any("effort" in warning for warning in answer.warnings)
    times.sort()
    seconds = [each for each, _ in times]
    return {
        "scheme": name,
        "specs": specs,
        "cpu_seconds": {str(level): float(np.quantile(seconds, level)) for level in _LEVELS},
        "relative_width": {str(level): float(np.quantile(widths, level)) for level in _LEVELS},
        "at_effort": at_effort,
        "refused": refused,
        "slowest": [f"{took:.2f} s: {question}" for took, question in times[: -_SLOWEST - 1 : -1]],
    }


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Return a Markdown table of the results."""
    return report.markdown_table(
        ["scheme", "specs", "median", "90 %", "99 %", "longest", "refused", "stopped at the limit of effort"],
        [
            [
                row["scheme"],
                str(row["specs"]),
                *(f"{1e3 * row['cpu_seconds'][str(level)]:.3g} ms" for level in _LEVELS),
                str(len(row["refused"])),
                str(row["at_effort"]),
            ]
            for row in rows
        ],
    )


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", type=int, default=SPECS)
    parser.add_argument("--output", type=Path, default=report.FOLDER / "draws.json")
    arguments = parser.parse_args()
    began, rows = time.perf_counter(), []
    for name in SCHEMES:
        rows.append(measure(name, arguments.specs))
        sys.stderr.write(f"{name}: {rows[-1]['cpu_seconds']} s of CPU time, {len(rows[-1]['refused'])} refused\n")
    figures = {
        "benchmark": "draws",
        "command": "python -m benchmarks.accounting.draws",
        **report.provenance(("numpy", "scipy", "numba"), ["accounting"]),
        "schemes": rows,
    }
    goals = [
        {
            "what": f"a random question, {row['scheme']}",
            "goal": f"99 % within {DRAW_SECONDS:g} s, none refused",
            "measured": f"{row['cpu_seconds']['0.99']:.2f} s, {len(row['refused'])} refused",
            "met": row["cpu_seconds"]["0.99"] <= DRAW_SECONDS and not row["refused"],
        }
        for row in rows
    ]
    report.conclude(arguments.output, figures, goals, time.perf_counter() - began)
    sys.stdout.write("\n".join(table(rows)) + "\n")


if __name__ == "__main__":
    main()
