"""This module writes the tables of docs/measured.md about the accounting engine, from the committed figures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report import commit_of, goals_table, markdown_table

Figures = Mapping[str, Any]

#: The mark beside a library's number, by the verdict on the number.
MARKS = {"below": " ⚠", "infinite": "", "nan": "", "inside": "", "above": ""}


def accounting_section(figures: Figures) -> list[str]:
    """Return the lines of the section."""
    rows = [*figures["epsilon_calibrated"], *figures["epsilon_trainings"]]
    return [
        *_introduction(figures),
        "",
        *goals_table(figures["goals"]),
        "",
        "This table has the epsilon of training runs. A peer's cell has its number, and its time divided by ours. ⚠",
        "marks a number below our certified lower end: it claims less privacy loss than there is.",
        "",
        *markdown_table(
            ["noise, q, steps, delta", "ours", "ms", *rows[0]["peers"]], [_epsilon_row(row) for row in rows]
        ),
        "",
        "This table has the noise multipliers that meet a target. A peer's cell has its number, its time divided by "
        "ours, and the part of the target's epsilon that the noise leaves unused. ⚠ marks noise that misses "
        "the target.",
        "",
        *markdown_table(
            ["q, steps, epsilon, delta", "ours", "ms", *figures["calibration"][0]["peers"]],
            [_calibration_row(row) for row in figures["calibration"]],
        ),
        "",
        "This table is about batches of b of n records, drawn without replacement, under replace_one. Our certified "
        "interval of epsilon stands beside the epsilon of dp-accounting's event for such batches.",
        "",
        *markdown_table(
            [
                "noise, b of n, steps, delta",
                "ours",
                "dp-accounting's event",
                "its epsilon over ours",
                "its time over ours",
            ],
            [_fixed_size_row(row) for row in figures["fixed_size"]],
        ),
        "",
        *_remarks(figures),
    ]


def _introduction(figures: Figures) -> Iterator[str]:
    versions, machine = figures["versions"], figures["machine"]
    peers = ", ".join(f"{name} {versions[name]}" for name in versions if name not in ("python", "numpy", "scipy"))
    commit = commit_of(figures)
    python = f"Python {versions['python']}, NumPy {versions['numpy']}, SciPy {versions['scipy']}"
    yield f"`make bench-accounting`, {figures['date']}, {commit}; {machine['cores']} cores of {machine['cpu']},"
    yield f"{python}, {peers}."
    yield "All libraries run in one process and one thread, in turns. A ratio of times is a library's time over ours."
    yield "All figures, with every case, are in [accounting.json](../benchmarks/results/accounting.json)."


def _epsilon_row(row: Figures) -> list[str]:
    case, ours = row["case"], row["ours"]
    spec = f"{case['noise_multiplier']:.5g}, {case['sampling_probability']:g}, {case['steps']:.6g}, {case['delta']:.3g}"
    return [spec, f"{_number(ours['upper'])} (width {ours['width']:.0e})", _milliseconds(row)] + [
        _peer(found) for found in row["peers"].values()
    ]


def _calibration_row(row: Figures) -> list[str]:
    case, ours = row["case"], row["ours"]
    cells = [f"{case['sampling_probability']:g}, {case['steps']}, {case['epsilon']:g}, {case['delta']:g}"]
    cells += [f"{ours['noise_multiplier']:.6f}, {ours['unused_epsilon']:.0e}", _milliseconds(row)]
    for found in row["peers"].values():
        if "error" in found:
            cells.append(found["error"].partition(":")[0])
            continue
        left = f"{found['unused_epsilon']:.0e}" + (" ⚠" if found["misses"] else "")
        cells.append(f"{found['value']:.6f}, {found['ratio']:.0f}×, {left}")
    return cells


def _fixed_size_row(row: Figures) -> list[str]:
    case, ours, peer = row["case"], row["ours"], row["peer"]
    sizes = f"{case['batch_size']} of {case['dataset_size']}"
    spec = f"{case['noise_multiplier']:g}, {sizes}, {case['steps']}, {case['delta']:g}"
    if "error" in peer:
        return [spec, _number(ours["upper"]), peer["error"].partition(":")[0], "", ""]
    interval = f"{_number(ours['lower'])} to {_number(ours['upper'])}"
    return [spec, interval, _number(peer["value"]), f"{row['epsilon_over_ours']:.2f}×", f"{peer['ratio']:.0f}×"]


def _remarks(figures: Figures) -> Iterator[str]:
    width, slow = figures["width"], figures["few_participations"]
    peer, wide = width["peer"], width["specs"] - width["narrow"]
    yield (
        f"- Of {width['specs']} random runs over the whole range (noise 0.05 to 1e3, q 1e-8 to 1, 1 to 1e8 steps, "
        f"delta 1e-30 to 0.5), {width['narrow']} intervals are as narrow as the goal asks. The other {wide} are "
        f"correct but wider, and `accounting.json` lists them. {peer['name']} was asked about {peer['specs']} of the "
        f"runs, and has no finite number for {peer['without_a_finite_number']}."
    )
    yield (
        "- For runs with fewer than two expected participations, our median time is "
        f"{slow['median_epsilon_milliseconds']:.1f} ms for an epsilon and {slow['median_delta_milliseconds']:.1f} ms "
        f"for a delta. The median of dp-accounting's PLD time over ours is {slow['median_ratio']:.1f}."
    )
    for row in figures["disputes"]:
        if row.get("verdict") in ("below", "infinite", "nan") or "error" in row:
            said = row.get("error") or _number(row["value"])
            certified = f"{_number(row['ours']['lower'])} to {_number(row['ours']['upper'])}"
            yield f"- {row['question']}: {row['peer']} answers {said}; our certified interval is {certified}."
    for name, reason in figures["unavailable"].items():
        yield f"- Not in the tables, since it does not run here: {name} ({reason})."
    yield "- Opacus' accountants do not need torch, and run without it here (`benchmarks/accounting/peers.py`)."


def _milliseconds(row: Figures) -> str:
    times = [found["ours_milliseconds"] for found in row["peers"].values() if "ours_milliseconds" in found]
    return f"{sorted(times)[len(times) // 2]:.1f}" if times else ""


def _peer(found: Figures) -> str:
    if "error" in found:
        kind: str = found["error"].partition(":")[0]
        return {"TookTooLong": "no answer in time", "MemoryError": "out of memory"}.get(kind, kind)
    return f"{_number(found['value'])}{MARKS[found['verdict']]}, {_times(found['ratio'])}×"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10.0 else f"{ratio:.1f}"


def _number(value: float | str) -> str:
    """Return a number with seven digits. Infinity and NaN, which JSON does not have, are stored by their names."""
    return {"inf": "∞", "nan": "NaN"}[value] if isinstance(value, str) else f"{value:.7g}"
