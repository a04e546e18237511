"""This module writes the part of docs/measured.md about defaults, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from benchmarks.defaults.goals import mean_and_error
from benchmarks.defaults.protocol import FINALISTS, SETS
from benchmarks.report import goals_table, markdown_table

NOT_MEASURED = "not measured"


def defaults_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section: the goals, then every data set at every epsilon."""
    opacus = figures.get("opacus", {})
    rows = [
        _row(name, found, epsilon, opacus.get(name, {}).get(epsilon))
        for name, found in figures["sets"].items()
        for epsilon in found["preset"]
    ]
    return [
        f"`{figures['command']}`. A run whose request names only data, model and target is compared with the best of "
        "50 settings that were chosen by hand (the grid). A score is the accuracy on rows on which nothing was "
        "trained, or R^2 for `linear_regression`. Each cell has its mean and standard error over five seeds.",
        *_when(figures["sets"]),
        *_of_opacus(figures),
        "All figures are in [defaults.json](../benchmarks/results/defaults.json).",
        "",
        *goals_table(figures["goals"]),
        "",
        *markdown_table(
            [
                "data set",
                "records x features",
                "epsilon",
                "preset",
                "grid's best",
                "the grid's best setting",
                "Opacus, its example",
                "Opacus, best of six",
                "scikit-learn, not private",
            ],
            rows,
        ),
    ]


def _when(sets: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each day, commit and set of versions, with the data sets that were measured then."""
    yield from _by_provenance((found, name) for name, found in sets.items())
    missing = [name for name in SETS if name not in sets]
    if missing:
        yield f"Not measured in full, and left out: {', '.join(missing)}."
    for name, found in sets.items():
        if found["finalists"] < FINALISTS:
            yield (
                f"On {name}, only the best {found['finalists']} settings with one seed were run with all seeds; on "
                f"most other sets, {FINALISTS}. This may miss the grid's best setting."
            )


def _of_opacus(figures: Mapping[str, Any]) -> Iterator[str]:
    opacus = figures.get("opacus")
    if opacus is None:
        yield "Opacus was not run."
        return
    yield (
        "Opacus had the same budget. It was run with the setting of its MNIST example (SGD with step size 0.1, ten "
        "epochs, Poisson batches of 64), and with the best of six settings, which were compared with seed 0 (SGD and "
        "Adam, batches of 64 and of an eighth of the records). The clip threshold is always 1. In the next lines, the "
        "epsilons stand in parentheses."
    )
    yield from _by_provenance(
        (provenance, f"{name} ({', '.join(epsilon for epsilon, _ in together)})")
        for name in figures["sets"]
        for provenance, together in groupby(opacus.get(name, {}).items(), lambda item: item[1]["measured"])
    )
    missing = [name for name in figures["sets"] if name not in opacus]
    if missing:
        yield f"Opacus was not run on {', '.join(missing)}."


def _by_provenance(measured: Iterable[tuple[Mapping[str, Any], str]]) -> Iterator[str]:
    """Return a line for each day, commit and set of versions, with what was measured then."""
    names: dict[str, list[str]] = {}
    for provenance, name in measured:
        when = f"Measured on {provenance['date']}, commit {provenance['commit'][:10]}, {_versions(provenance)}"
        names.setdefault(when, []).append(name)
    for when, found in names.items():
        yield f"{when}: {', '.join(found)}."


def _row(name: str, found: Mapping[str, Any], epsilon: str, opacus: Mapping[str, Any] | None) -> list[str]:
    best = found["grid"].get(epsilon)
    return [
        f"{name}{', held back' if found['held_back'] else ''}",
        f"{found['records']} x {found['features']}",
        epsilon,
        _shown(found["preset"][epsilon]),
        _shown(best),
        f"{best['setting']['algorithm']}, {best['setting']['iterations']} steps" if best else "",
        _shown(opacus and opacus["example"]),
        _shown(opacus and opacus["best"]),
        f"{found['without_privacy']:.3f}",
    ]


def _shown(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return NOT_MEASURED
    mean, error = mean_and_error(found["scores"])
    return f"{mean:.3f} ± {error:.3f}"


def _versions(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
