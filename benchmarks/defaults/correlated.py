"""`python -m benchmarks.defaults.correlated [SET ...] [--epsilon E ...]`: would correlated noise improve the preset?

The command compares `dp_bandmf`, with momentum 0.9 and the number of bands that its calibrator finds best, with the
choice of the preset, on the sets on which rules may be tuned. There are several cases, all with 100 steps:

- Large batches: a quarter of the records, about the largest batches at which correlated noise gains anything, beside
  the preset's full batches.
- A few epochs: batches of a 64th of the records, beside the preset's DP-Adam on batches of the same size. The preset
  chooses no smaller batches, even if larger ones would be too much work.

Each case is run with the preset's step size for `dp_bandmf`, a quarter of it and four times it. A useful rule would
have to know which of the three to take. With one band the noise is independent, so a gain there does not come from the
correlation.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from accounting.events import Poisson
from benchmarks import report
from benchmarks.defaults.command import asked
from benchmarks.defaults.goals import mean_and_error
from benchmarks.defaults.kept import KEPT, scorer
from benchmarks.defaults.preset import preset_plan, with_steps
from benchmarks.defaults.protocol import LARGE, SEEDS, TUNED_ON, Split
from benchmarks.report import commit_of, markdown_table
from calibrators.correlation import Correlation
from calibrators.plan import CorrelatedSteps, Plan

OUTPUT = report.FOLDER / "defaults_correlated.json"
DISTRIBUTIONS = ("numpy", "scipy", "randomgen", "scikit-learn")
SOURCES = ("trainer", "calibrators", "accounting")
STEPS, MOMENTUM = 100, 0.9
#: The batch size of each case, divided by the number of records.
SHARES = {"large batches": 1 / 4, "a few epochs": 1 / 64, "the edge": 1 / 8}
FACTORS = (0.25, 1.0, 4.0)
SEEDS_OF_LARGE = SEEDS[:3]
#: A difference of more than this many standard errors counts as better or worse.
SURE = 2.0
#: The name of the set, epsilon, the case, and the figures of each side.
Row = tuple[str, str, str, Mapping[str, Any]]


def main() -> None:
    """Measure, and write after each epsilon of each set."""
    names, epsilons = asked(__doc__, TUNED_ON)
    started = time.perf_counter()
    header = report.header(OUTPUT.stem, "make bench-defaults", False, DISTRIBUTIONS, SOURCES)
    for name in names:
        sys.stdout.write(f"{name}\n")
        split = TUNED_ON[name]()
        score = scorer(name, split, header["source_sha256"], KEPT)
        seeds = SEEDS_OF_LARGE if _is_large(split) else SEEDS
        for epsilon in epsilons:
            found = {
                case: {side: {**about, "scores": [score(plan, seed) for seed in seeds]} for side, about, plan in plans}
                for case, plans in _cases(split, epsilon).items()
            }
            if "large batches" in found:
                of_preset = report.read("defaults")["sets"][name]["preset"][f"{epsilon:g}"]
                found["large batches"]["preset"] = {"scores": of_preset["scores"]}
            figures = {**header, "sets": report.read(OUTPUT.stem)["sets"] if OUTPUT.exists() else {}}
            sets = {**figures["sets"], name: {**figures["sets"].get(name, {}), f"{epsilon:g}": found}}
            figures["sets"] = {each: sets[each] for each in TUNED_ON if each in sets}
            report.write(OUTPUT, {**figures, "seconds": round(time.perf_counter() - started)})
            sys.stdout.write(f"  epsilon {epsilon:g}\n")
            sys.stdout.flush()


def _is_large(split: Split) -> bool:
    return split.features.size > LARGE


def _cases(split: Split, epsilon: float) -> dict[str, list[tuple[str, dict[str, Any], Plan]]]:
    """Return the sides of each case of a set: the name of each side, its description and its plan."""
    is_large = _is_large(split)
    found = {}
    for case in ("the edge",) if is_large else ("large batches", "a few epochs"):
        sizes = {"batch_size": math.ceil(SHARES[case] * len(split.labels)), "iterations": STEPS}
        sides: list[tuple[str, dict[str, Any], Plan]] = []
        if case != "large batches":
            plan, _ = preset_plan(split, epsilon, "dp_adam", sampling=Poisson.kind, **sizes)
            sides.append(("preset", {}, plan))
        correlated, _ = preset_plan(split, epsilon, "dp_bandmf", momentum=MOMENTUM, **sizes)
        [phase] = correlated.phases
        assert isinstance(phase, CorrelatedSteps), "the steps of dp_bandmf are correlated"
        about = {"bands": len(phase.coefficients)}
        sides += [(f"{each:g}", about, with_steps(correlated, each)) for each in FACTORS[1 if is_large else 0 :]]
        if not is_large:
            one_band = Correlation(bands=1)
            plan, _ = preset_plan(split, epsilon, "dp_bandmf", momentum=MOMENTUM, correlation=one_band, **sizes)
            sides.append(("independent", {}, plan))
        found[case] = sides
    return found


def correlated_defaults_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of this part of docs/measured.md: how often each step size gains and loses, then every
    figure."""
    rows = _rows(figures)
    missing = [name for name in TUNED_ON if name not in figures["sets"]]
    return [
        f"`{figures['command']}`, {figures['date']}, {commit_of(figures)}. `dp_bandmf` has correlated noise. "
        f"Here it has momentum {MOMENTUM:g}, {STEPS} steps, and the number of bands that its calibrator chooses. It is "
        "compared with the preset's own choice, on the sets on which the preset may be tuned, in three cases. In the "
        "case *large batches*, `dp_bandmf` takes batches of a quarter of the records, and the preset full batches. In "
        "the case *a few epochs*, both take batches of a 64th of the records. In the case *the edge*, both take "
        "batches of an eighth, and the data are almost small enough for full batches. In the last two cases the preset "
        "takes DP-Adam. Step sizes are multiples of the one that the preset has for `dp_bandmf`. A score is an "
        f"accuracy or R^2. Its mean and standard error are over five seeds, or over {len(SEEDS_OF_LARGE)} in the "
        "case *the edge*.",
        *([f"Not measured: {', '.join(missing)}."] if missing else []),
        "",
        f"This table counts how often correlated noise is better or worse than the preset by {SURE:g} standard errors.",
        "",
        *markdown_table(
            ["case", "step size", "better", "worse", "of", "largest gain", "largest loss"],
            _summary(rows),
        ),
        "",
        *markdown_table(
            [
                "case",
                "data set",
                "epsilon",
                "bands",
                "preset",
                *(f"step size times {factor:g}" for factor in FACTORS),
                "one band, times 1",
            ],
            [
                [case, name, epsilon, f"{sides['1']['bands']}"]
                + [
                    _shown(sides.get(side))
                    for side in ("preset", *(f"{factor:g}" for factor in FACTORS), "independent")
                ]
                for name, epsilon, case, sides in rows
            ],
        ),
    ]


