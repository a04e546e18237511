"""`python -m benchmarks.accounting.widths`: measure the width of certified intervals in cases in which no known pair
of data sets attains the upper end.

The width of epsilon is (upper - lower) / max(1, upper). Each case keeps the interval that was measured first, so that
the page shows how the interval has changed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.accountant import epsilon_for_delta
from accounting.events import (
    DiscreteLaplace,
    Event,
    Exponential,
    Gaussian,
    Laplace,
    Poisson,
    PureDp,
    ReportNoisyMax,
    ShuffleModel,
    WithoutReplacement,
    WithReplacement,
)
from accounting.groups import group_epsilon_for_delta
from accounting.intervals import Interval
from accounting.relations import NeighboringRelation
from accounting.tuning import trials_of, tuning_cost
from benchmarks import report

NARROW = 0.01
ADD_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


@dataclass(frozen=True, slots=True)
class Case:
    """A question: the epsilon of ``events`` at ``delta``, for a group of records, or for the best of a random number of
    runs.

    Attributes:
        scheme: The name of the scheme, by which the page groups the cases.
        text: The events in words.
    """

    scheme: str
    text: str
    events: tuple[Event, ...]
    delta: float = 1e-6
    relation: NeighboringRelation = ADD_REMOVE
    group: int = 1
    trials: tuple[str, float] | None = None

    @property
    def name(self) -> str:
        """Return a name that no other case has."""
        suffix = f", groups of {self.group}" if self.group > 1 else ""
        runs = f", {self.trials[0]} with mean {self.trials[1]:g}" if self.trials else ""
        return f"{self.text}{suffix}{runs}, {self.delta:g}"

    def measure(self) -> Interval:
        """Return the certified interval of epsilon."""
        if self.trials is not None:
            law = trials_of(self.trials[0], expected_trials=self.trials[1])
            return tuning_cost(self.events, self.relation, law, self.delta).epsilon.value
        if self.group > 1:
            return group_epsilon_for_delta(self.events, self.relation, self.delta, self.group).value
        return epsilon_for_delta(self.events, self.relation, self.delta).value


def _shuffle(local: float, users: int, rounds: int = 1) -> tuple[Event, ...]:
    return (Event(PureDp(local), ShuffleModel(users, local, 0.0), rounds),)


def _exponentials(epsilon: float, count: int, *others: Event) -> tuple[Event, ...]:
    return (*others, Event(Exponential(epsilon), count=count))


BESIDE, ALONE, NOISY_MAX = "exponential mechanism beside others", "exponential mechanism alone", "report noisy max"
SHUFFLED, GROUPS, DISCRETE, TUNING = "shuffle model", "groups", "discrete Laplace", "tuning"

CASES = (
    Case(BESIDE, "Gaussian 5, exponential 0.1 x 20", _exponentials(0.1, 20, Event(Gaussian(5.0)))),
    Case(BESIDE, "Gaussian 5, exponential 0.5 x 10", _exponentials(0.5, 10, Event(Gaussian(5.0)))),
    Case(BESIDE, "Gaussian 1, exponential 1 x 1", _exponentials(1.0, 1, Event(Gaussian(1.0)))),
    Case(
        BESIDE,
        "Gaussian 4 Poisson 0.01 x 1000, exponential 0.2 x 50",
        _exponentials(0.2, 50, Event(Gaussian(4.0), Poisson(0.01), 1000)),
    ),
    Case(BESIDE, "Laplace 5, exponential 0.1 x 30", _exponentials(0.1, 30, Event(Laplace(5.0)))),
    Case(
        BESIDE,
        "Gaussian 10, exponential 0.1 x 20, exponential 0.5 x 2",
        (Event(Gaussian(10.0)), Event(Exponential(0.1), count=20), Event(Exponential(0.5), count=2)),
    ),
    Case(BESIDE, "Gaussian 2, exponential 0.01 x 2000", _exponentials(0.01, 2000, Event(Gaussian(2.0)))),
    Case(ALONE, "exponential 0.1 x 100", _exponentials(0.1, 100)),
    Case(ALONE, "exponential 0.02 x 2000", _exponentials(0.02, 2000)),
    Case(ALONE, "exponential 0.003 x 100000", _exponentials(0.003, 100_000)),
    Case(NOISY_MAX, "laplace 0.1 x 100", (Event(ReportNoisyMax(0.1, "laplace"), count=100),)),
    Case(NOISY_MAX, "laplace 1 x 10", (Event(ReportNoisyMax(1.0, "laplace"), count=10),)),
    Case(NOISY_MAX, "laplace 1 x 1", (Event(ReportNoisyMax(1.0, "laplace")),)),
    Case(NOISY_MAX, "exponential 0.1 x 100", (Event(ReportNoisyMax(0.1, "exponential"), count=100),)),
    Case(NOISY_MAX, "exponential 1 x 10", (Event(ReportNoisyMax(1.0, "exponential"), count=10),)),
    Case(SHUFFLED, "e 0.5, 1024 users", _shuffle(0.5, 1024), relation=REPLACE),
    Case(SHUFFLED, "e 1, 10000 users", _shuffle(1.0, 10_000), relation=REPLACE),
    Case(SHUFFLED, "e 2, 100000 users", _shuffle(2.0, 100_000), relation=REPLACE),
    Case(SHUFFLED, "e 4, 100000 users", _shuffle(4.0, 100_000), relation=REPLACE),
    Case(SHUFFLED, "e 6, 1000000 users x 10", _shuffle(6.0, 1_000_000, 10), relation=REPLACE),
    Case(GROUPS, "Laplace 20 Poisson 0.01 x 100", (Event(Laplace(20.0), Poisson(0.01), 100),), group=64),
    Case(GROUPS, "Laplace 4 Poisson 0.01 x 100", (Event(Laplace(4.0), Poisson(0.01), 100),), group=4),
    Case(
        GROUPS,
        "Gaussian 8, 100 of 10000 x 500",
        (Event(Gaussian(8.0), WithoutReplacement(100, 10_000), 500),),
        relation=REPLACE,
        group=4,
    ),
    Case(
        GROUPS,
        "Gaussian 40, 100 of 10000 x 500",
        (Event(Gaussian(40.0), WithoutReplacement(100, 10_000), 500),),
        relation=REPLACE,
        group=64,
    ),
    Case(
        GROUPS,
        "Gaussian 40, 500 of 10000 x 500",
        (Event(Gaussian(40.0), WithoutReplacement(500, 10_000), 500),),
        relation=REPLACE,
        group=64,
    ),
    Case(
        GROUPS,
        "Gaussian 8, 100 drawn of 10000 x 500",
        (Event(Gaussian(8.0), WithReplacement(100, 10_000), 500),),
        relation=REPLACE,
        group=4,
    ),
    Case(
        GROUPS,
        "Laplace 20, 100 of 10000 x 100",
        (Event(Laplace(20.0), WithoutReplacement(100, 10_000), 100),),
        relation=REPLACE,
        group=4,
    ),
    Case(GROUPS, "Gaussian 64 Poisson 0.01 x 1000", (Event(Gaussian(64.0), Poisson(0.01), 1000),), group=64),
    Case(GROUPS, "Laplace 200, Gaussian 200", (Event(Laplace(200.0)), Event(Gaussian(200.0))), group=64),
    Case(
        GROUPS,
        "report noisy max laplace 0.01 x 10",
        (Event(ReportNoisyMax(0.01, "laplace"), count=10),),
        group=64,
    ),
    Case(DISCRETE, "b 10, grid 1, x 12", (Event(DiscreteLaplace(10.0, 1.0), count=12),)),
    Case(DISCRETE, "b 30, grid 0.01, x 1000", (Event(DiscreteLaplace(30.0, 0.01), count=1000),)),
    Case(DISCRETE, "b 300, grid 0.0001, x 100000", (Event(DiscreteLaplace(300.0, 0.0001), count=100_000),)),
    Case(DISCRETE, "b 1000, grid 1, x 1000000", (Event(DiscreteLaplace(1000.0, 1.0), count=1_000_000),)),
    Case(TUNING, "Gaussian 2", (Event(Gaussian(2.0)),), trials=("geometric", 20.0)),
    Case(
        TUNING,
        "Gaussian 1.1 Poisson 0.01 x 3000",
        (Event(Gaussian(1.1), Poisson(0.01), 3000),),
        trials=("geometric", 20.0),
    ),
    Case(TUNING, "Laplace 2", (Event(Laplace(2.0)),), trials=("geometric", 20.0)),
    Case(TUNING, "Gaussian 2", (Event(Gaussian(2.0)),), trials=("logarithmic", 20.0)),
    Case(TUNING, "Gaussian 2", (Event(Gaussian(2.0)),), trials=("poisson", 20.0)),
)


def width(interval: Mapping[str, float]) -> float:
    """Return (upper - lower) / max(1, upper).

    >>> width({"lower": 1.5, "upper": 2.0})
    0.25
    """
    return (interval["upper"] - interval["lower"]) / max(1.0, interval["upper"])


def measured(first: Mapping[str, Mapping[str, float]], schemes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return the results of all cases, each of which is measured once.

    Args:
        first: The interval that was measured first, by the name of the case.
        schemes: The schemes that are measured; all of them if empty.
    """
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if schemes and case.scheme not in schemes:
            continue
        begun = time.process_time()
        value = case.measure()
        now = {"lower": value.lower, "upper": value.upper}
        key = f"{case.scheme}: {case.name}"
        before, seconds = dict(first.get(key, now)), time.process_time() - begun
        rows.append({"scheme": case.scheme, "case": case.name, "first": before, "now": now, "seconds": seconds})
        sys.stderr.write(
            f"{key}: {now['lower']:.6f} .. {now['upper']:.6f}, "
            f"{100 * width(before):.2f} % -> {100 * width(now):.2f} %, {seconds:.2f} s\n"
        )
    return rows


