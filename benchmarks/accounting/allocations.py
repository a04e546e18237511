"""`python -m benchmarks.accounting.allocations`: compare our intervals for random allocation with
those of PLD_accounting, a library for this sampling.

Both sides return a lower and an upper end, which hold for both directions of `add_or_remove_one`. Each side computes
each case once. Times are CPU times of one process.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, RandomAllocation
from accounting.relations import NeighboringRelation
from benchmarks import report
from benchmarks.accounting.verdicts import failure

DISTRIBUTIONS = ("numpy", "scipy", "dp-accounting", "pld-accounting")
#: The time in seconds that PLD_accounting has for one case. A case that takes longer counts as a case without an
#: answer.
LIMIT = 60.0
WIDTH, SECONDS = 1e-6, 1.5


@dataclass(frozen=True, slots=True)
class Allocation:
    """A question: the epsilon at ``delta`` of epochs of ``bins`` steps, if each record takes part in ``chosen`` of
    them."""

    noise_multiplier: float
    bins: int
    chosen: int
    epochs: int
    delta: float


CASES = (
    Allocation(1.0, 100, 1, 1, 1e-5),
    Allocation(1.0, 100, 1, 10, 1e-5),
    Allocation(2.0, 50, 1, 10, 1e-6),
    Allocation(0.8, 100, 1, 1, 1e-6),
    Allocation(1.0, 22, 5, 1, 1e-5),
    Allocation(4.0, 100, 10, 1, 1e-5),
    Allocation(10.0, 199, 100, 1, 1e-5),
    Allocation(0.8, 1000, 1, 1, 1e-6),
    Allocation(0.8, 1000, 1, 100, 1e-6),
    Allocation(0.8, 10_000, 1, 1, 1e-6),
    Allocation(0.8, 10_000, 1, 100, 1e-6),
    Allocation(0.8, 100_000, 1, 1, 1e-6),
    Allocation(0.8, 100_000, 1, 100, 1e-6),
)


def ours(case: Allocation) -> tuple[float, float]:
    """Return our certified interval."""
    sampling = RandomAllocation(case.bins, case.chosen)
    event = Event(Gaussian(case.noise_multiplier), sampling, case.bins * case.epochs)
    value = epsilon_for_delta([event], NeighboringRelation.ADD_OR_REMOVE_ONE, case.delta).value
    return value.lower, value.upper


def theirs(case: Allocation) -> tuple[float, float]:
    """Return the two ends of PLD_accounting at its default accuracy."""
    library: Any = import_module("PLD_accounting")
    upper, lower = library.gaussian_allocation_epsilon_range(
        delta=case.delta,
        sigma=case.noise_multiplier,
        num_steps=case.bins,
        num_selected=case.chosen,
        num_epochs=case.epochs,
    )
    return float(lower), float(upper)


def _timed(case: Allocation) -> tuple[tuple[float, float], float]:
    begun = time.process_time()
    return theirs(case), time.process_time() - begun


def measured() -> list[dict[str, Any]]:
    """Return the answers of both sides to every case, each computed once."""
    # The first answer of each side in a process also loads its engine, so it is not timed.
    first = Allocation(2.0, 10, 1, 2, 1e-4)
    ours(first)
    theirs(first)
    rows = []
    for case in CASES:
        row: dict[str, Any] = {"case": asdict(case)}
        begun = time.process_time()
        row["ours"] = dict(zip(("lower", "upper"), ours(case), strict=True))
        row["our_seconds"] = time.process_time() - begun
        with get_context("fork").Pool(1) as process:  # compiled code can be interrupted only by ending its process
            try:
                ends, row["their_seconds"] = process.apply_async(_timed, (case,)).get(LIMIT)
                row["theirs"] = dict(zip(("lower", "upper"), ends, strict=True))
            except Exception as error:
                row["theirs"], row["their_seconds"] = {"error": failure(error)}, None
        rows.append(row)
        sys.stderr.write(f"{case}: {row['our_seconds']:.2f} s and {row['their_seconds']} s\n")
    return rows


def goals(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the goals for these cases, and the measured figures."""
    answered = [row for row in rows if "upper" in row["theirs"]]
    above = [row for row in answered if row["ours"]["upper"] > row["theirs"]["upper"]]
    single = [row for row in rows if row["case"]["chosen"] == 1]
    widest = max((row["ours"]["upper"] - row["ours"]["lower"]) / max(1.0, row["ours"]["upper"]) for row in single)
    slowest = max(row["our_seconds"] for row in rows)
    return [
        {
            "what": "cases in which our upper end is above PLD_accounting's",
            "goal": "none",
            "measured": f"{len(above)} of {len(answered)}",
            "met": not above,
        },
        {
            "what": "widest interval over max(1, epsilon), if a record takes part in one step of each epoch",
            "goal": f"at most {WIDTH:.0e}",
            "measured": f"{widest:.1e}",
            "met": widest <= WIDTH,
        },
        {
            "what": "longest answer, CPU time",
            "goal": f"at most {SECONDS} s",
            "measured": f"{slowest:.2f} s",
            "met": slowest <= SECONDS,
        },
    ]


