"""`python -m benchmarks.accounting.filter_prices`: compare what budgets of approximate Gaussian DP charge with what
plans cost.

The charge of a plan is the epsilon of the smallest budget that has room for the plan alone. It is compared with the
plan's tight epsilon, and with the epsilon of Rényi accountants, which a filter of Rényi orders would charge at its best
order.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from accounting.accountant import epsilon_for_delta
from accounting.events import Event, Gaussian, Laplace, Poisson, PureDp
from accounting.filters import ApproximateGaussianDpFilter
from accounting.filters.approximate_gaussian_dp import FAILURE_SHARE
from accounting.relations import NeighboringRelation
from benchmarks import report
from benchmarks.accounting import cases, peers
from benchmarks.accounting.cases import Training
from benchmarks.accounting.peers import Peer
from benchmarks.accounting.verdicts import failure

ADD_OR_REMOVE_ONE = NeighboringRelation.ADD_OR_REMOVE_ONE
FAILURE_SHARES = (FAILURE_SHARE, 0.3)
PEERS = (peers.DP_ACCOUNTING_RDP, Peer("Opacus RDP", "opacus", peers.opacus_epsilon("rdp")))
DISTRIBUTIONS = ("numpy", "scipy", "dp-accounting")

TRAININGS = (
    Training(4.69, 0.05, 600, 1e-5),
    Training(1.08939, 0.02, 5000, 1e-5),
    Training(4.0, 0.01, 10_000, 1e-5),
    Training(1.0, 0.01, 2000, 1e-5),
    Training(0.6, 0.005, 20_000, 1e-5),
    Training(0.59013, 0.001, 20_000, 1e-6),
    Training(0.5, 0.01, 20, 1e-5),
    Training(0.7, 1e-4, 10_000, 1e-5),
    Training(1.0, 0.1, 1, 1e-5),
    Training(50.0, 0.01, 1000, 1e-5),
)
OTHERS = {
    "one full batch, mu 0.2": (Event(Gaussian(5.0)),),
    "one full batch, mu 3": (Event(Gaussian(1.0 / 3.0)),),
    "100 randomised responses of 0.1": (Event(PureDp(0.1), count=100),),
    "one Laplace step, b = 1": (Event(Laplace(1.0)),),
    "one randomised response of 5": (Event(PureDp(5.0)),),
}
#: Six plans that share one budget. Two of them have ten expected participations.
MIXED = (
    Training(4.69, 0.05, 600, 1e-5),
    Training(4.0, 0.01, 10_000, 1e-5),
    Training(2.0, 0.02, 2500, 1e-5),
    Training(1.5, 0.005, 8000, 1e-5),
    Training(2.0, 0.02, 500, 1e-5),
    Training(1.0, 0.005, 2000, 1e-5),
)
MANY, SOME = 100.0, 20.0
NEAR_MANY, NEAR_SOME, NEAR_MIXED = 1.01, 1.05, 1.02
MEDIAN_MILLISECONDS, LARGE_SECONDS = 20.0, 2.0
TIMED = 100


def charged(lists: Sequence[Sequence[Event]], delta: float, share: float) -> float:
    """Return the epsilon of the smallest budget that has room for all lists, with each list priced by itself."""
    epsilon = epsilon_for_delta([event for events in lists for event in events], ADD_OR_REMOVE_ONE, delta).value.upper
    for _ in range(12):
        budget = ApproximateGaussianDpFilter(epsilon, delta, failure_share=share)
        total = budget.zero
        for events in lists:
            total = budget.add(total, budget.cost(events, ADD_OR_REMOVE_ONE).amounts)
        before, epsilon = epsilon, budget.epsilon_at(total, delta) or math.inf
        if budget.admits(total) and abs(epsilon - before) <= 1e-5 * before:
            break
    return epsilon


def alone() -> list[dict[str, Any]]:
    """Return the charges of each plan alone in its budget."""
    plans = {
        f"{each.noise_multiplier:g}, {each.sampling_probability:g}, {each.steps}, {each.delta:g}": (
            [event_of(each)],
            each.delta,
            each,
        )
        for each in TRAININGS
    } | {name: (list(events), 1e-5, None) for name, events in OTHERS.items()}
    rows = []
    for name, (events, delta, training) in plans.items():
        tight = epsilon_for_delta(events, ADD_OR_REMOVE_ONE, delta).value.upper
        rows.append(
            {
                "plan": name,
                "expected_participations": training and training.sampling_probability * training.steps,
                "tight": tight,
                "over_tight": {f"{share:g}": charged([events], delta, share) / tight for share in FAILURE_SHARES},
                "peers": {} if training is None else {peer.name: said(peer, training) for peer in PEERS},
            }
        )
    return rows


def said(peer: Peer, training: Training) -> float | str:
    """Return a peer's epsilon, or the reason why there is none."""
    try:
        return peer.epsilon(training, 0)
    except Exception as error:
        return failure(error)


def mixed() -> dict[str, Any]:
    """Return the charge of six plans in one budget, beside the tight epsilon of the same plans as one list that is
    fixed in advance."""
    lists = [[event_of(each)] for each in MIXED]
    tight = epsilon_for_delta([event for (event,) in lists], ADD_OR_REMOVE_ONE, MIXED[0].delta).value.upper
    return {
        "plans": MIXED,
        "tight": tight,
        "over_tight": {f"{s:g}": charged(lists, MIXED[0].delta, s) / tight for s in FAILURE_SHARES},
    }


