"""The commands of a page, run in their order in one shell, and what the page says that one sees.

The commands are the page's blocks of the kind `sh`. A block of the kind `text` right behind one is what it prints,
shortened by `...`; blanks and line breaks count for nothing. A line `NAME=prefix_...` stands for a reader who copies an
id: it is the first word with that prefix in what was printed last.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from app.cli.launcher import write_launcher
from tests.contract.documents import BASE_URL

TIMEOUT_S = 300
CLIENT = Path(__file__).resolve().parents[2] / "clients/python/src"

_BLOCK = re.compile(r"^```sh\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_COPIED = re.compile(r"^(\w+)=(\w+_)\.\.\.", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Commands, and what a page says that they print; None where it says nothing."""

    script: str
    shown: str | None


@dataclass(frozen=True)
class Outcome:
    """What a block printed, and the statuses of its requests."""

    printed: str
    statuses: tuple[int, ...]


def blocks(page: Path) -> list[Block]:
    return [Block(script, shown or None) for script, shown in _BLOCK.findall(page.read_text())]


def shows(shown: str, printed: str) -> bool:
    """Whether what is shown is what was printed, where `...` may be anything.

    >>> shows('{"id": "bud_...", ... "limit": 1}', '{"id":"bud_a","name":"b","limit":1}')
    True
    >>> shows('{"limit": 1}', '{"limit":12}')
    False
    """
    wanted = ".*?".join(re.escape(re.sub(r"\s", "", part)) for part in shown.split("..."))
    return re.fullmatch(wanted, re.sub(r"\s", "", printed)) is not None


def fault(block: Block, outcome: Outcome) -> str | None:
    """What is wrong with what came; None where it is what the page says."""
    refused = [status for status in outcome.statuses if status >= 400]
    if refused and '"code"' not in (block.shown or ""):
        return f"answered {refused}, which the page does not show"
    if block.shown is not None and not shows(block.shown, outcome.printed):
        return "the page shows something else"
    return None


def run_page(page: Path, base_url: str, environment: dict[str, str], folder: Path) -> list[str]:
    """Run a page's commands in an empty folder; what is wrong, block by block."""
    found, reports = blocks(page), folder / "reports"
    (folder / "bin").mkdir()
    reports.mkdir()
    curl = folder / "bin" / "curl"
    curl.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parent / "curl.py"} "$@"\n')
    curl.chmod(0o700)
    write_launcher(folder / "bin", Path(sys.executable))
    work = folder / "work"
    work.mkdir()
    # The reader stands in the folder in which the server was started.
    (work / "var").symlink_to(environment["EPSILOND_DATA_DIR"])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPSILOND_")}
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", _script(found, base_url, reports)],
        cwd=work,
        # The client is installed, as the pages say that use it.
        env=inherited | {"PATH": path, "LANG": "C.UTF-8", "PYTHONPATH": str(CLIENT)} | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    faults = []
    for number, block in enumerate(found):
        if not (reports / f"{number}.out").exists():
            faults.append(f"{page.name}: not reached:\n{block.script}")
            break
        outcome = _outcome(reports, number)
        wrong = fault(block, outcome)
        if wrong is not None:
            faults.append(f"{page.name}: {wrong}:\n{block.script}\nprinted:\n{outcome.printed}\nshown:\n{block.shown}")
    if result.returncode != 0:
        faults.append(f"{page.name}: the commands ended with status {result.returncode}: {result.stderr}")
    return faults


def _script(found: list[Block], base_url: str, reports: Path) -> str:
    """All blocks in one shell, so that variables last; each prints into a file of its own."""
    lines = []
    for number, block in enumerate(found):
        last = reports / f"{number - 1}.out"
        script = _COPIED.sub(rf"\1=$(grep -oE '\2[A-Za-z0-9_]+' {last} | head -n 1)", block.script)
        lines.append(f"export STATUSES={reports / f'{number}.statuses'}")
        lines.append(f"{{\n{script.replace(BASE_URL, base_url)}}} > {reports / f'{number}.out'} 2>&1")
    return "\n".join(lines) + "\n"


def _outcome(reports: Path, number: int) -> Outcome:
    statuses = reports / f"{number}.statuses"
    seen = statuses.read_text().split() if statuses.exists() else []
    return Outcome((reports / f"{number}.out").read_text(), tuple(map(int, seen)))
