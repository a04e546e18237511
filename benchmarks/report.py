"""This module writes the results of a benchmark to a JSON file: the figures of all sides, versions, commit, date and
machine."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = Path(__file__).with_name("results")


def asked(name: str, description: str | None) -> tuple[Path, bool]:
    """Return the options of the command line: the file for the figures, and whether the benchmark is quick."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--quick", action="store_true", help="measure less, and write to --output, not to the committed file"
    )
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    return arguments.output or FOLDER / (f"{name}.quick.json" if arguments.quick else f"{name}.json"), arguments.quick


def write(path: Path, figures: Mapping[str, Any]) -> None:
    """Write ``figures`` to ``path``. Infinities and NaN become strings, since JSON does not have them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(figures), indent=1, allow_nan=False) + "\n")


def conclude(path: Path, figures: Mapping[str, Any], goals: Sequence[Mapping[str, Any]], seconds: float) -> None:
    """Write ``figures`` with their goals and the time that they took, and print whether each goal is met."""
    write(path, {**figures, "goals": goals, "seconds": round(seconds)})
    for goal in goals:
        sys.stdout.write(
            f"{'met   ' if goal['met'] else 'MISSED'} {goal['what']}: {goal['measured']} ({goal['goal']})\n"
        )


def read(name: str) -> dict[str, Any]:
    """Return the committed figures of the benchmark ``name``."""
    figures: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return figures


def plain(value: Any) -> Any:
    """Return ``value`` as objects that JSON can represent.

    >>> plain({"a": (1, float("inf"))})
    {'a': [1, 'inf']}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    return value


def header(
    name: str, command: str, is_quick: bool, distributions: Iterable[str], sources: Iterable[str]
) -> dict[str, Any]:
    """Return the first members of a benchmark's figures.

    Args:
        name: The name of the benchmark.
        command: The command that makes the figures.
        is_quick: Whether the benchmark was quick.
        distributions, sources: The same as for `provenance`.
    """
    return {
        "benchmark": name,
        "command": command,
        "quick": is_quick,
        # The load of everything that runs here, which takes cores and caches from the benchmark.
        "load_average_before": os.getloadavg()[0],
        **provenance(distributions, sources),
    }


def provenance(distributions: Iterable[str], sources: Iterable[str]) -> dict[str, Any]:
    """Return the provenance of figures: time, code, versions and machine.

    Args:
        distributions: The installed packages whose versions matter.
        sources: The folders of this project that were measured. A hash of their contents identifies the code, even if
            it is not committed.
    """
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", *sources)),
        "source_sha256": _hash_of(sources),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in distributions},
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"},
    }


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _hash_of(folders: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _cpu() -> str:
    """Return the processor's name from Linux, or from Python on other systems."""
    description = Path("/proc/cpuinfo")
    if description.exists():
        for line in description.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a Markdown table. A bar would end its cell, so bars in cells are replaced.

    >>> list(markdown_table(["a", "b"], [["1", "|2|"]]))
    ['| a | b |', '|---|---|', '| 1 | \u22232\u2223 |']
    """
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(0x2223)) for cell in row)} |"


def goals_table(goals: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the lines of a Markdown table of goals: the quantity, the goal, the measured figure, and whether the goal
    is met."""
    yield from markdown_table(
        ["goal", "asked", "measured", ""],
        [[row["what"], row["goal"], row["measured"], "met" if row["met"] else "**missed**"] for row in goals],
    )


def commit_of(figures: Mapping[str, Any]) -> str:
    """Return the commit of the figures, in words.

    >>> commit_of({"commit": "0123456789abcdef", "uncommitted_changes": True})
    'commit 0123456789 with uncommitted changes'
    """
    return f"commit {figures['commit'][:10]}{' with uncommitted changes' if figures['uncommitted_changes'] else ''}"
