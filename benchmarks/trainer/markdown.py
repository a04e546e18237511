"""This module writes the part of docs/measured.md about training steps, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report import commit_of, goals_table, markdown_table
from benchmarks.trainer.goals import NAMES
from benchmarks.trainer.ours import CUT_AFTER

Figures = Mapping[str, Any]

#: The sides in the order of the table, with a description of each.
SIDES = {
    "torch": "plain torch SGD, no privacy",
    "ours": "ours, Poisson",
    "ours_cut": "ours, cut",
    "ours_fixed": "ours, fixed size",
    "ghost": "Opacus, ghost clipping",
    "hooks": "Opacus, hooks",
}
#: The ratios in the order of the table, and the heading of each. The last two compare steps on Poisson batches.
RATIOS = {
    "over_torch": "Poisson over torch",
    "cut_over_torch": "cut over torch",
    "fixed_over_torch": "fixed size over torch",
    "ghost_over_ours": "ghost over Poisson",
    "hooks_over_ours": "hooks over Poisson",
}
MEBIBYTE = 2**20


def trainer_section(figures: Figures) -> list[str]:
    """Return the lines of the section."""
    return [
        *_introduction(figures),
        "",
        *goals_table(figures["goals"]),
        "",
        "The first columns have the milliseconds for a step. The last columns have ratios of these times in the same "
        "round.",
        "",
        *markdown_table(
            ["model, batch size", *SIDES.values(), *RATIOS.values()],
            [_speed_row(row) for row in figures["speed"]],
        ),
        "",
        "This table has the largest resident memory of a fresh process in MiB. The number in parentheses leaves out "
        "the memory that the process had before it read the data.",
        "",
        *markdown_table(
            ["model, batch size", *SIDES.values(), "ours over torch"],
            [_memory_row(row) for row in figures["memory"]],
        ),
        "",
        *_remarks(figures),
    ]


def _introduction(figures: Figures) -> Iterator[str]:
    versions, machine, data = figures["versions"], figures["machine"], figures["data"]
    commit = commit_of(figures)
    others = ", ".join(f"{name} {versions[name]}" for name in versions if name != "python")
    (cores,) = {row["cores"] for row in figures["speed"]}
    rounds = figures["speed"][0]["ratios"]["over_torch"]["rounds"]
    yield f"`make bench-trainer`, {figures['date']}, {commit}; {cores} cores of {machine['cpu']},"
    yield f"Python {versions['python']}, {others}."
    yield (
        f"{data['rows']} rows of {data['features']} features, {data['classes']} classes, {data['dtype']}. Each side "
        f"has a process of its own with {cores} threads."
    )
    yield (
        f"The load average was {figures['load_average_before']:.1f} before. The sides are measured in turns, and a "
        f"ratio is the median over {rounds} rounds."
    )
    yield "All figures, with each round, are in [trainer.json](../benchmarks/results/trainer.json)."


def _speed_row(row: Figures) -> list[str]:
    times = [f"{row['sides'][side]['milliseconds']:.2f}" for side in SIDES]
    ratios = [_ratio(row["ratios"][name]) for name in RATIOS]
    return [_what(row), *times, *ratios]


def _memory_row(row: Figures) -> list[str]:
    sizes = [
        f"{found['peak_bytes'] / MEBIBYTE:.0f} ({(found['peak_bytes'] - found['libraries_bytes']) / MEBIBYTE:.0f})"
        for found in (row["sides"][side] for side in SIDES)
    ]
    return [_what(row), *sizes, f"{row['over_torch']:.2f} ({row['data_over_torch']:.2f})"]


def _what(row: Figures) -> str:
    return f"{NAMES[row['model']]}, {row['batch_size']}"


def _ratio(found: Figures) -> str:
    return f"{found['ratio']:.2f} ({found['smallest_ratio']:.2f} to {found['largest_ratio']:.2f})"


def _remarks(figures: Figures) -> Iterator[str]:
    steps = figures["memory"][0]["steps"]
    yield (
        "- Our step is one turn of the loop in `trainer.run`. It includes sampling and exact noise from a "
        "cryptographic generator, clipping, the update, and the report of progress."
    )
    yield (
        "- Our Poisson batches are padded, so that the time of a step does not reveal how many records it drew. The "
        "probability that any step of a run exceeds the padded size is at most 2^-60. Batches that are cut "
        f"(`truncated_poisson`, at {CUT_AFTER:g} standard deviations above the mean) need less padding. With 60000 "
        "records, noise 1 and 1000 steps, the cut raises epsilon by 0.3 % in batches of 256, and by 0.02 % in batches "
        "of 1024. Batches of a fixed size (`without_replacement`) need no padding, like torch's. They are accounted "
        "for under the replace relations."
    )
    yield (
        "- Plain torch draws batches of exactly the given size, with replacement. Opacus draws Poisson batches from "
        "its default, torch's statistical generator, and has no accountant attached. Plain torch and both ways of "
        "Opacus gather rows by one `index_select`, since their own data loaders are slower."
    )
    yield (
        "- Each round times many steps together. Before the timed steps, each side takes half as many steps that are "
        "not timed, so that work prepared between rounds gives no advantage."
    )
    yield (
        f"- The memory is that of the whole process after {steps} steps: the interpreter, the libraries, the features "
        "as they are read, and everything that training takes. Our trainer keeps a copy of the features, while torch "
        "trains on the array itself."
    )
