"""`python -m benchmarks.defaults.step_sizes [SET ...] [--epsilon E ...]`: should the preset's step size depend on the
noise?

The command runs the preset's plan with its step size times each of `FACTORS`, on the sets on which rules may be tuned.
The scores show how much the factor k (1 + c noise)^-a would gain if k, c and a were chosen by hindsight on the scored
rows. No rule of this form could gain more.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.defaults.command import asked
from benchmarks.defaults.goals import mean_and_error
from benchmarks.defaults.kept import KEPT, scorer
from benchmarks.defaults.preset import preset_plan, with_steps
from benchmarks.defaults.protocol import LARGE, SEEDS, TUNED_ON, Split
from benchmarks.report import commit_of, markdown_table
from calibrators.plan import BoundedSteps

OUTPUT = report.FOLDER / "defaults_step_sizes.json"
DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "scikit-learn")
SOURCES = ("trainer", "calibrators", "accounting")
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: The values of k, of c and of a that are tried. Only those are used whose factors are within the measured range.
SCALES = tuple(2.0 ** (each / 4) for each in range(-8, 9))
NOISE_WEIGHTS = tuple(10.0 ** (each / 2) for each in range(0, 9))
POWERS = (-1.0, -0.5, -0.25, -1 / 6, 1 / 6, 0.25, 0.5, 1.0)
Row = tuple[str, str, Mapping[str, Any]]


def main() -> None:
    """Measure, and write after each epsilon of each set."""
    names, epsilons = asked(__doc__, TUNED_ON)
    started = time.perf_counter()
    header = report.header(OUTPUT.stem, "make bench-defaults", False, DISTRIBUTIONS, SOURCES)
    for name in names:
        split = TUNED_ON[name]()
        if split.features.size > LARGE:
            sys.stdout.write(f"{name} is too large: left out\n")
            continue
        score = scorer(name, split, header["source_sha256"], KEPT)
        for epsilon in epsilons:
            found = _measured(split, epsilon, score)
            figures = {**header, "sets": report.read(OUTPUT.stem)["sets"] if OUTPUT.exists() else {}}
            sets = {**figures["sets"], name: {**figures["sets"].get(name, {}), f"{epsilon:g}": found}}
            figures["sets"] = {each: sets[each] for each in TUNED_ON if each in sets}
            report.write(OUTPUT, {**figures, "seconds": round(time.perf_counter() - started)})
            sys.stdout.write(f"{name}, epsilon {epsilon:g}: {[round(np.mean(each), 4) for each in found['scores']]}\n")
            sys.stdout.flush()


def _measured(split: Split, epsilon: float, score: Callable[..., float]) -> dict[str, Any]:
    plan, _ = preset_plan(split, epsilon)
    [phase] = plan.phases
    assert isinstance(phase, BoundedSteps), "as the preset's algorithm has"
    return {
        "noise": phase.noise_multiplier / phase.divisor,
        "step_size": phase.step_size,
        "scores": [[score(with_steps(plan, factor), seed) for seed in SEEDS] for factor in FACTORS],
    }


def step_sizes_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of this part of docs/measured.md: what factors would gain by hindsight, then every figure."""
    rows = [(name, epsilon, each) for name, found in figures["sets"].items() for epsilon, each in found.items()]
    missing = [name for name in TUNED_ON if name not in figures["sets"]]
    return [
        f"`{figures['command']}`, {figures['date']}, {commit_of(figures)}. The preset's plans are run with their step "
        "size times several factors, on the sets on which the preset may be tuned. "
        "A score is an accuracy or R^2, the mean over five seeds. *Error* is the largest standard error of the row. "
        "*Noise* is the standard deviation of the noise on each coordinate of a step's mean gradient, divided by the "
        "clip threshold.",
        *([f"Not measured: {', '.join(missing)}."] if missing else []),
        "",
        "This table shows what the best factors would gain if they were chosen by hindsight, on the scored rows "
        "themselves. Scores between the measured factors are interpolated.",
        "",
        *markdown_table(
            ["factor of the step size", "mean score", "largest gain over the preset", "largest loss"],
            _hindsight(rows),
        ),
        "",
        *markdown_table(
            ["data set", "epsilon", "noise", *(f"times {factor:g}" for factor in FACTORS), "error"],
            [
                [name, epsilon, f"{each['noise']:.2g}"]
                + [f"{np.mean(scores):.3f}" for scores in each["scores"]]
                + [f"{max(mean_and_error(scores)[1] for scores in each['scores']):.3f}"]
                for name, epsilon, each in rows
            ],
        ),
    ]


def _hindsight(rows: Sequence[Row]) -> Iterator[list[str]]:
    today = attained(rows, 1.0, 0.0, 0.0)
    constant = max(SCALES, key=lambda scale: float(attained(rows, scale, 0.0, 0.0).mean()))
    choices = [
        (scale, weight, power)
        for scale, weight, power in itertools.product(SCALES, NOISE_WEIGHTS, POWERS)
        if all(FACTORS[0] <= factor(each["noise"], scale, weight, power) <= FACTORS[-1] for _, _, each in rows)
    ]
    scale, weight, power = max(choices, key=lambda choice: float(attained(rows, *choice).mean()))
    for what, scores in (
        ("1, the preset's", today),
        (f"the best constant, {constant:.3g}", attained(rows, constant, 0.0, 0.0)),
        (
            f"the best with noise, {scale:.3g} (1 + {weight:.3g} noise)^{-power:.3g}",
            attained(rows, scale, weight, power),
        ),
    ):
        gains = scores - today
        yield [what, f"{scores.mean():.4f}", f"{gains.max():+.3f}", f"{gains.min():+.3f}"]


def factor(noise: float, scale: float, weight: float, power: float) -> float:
    """Return k (1 + c noise)^-a.

    >>> factor(0.5, 2.0, 6.0, 0.5)
    1.0
    """
    return scale * float((1.0 + weight * noise) ** -power)


def attained(rows: Sequence[Row], scale: float, weight: float, power: float) -> np.ndarray:
    """Return the score of each row at its factor, interpolated linearly in the logarithm between measured factors."""
    logs = np.log2(FACTORS)
    return np.array(
        [
            np.interp(
                np.log2(factor(each["noise"], scale, weight, power)), logs, np.mean(np.array(each["scores"]), axis=1)
            )
            for _, _, each in rows
        ]
    )


if __name__ == "__main__":
    main()
