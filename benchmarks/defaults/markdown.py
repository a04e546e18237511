"""The part of docs/measured.md about defaults, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.defaults.goals import mean_and_error
from benchmarks.report import commit_of, goals_table, markdown_table


def defaults_section(figures: Mapping[str, Any]) -> list[str]:
    """The lines of the section: the goals, then every data set at every epsilon."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    commit = commit_of(figures)
    rows = [_row(name, found, epsilon) for name, found in figures["sets"].items() for epsilon in found["preset"]]
    return [
        f"`{figures['command']}`, {figures['date']}, {commit}; {versions}. Scores on rows that nothing was "
        "trained on, mean and standard error over five seeds: accuracy, or R^2 of `linear_regression`. Opacus was not "
        "run.",
        "Everything: [defaults.json](../benchmarks/results/defaults.json).",
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
                "of it",
                "scikit-learn, not private",
            ],
            rows,
        ),
    ]


def _row(name: str, found: Mapping[str, Any], epsilon: str) -> list[str]:
    best = found["grid"][epsilon]
    setting = best["setting"]
    return [
        f"{name}{', held back' if found['held_back'] else ''}",
        f"{found['records']} x {found['features']}",
        epsilon,
        _shown(found["preset"][epsilon]["scores"]),
        _shown(best["scores"]),
        f"{setting['algorithm']}, {setting['iterations']} steps",
        f"{found['without_privacy']:.3f}",
    ]


def _shown(scores: list[float]) -> str:
    mean, error = mean_and_error(scores)
    return f"{mean:.3f} ± {error:.3f}"
