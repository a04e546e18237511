"""This module writes the part of docs/measured.md about the GPU, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.report import commit_of, markdown_table
from benchmarks.trainer.goals import NAMES

Figures = Mapping[str, Any]
OVER_CUPY = 1.3


def gpu_section(figures: Figures) -> list[str]:
    """Return the lines of the section. If nothing was measured, the section says only that."""
    asked = f"that a private step takes at most {figures['goal']:g} times as long as a step without privacy in CuPy"
    if not figures["ran"]:
        return [f"The goal of `make bench-gpu` is {asked}. It was not run: no GPU."]
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    commit = commit_of(figures)
    return [
        f"`make bench-gpu`, {figures['date']}, {commit}, on {figures['gpu']}; {versions}.",
        f"The goal is {asked}. The sides are measured in turns, with two of the host's cores. All figures are in "
        "[gpu.json](../benchmarks/results/gpu.json).",
        "",
        *markdown_table(
            [
                "model, batch size",
                "CuPy, no privacy: ms a step",
                "ours, private",
                "ours over CuPy",
                "",
                "ours on the host",
            ],
            [_row(row) for row in figures["speed"]],
        ),
    ]


def verdict(row: Figures) -> str:
    """Return whether the goal of a row is met, in words."""
    return "met" if row["ratios"]["over_cupy"]["ratio"] <= OVER_CUPY else "**missed**"


def _row(row: Figures) -> list[str]:
    sides, found = row["sides"], row["ratios"]["over_cupy"]
    return [
        f"{NAMES[row['model']]}, {row['batch_size']}",
        f"{sides['cupy']['milliseconds']:.3f}",
        f"{sides['ours_on_gpu']['milliseconds']:.3f}",
        f"{found['ratio']:.2f} ({found['smallest_ratio']:.2f} to {found['largest_ratio']:.2f})",
        verdict(row),
        f"{sides['ours']['milliseconds']:.3f}",
    ]
