"""The examples of the document run as they stand on a fresh server, and its answers are those that are given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from app.openapi_examples import ANSWERS
from tests.contract.example_story import Story, fresh, play, shown
from tests.databases import DatabaseFactory

#: Of these every example is run by tests of their own, which take long together.
RUN_ELSEWHERE = {
    "account": "tests/app/privacy/test_account.py",
    "convert": "tests/app/privacy/test_convert.py",
    "tuning_cost": "tests/app/privacy/test_tuning.py",
    "import_history": "tests/app/privacy/test_imports.py",
    "calibrate": "tests/app/algorithms/test_calibrate.py",
    "advise": "tests/app/algorithms/test_advise.py",
    "derive_assumptions": "tests/app/algorithms/test_assumptions.py",
    "sweep": "tests/app/sweeps/test_sweep.py",
    "create_run": "tests/app/runs/test_runs.py",
    "create_audit": "tests/app/audits/test_audits.py",
}
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
    r"(?P<id>\b(bud|res|run|swp|aud|key|ds|ent)_[a-z0-9]{20,})|\d{4}-\d\d-\d\d(T[0-9:.]+(Z|\+00:00))?"
    r"|[A-Za-z0-9+/=_-]{30,}"
)


@pytest.fixture(scope="module")
def story(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with fresh(sqlite_databases.migrated(), tmp_path_factory.mktemp("data")) as story:
        play(story)
        yield story


def test_every_operation_is_called_and_every_example_is_sent(story: Story) -> None:
    assert set(story.answers) == set(story.operations)
    for name, (_, _, operation) in story.operations.items():
        content = operation.get("requestBody", {}).get("content", {})
        examples = content.get("application/json", {}).get("examples", {})
        if name not in RUN_ELSEWHERE:
            assert set(examples) == story.examples.get(name, set()), name


def test_every_answer_has_a_documented_status(story: Story) -> None:
    for name, answers in story.answers.items():
        assert set(answers) <= set(story.operations[name][2]["responses"]), name


def test_the_documented_answers_are_the_given_ones(story: Story) -> None:
    committed = json.loads(ANSWERS.read_text(encoding="utf-8"))
    given = {name: found for name, found in shown(story).items() if found}
    assert set(committed) == set(given), "run: python -m tests.contract.example_story"
    for name, answers in committed.items():
        different = list(differences(answers, given[name], name, drawn=name in DRAWN))
        assert not different, f"run: python -m tests.contract.example_story ({different})"


def test_no_documented_answer_holds_a_token() -> None:
    assert not re.search(r"epsilond_[a-z0-9]", ANSWERS.read_text(encoding="utf-8"))


def test_a_difference_is_found_and_what_is_never_the_same_is_none() -> None:
    first = {"id": "bud_kgxmtqafnw63lbbjfq7ro6ig", "at": "2026-01-31T10:00:00Z", "epsilon": 1.5, "method": "a"}
    assert not list(differences(first, first | {"id": "bud_agxmtqafnw63lbbjfq7ro6ig", "epsilon": 1.5 + 1e-12}, ""))
    for changed in ({"epsilon": 1.6}, {"method": "b"}, {"id": "run_kgxmtqafnw63lbbjfq7ro6ig"}, {"more": 1}):
        assert len(list(differences(first, first | changed, ""))) == 1, changed
    assert not list(differences(first, first | {"epsilon": 1.6, "method": "b"}, "", drawn=True))
    assert list(differences(first, first | {"epsilon": "1.5"}, "", drawn=True)) == ["/epsilon"]


def differences(first: Any, second: Any, place: str, *, drawn: bool = False) -> Iterator[str]:
    """Where two answers say something else."""
    if isinstance(first, dict) and isinstance(second, dict):
        # A report of spending has days for names.
        first, second = ({OWN.sub(_kind, name): value for name, value in each.items()} for each in (first, second))
        if set(first) != set(second):
            yield place
        elif not place.endswith("/error_budget"):
            for name in first:
                yield from differences(first[name], second[name], f"{place}/{name}", drawn=drawn)
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{place}/{index}", drawn=drawn)
    elif drawn:
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