def times() -> dict[str, Any]:
    """Return the times to find the prices of random plans. A third of the plans have few participations. No price is
    cached."""
    budget = ApproximateGaussianDpFilter(3.0, 1e-5)
    rng = np.random.default_rng(74)
    few = TIMED // 3
    plans = [*cases.few_participations(few, seed=75), *common(rng, TIMED - few)]
    budget.cost([event_of(plans[0])], ADD_OR_REMOVE_ONE)
    rows: list[dict[str, Any]] = []
    for training in plans:
        event = event_of(training, 1.0 + 1e-9)
        begun, cpu = time.perf_counter(), time.process_time()
        amounts = budget.cost([event], ADD_OR_REMOVE_ONE).amounts
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        rows.append({"case": training, "seconds": wall, "cpu_seconds": cpu, "amounts": amounts})
    seconds = sorted(row["seconds"] for row in rows)
    return {
        "plans": len(rows),
        "median_milliseconds": 1e3 * statistics.median(seconds),
        "seconds_99th": seconds[math.ceil(0.99 * len(seconds)) - 1],
        "largest_seconds": seconds[-1],
        "median_cpu_milliseconds": 1e3 * statistics.median(row["cpu_seconds"] for row in rows),
        "cpu_seconds_99th": sorted(row["cpu_seconds"] for row in rows)[math.ceil(0.99 * len(rows)) - 1],
        "median_milliseconds_few": 1e3 * statistics.median(row["seconds"] for row in rows[:few]),
        "rows": rows,
    }


def common(rng: np.random.Generator, count: int) -> Iterator[Training]:
    """Return random plans as people make them: with noise 0.5 to 8 and 100 to 1e5 steps."""
    for _ in range(count):
        noise, q, steps = (
            math.exp(rng.uniform(math.log(a), math.log(b))) for a, b in ((0.5, 8), (1e-4, 0.1), (100, 1e5))
        )
        yield Training(noise, q, round(steps), 1e-5)


def event_of(training: Training, factor: float = 1.0) -> Event:
    """Return the plan as an event. A factor on the noise other than 1 gives an event whose price is in no cache."""
    mechanism = Gaussian(training.noise_multiplier * factor)
    return Event(mechanism, Poisson(training.sampling_probability), training.steps)


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each goal, at the default share of failures."""
    trainings = [row for row in figures["alone"] if row["expected_participations"]]
    timed = figures["times"]

    def worst(least: float, below: float) -> Any:
        return max(
            row["over_tight"][str(FAILURE_SHARE)]
            for row in trainings
            if least <= row["expected_participations"] * (1 + 1e-9) < below
        )

    near = [
        (f"a plan alone, at least {MANY:g} expected participations", worst(MANY, math.inf), NEAR_MANY),
        (f"a plan alone, {SOME:g} to {MANY:g} expected participations", worst(SOME, MANY), NEAR_SOME),
        ("six mixed plans in one budget", figures["mixed"]["over_tight"][str(FAILURE_SHARE)], NEAR_MIXED),
    ]
    return [
        {
            "what": f"charged over tight: {what}",
            "goal": f"at most {goal:g}",
            "measured": f"{measured:.4f}",
            "met": measured <= goal,
        }
        for what, measured, goal in near
    ] + [
        {
            "what": f"time of one price, {timed['plans']} random plans: median; 99th percentile",
            "goal": f"at most {MEDIAN_MILLISECONDS:g} ms; {LARGE_SECONDS:g} s",
            "measured": f"{timed['median_milliseconds']:.0f} ms; {timed['seconds_99th']:.1f} s "
            f"(CPU time {timed['median_cpu_milliseconds']:.0f} ms; {timed['cpu_seconds_99th']:.1f} s)",
            "met": timed["median_milliseconds"] <= MEDIAN_MILLISECONDS and timed["seconds_99th"] <= LARGE_SECONDS,
        }
    ]


def filter_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the table of docs/measured.md about the charges of the filter, from the committed figures alone."""
    names = [peer.name for peer in PEERS]
    shares = [f"{share:g}" for share in FAILURE_SHARES]

    def row_of(row: Mapping[str, Any]) -> list[str]:
        said_by = [row["peers"].get(name, "") for name in names]
        return [
            row["plan"],
            f"{row['tight']:.4g}",
            *(f"{row['over_tight'][share]:.4f}" for share in shares),
            *(f"{said / row['tight']:.3f}" if isinstance(said, float) else "" for said in said_by),
        ]

    mixed_plans = figures["mixed"]
    return [
        "A budget of approximate Gaussian DP charges somewhat more than a plan's tight epsilon "
        f"(`{figures['command']}`, {figures['date']}, commit {figures['commit'][:10]}).",
        "The columns *charged* have the epsilon of the smallest budget that has room for the plan, divided by the "
        "tight epsilon,",
        f"for budgets that set aside {' or '.join(map(str, FAILURE_SHARES))} of their delta for failures. The last "
        "columns have the epsilon of Rényi accountants,",
        "divided by the tight one.",
        "",
        *report.goals_table(figures["goals"]),
        "",
        *report.markdown_table(
            ["noise, q, steps, delta", "tight", *(f"charged, {share}" for share in shares), *names],
            [
                *(row_of(row) for row in figures["alone"]),
                row_of({"plan": "six mixed plans in one budget", "peers": {}, **mixed_plans}),
            ],
        ),
    ]


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, _ = report.asked("filter", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = {
        "benchmark": "filter",
        "command": "python -m benchmarks.accounting.filter_prices",
        **report.provenance(DISTRIBUTIONS, ["accounting"]),
    }
    for name, measure in {"alone": alone, "mixed": mixed, "times": times}.items():
        begun = time.perf_counter()
        figures[name] = measure()
        sys.stderr.write(f"{name}: {time.perf_counter() - begun:.0f} s\n")
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
