"""This module writes docs/algorithms/reproductions.md and its plots, from the committed figures alone. A test compares
the page with the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.papers import svg
from benchmarks.report import commit_of, markdown_table

PAGE = report.ROOT / "docs" / "algorithms" / "reproductions.md"
PLOTS = PAGE.parent / "plots"

Figures = Mapping[str, Any]


def page(figures: Figures) -> str:
    """Return the page."""
    return "\n".join(
        [
            "<!-- made by `make bench-papers` from benchmarks/results/papers.json; edit nothing here -->",
            "# The theorems, run",
            "",
            "Each theorem is run in its own setting. A section compares the measured risk with the explicit bound, "
            "and, if",
            "the theorem states a rate, the slopes in the number of records and in epsilon. The data are synthetic or",
            "public, so that the constants of each problem are known, and seeds are fixed. `make bench-papers` runs "
            "all",
            f"of them again, in {_duration(figures)}. The scripts are in `benchmarks/papers/`.",
            "",
            *(line for name, found in figures["reproductions"].items() for line in _section(name, found)),
        ]
    )


def plots(figures: Figures) -> Mapping[Path, str]:
    """Return the plots of the page by the names of their files."""
    return {
        plot_path(name, number): svg.draw(plot)
        for name, found in figures["reproductions"].items()
        for number, plot in enumerate(found.get("plots", ()), start=1)
    }


def plot_path(name: str, number: int) -> Path:
    """Return the path of the plot."""
    return PLOTS / f"{name}-{number}.svg"


def write(figures: Figures) -> None:
    """Write the page and its plots, and remove plots that are no longer on the page."""
    drawn = plots(figures)
    PLOTS.mkdir(parents=True, exist_ok=True)
    for old in set(PLOTS.glob("*.svg")) - set(drawn):
        old.unlink()
    for path, content in drawn.items():
        path.write_text(content)
    PAGE.write_text(page(figures))


def papers_section(figures: Figures) -> list[str]:
    """Return the lines of docs/measured.md that name the reproductions and link to their page."""
    names = len(figures["reproductions"])
    return [
        f"`make bench-papers` runs {names} theorems and experiments of the papers in their own settings. The page",
        "[the theorems, run](algorithms/reproductions.md) shows each measured risk beside its bound, slopes and plots.",
    ]


def _section(name: str, found: Figures) -> Iterator[str]:
    yield f"## {found['title']}"
    yield ""
    for sentence in found["sentences"]:
        yield f"- {sentence}"
    yield ""
    yield f"Inputs: {', '.join(f'{key} {_cell(value)}' for key, value in found['inputs'].items())}."
    yield ""
    for number, plot in enumerate(found.get("plots", ()), start=1):
        yield f"![{plot['title']}](plots/{plot_path(name, number).name})"
        yield ""
    if found["rows"]:
        header = list(found["rows"][0])
        yield from markdown_table(header, [[_cell(row[key]) for key in header] for row in found["rows"]])
        yield ""
    yield (f"`benchmarks/papers/{name}.py`, {found['seconds']} s, at {commit_of(found)}, {found['date']}.")
    yield ""


def _duration(figures: Figures) -> str:
    seconds = sum(found["seconds"] for found in figures["reproductions"].values())
    cpu = next(iter(figures["reproductions"].values()))["machine"]["cpu"]
    return f"{seconds / 60:.0f} minutes on one core of {cpu}"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    write(report.read("papers"))
