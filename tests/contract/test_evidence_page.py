"""The page of the campaigns tells every report that there is, and nothing else."""

from __future__ import annotations

import re

from docs.reference.evidence import ACCOUNTING, PAGE, REPORTS, TRIED, evidence_page


def test_the_generated_page_is_the_committed_one() -> None:
    assert PAGE.read_text() == evidence_page(), "run: make docs"


def test_every_report_is_told() -> None:
    names = {path.stem for path in REPORTS.glob("*.json")}
    assert {name for name in names if not name.startswith(ACCOUNTING)} == set(TRIED)
    rows = [line for line in evidence_page().splitlines() if line.startswith("| ")]
    assert len(rows) == len(names) + 2, "one for each, and the heads of two tables"


def test_no_campaign_found_a_fault() -> None:
    found = re.findall(r"(faults|crashes|errors) (\d+)", evidence_page())
    assert {word for word, _ in found} == {"faults", "crashes", "errors"}
    assert {number for _, number in found} == {"0"}
