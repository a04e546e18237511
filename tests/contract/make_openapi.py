"""Writes `openapi.json`: `make openapi`.

The document is made of the routes. Its example answers are asked for: a story calls every operation of a fresh server.
An answer that says what the committed one does stays as it is, so that ids and moments do not change each time.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.db.migrate import upgrade
from app.observability.logs import configure_logging
from app.openapi.document import build_document
from app.openapi.examples import answers_in
from app.openapi.layout import render
from app.web.docs import DOCUMENT
from tests.contract.example_story import fresh, play, shown

Answers = Mapping[str, Mapping[str, Any]]

#: Their answers depend on noise or on the machine: what is in them is compared, not how much.
DRAWN = {
    "create_audit",
    "get_audit",
    "list_audits",
    "get_run",
    "list_runs",
    "get_run_model",
    "get_run_report",
    "get_run_sweep",
    "list_run_sweeps",
    "health_ready",
    "list_keys",
}
#: What is never the same twice: ids, moments, hashes, signatures and cursors.
OWN = re.compile(
    r"(?P<id>\b(bud|res|lim|whk|msg|run|swp|aud|key|ds|dsv|ent)_[a-z0-9]{20,})|\d{4}-\d\d-\d\d(T[0-9:.]+(Z|\+00:00))?"
    r"|[A-Za-z0-9+/=_-]{30,}"
)


def committed() -> dict[str, Any]:
    """Return the committed document."""
    found: dict[str, Any] = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    return found


def kept(before: Answers, given: Answers) -> dict[str, dict[str, Any]]:
    """Return the given answers, each as it was before if it said the same."""
    return {
        name: {
            status: before[name][status]
            if status in before.get(name, {}) and not list(differences(before[name][status], answer, name))
            else answer
            for status, answer in by_status.items()
        }
        for name, by_status in given.items()
    }


def differences(first: Any, second: Any, place: str) -> Iterator[str]:
    """Yield where two answers say something else; a place begins with the name of the operation."""
    if isinstance(first, dict) and isinstance(second, dict):
        # A report of spending has days for names.
        first, second = ({OWN.sub(_kind, name): value for name, value in each.items()} for each in (first, second))
        if set(first) != set(second):
            yield place
        elif not place.endswith("/error_budget"):
            for name in first:
                yield from differences(first[name], second[name], f"{place}/{name}")
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{place}/{index}")
    elif place.partition("/")[0] in DRAWN:
        if type(first) is not type(second) and None not in (first, second):
            yield place
    elif isinstance(first, float) and isinstance(second, float):
        if first != pytest.approx(second, rel=1e-6, abs=1e-12):
            yield place
    elif isinstance(first, str) and isinstance(second, str):
        if OWN.sub(_kind, first) != OWN.sub(_kind, second):
            yield place
    elif first != second:
        yield place


def _kind(found: re.Match[str]) -> str:
    return found[2] or "..."


def main() -> None:
    before = answers_in(committed()) if DOCUMENT.exists() else {}
    configure_logging("warning", "console")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/story.sqlite3"
        upgrade(url)
        with fresh(url, Path(folder)) as story:
            play(story)
            document = build_document(story.app, kept(before, shown(story)))
    DOCUMENT.write_text(render(document), encoding="utf-8")


if __name__ == "__main__":
    main()