def allocations_section(figures: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of the section about random allocation."""
    yield (
        "In random allocation, each record takes part in a given number of random steps of every epoch. Our interval "
        "of epsilon is compared with that of "
        f"PLD_accounting {figures['versions']['pld-accounting']}, made for such sampling (`{figures['command']}`,"
    )
    yield (
        f"{figures['date']}, {report.commit_of(figures)}; {figures['machine']['cpu']}). Times are CPU times of one "
        "process."
    )
    yield ""
    yield from report.goals_table(figures["goals"])
    yield ""
    yield from report.markdown_table(
        ["noise, steps, steps of a record, epochs, delta", "ours", "width", "s", "PLD_accounting", "width", "s"],
        [_row(row) for row in figures["rows"]],
    )
    yield ""
    yield (
        "If a record takes part in several steps of an epoch, both libraries bound epsilon from above by another "
        "scheme: the epoch is cut into blocks, and one step of each block is drawn."
    )
    yield (
        "PLD_accounting computes its lower end for the blocks, too, so its lower end need not hold for the original "
        "scheme. Our lower end does hold for it."
    )
    yield (
        f"TimeoutError means that there was no answer after {LIMIT:g} s of elapsed time, on a machine that had other "
        "work, too."
    )


def _row(row: Mapping[str, Any]) -> list[str]:
    case, own, other = row["case"], row["ours"], row["theirs"]
    spec = f"{case['noise_multiplier']:g}, {case['bins']}, {case['chosen']}, {case['epochs']}, {case['delta']:g}"
    return [
        spec,
        _ends(own),
        f"{own['upper'] - own['lower']:.0e}",
        f"{row['our_seconds']:.2f}",
        other["error"].partition(":")[0] if "error" in other else _ends(other),
        "" if "error" in other else f"{other['upper'] - other['lower']:.0e}",
        "" if row["their_seconds"] is None else f"{row['their_seconds']:.1f}",
    ]


def _ends(interval: Mapping[str, Any]) -> str:
    """Return both ends with as many digits as are needed to tell them apart, but at most nine."""
    lower, upper = float(interval["lower"]), float(interval["upper"])
    digits = min(9, max(4, 2 - math.floor(math.log10(max(upper - lower, 1e-12)))))
    return f"{lower:.{digits}f} to {upper:.{digits}f}"


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, _ = report.asked("allocations", __doc__)
    started = time.perf_counter()
    rows = measured()
    figures: dict[str, Any] = {
        "benchmark": "allocations",
        "command": "python -m benchmarks.accounting.allocations",
        **report.provenance(DISTRIBUTIONS, ["accounting"]),
        "rows": rows,
    }
    report.conclude(output, figures, goals(rows), time.perf_counter() - started)


if __name__ == "__main__":
    main()
