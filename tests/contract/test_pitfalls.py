"""Each pitfall has a severity, says how it shows, what the service does and what to do; its codes exist."""

from __future__ import annotations

import re

import pytest

from app.problem_catalogue import FAULTS, PROBLEMS, RUN_PROBLEMS
from tests.contract.documents import DOCS

TEXT = (DOCS / "pitfalls.md").read_text()
SEVERITIES = ("critical", "high", "medium", "low")
PITFALL = re.compile(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
FOUND = PITFALL.findall(TEXT)
#: A word in parentheses and in code, alone: what an answer says.
CODE = re.compile(r"[(,] ?`([a-z_]+)`(?=[,)])")

every_pitfall = pytest.mark.parametrize("text", [text for _, text in FOUND], ids=[title for title, _ in FOUND])


@every_pitfall
def test_a_pitfall_says_how_it_shows_what_happens_here_and_what_to_do(text: str) -> None:
    severity, *points = text.strip().split("\n\n", 1)
    assert severity.strip("*") in SEVERITIES
    assert re.findall(r"^- \*\*(\w+):\*\*", points[0], re.MULTILINE) == ["Shows", "Here", "Do"]


def test_the_summary_has_each_pitfall_under_its_severity() -> None:
    summary = TEXT[: TEXT.index("\n## ")]
    shown = dict(re.findall(r"^\*\*(\w+)\*\*: (.*?)(?=\n\n)", summary + "\n\n", re.MULTILINE | re.DOTALL))
    assert [name.lower() for name in shown] == list(SEVERITIES)
    for severity, listed in shown.items():
        titles = re.findall(r"\[([^\]]+)\]", listed.replace("\n", " "))
        wanted = [title for title, text in FOUND if text.startswith(f"**{severity.lower()}**")]
        assert [title.lower() for title in titles] == [title.lower() for title in wanted]


def test_the_codes_that_it_names_are_those_of_answers() -> None:
    warnings = set(re.findall(r"^\| `(\w+)` \|", (DOCS / "reference" / "warnings.md").read_text(), re.MULTILINE))
    named = set(CODE.findall(TEXT))
    assert len(named) > 15
    assert named - {*PROBLEMS, *FAULTS, *RUN_PROBLEMS, *warnings} == set()