def _rows(figures: Mapping[str, Any]) -> list[Row]:
    return [
        (name, epsilon, case, cases[case])
        for case in SHARES
        for name, found in figures["sets"].items()
        for epsilon, cases in found.items()
        if case in cases
    ]


def _summary(rows: Sequence[Row]) -> Iterator[list[str]]:
    for case in SHARES:
        of_case = [sides for _, _, each, sides in rows if each == case]
        for factor in FACTORS:
            side = f"{factor:g}"
            gains = [gain(sides[side]["scores"], sides["preset"]["scores"]) for sides in of_case if side in sides]
            if not gains:
                continue
            better = sum(difference > SURE * error for difference, error in gains)
            worse = sum(difference < -SURE * error for difference, error in gains)
            least, most = (choose(difference for difference, _ in gains) for choose in (min, max))
            yield [case, f"times {side}", f"{better}", f"{worse}", f"{len(gains)}", f"{most:+.3f}", f"{least:+.3f}"]


def gain(scores: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """Return the difference of the means of two lists of scores, and its standard error."""
    (mean, error), (other, its_error) = mean_and_error(scores), mean_and_error(others)
    return mean - other, math.hypot(error, its_error)


def _shown(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    mean, error = mean_and_error(found["scores"])
    return f"{mean:.3f} ± {error:.3f}"


if __name__ == "__main__":
    main()