def goals(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the goals for these cases, and the measured figures."""
    wide = [row for row in rows if width(row["now"]) >= NARROW]
    wider = [row for row in rows if row["now"]["upper"] > row["first"]["upper"] * (1.0 + 1e-6)]
    return [
        {
            "what": "intervals narrower than 1 %, of those whose upper end no known pair of data sets attained",
            "goal": f"all {len(rows)}",
            "measured": f"{len(rows) - len(wide)}",
            "met": not wide,
        },
        {
            "what": "upper ends that are above the upper end measured first",
            "goal": "none",
            "measured": f"{len(wider)}",
            "met": not wider,
        },
    ]


def widths_section(figures: Mapping[str, Any]) -> Iterator[str]:
    """Return the lines of the section about wide intervals."""
    yield (
        "In these cases it is hard to find neighbouring data sets whose privacy loss comes close to the upper end, so "
        f"the certified intervals of epsilon were wide (`{figures['command']}`, {figures['date']},"
    )
    yield f"{report.commit_of(figures)}; {figures['machine']['cpu']}). A width is (upper - lower) / max(1, upper)."
    yield (
        f"The column *first* has the interval at commit {figures['first_commit'][:10]}, and the column *now* the "
        "present interval."
    )
    yield ""
    yield from report.goals_table(figures["goals"])
    yield ""
    yield from report.markdown_table(
        ["scheme", "case, delta", "first", "width", "now", "width", "s"],
        [
            [
                row["scheme"],
                row["case"],
                f"{row['first']['lower']:.5g} to {row['first']['upper']:.5g}",
                f"{100.0 * width(row['first']):.2g} %",
                f"{row['now']['lower']:.5g} to {row['now']['upper']:.5g}",
                f"{100.0 * width(row['now']):.2g} %",
                f"{row['seconds']:.2f}",
            ]
            for row in figures["rows"]
        ],
    )


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, _ = report.asked("widths", __doc__)
    started = time.perf_counter()
    known = report.read("widths") if (report.FOLDER / "widths.json").exists() else None
    first = {} if known is None else {f"{row['scheme']}: {row['case']}": row["first"] for row in known["rows"]}
    rows = measured(first)
    figures: dict[str, Any] = {
        "benchmark": "widths",
        "command": "python -m benchmarks.accounting.widths",
        **report.provenance(("numpy", "scipy"), ["accounting"]),
        "rows": rows,
    }
    figures["first_commit"] = figures["commit"] if known is None else known["first_commit"]
    report.conclude(output, figures, goals(rows), time.perf_counter() - started)


if __name__ == "__main__":
    main()
