"""The examples of the document run as they stand on a fresh server, and its answers are those that are given."""

from __future__ import annotations

import json
import re
from pathlib import Path

from app.openapi.examples import answers_in
from tests.contract.example_story import Story, fresh, play, shown
from tests.contract.make_openapi import committed, differences, kept
from tests.databases import DatabaseFactory

#: Of these every example is run by tests of their own, which take long together.
RUN_ELSEWHERE = {
    "account": "tests/app/privacy/test_account.py",
    "convert": "tests/app/privacy/test_convert.py",
    "tuning_cost": "tests/app/privacy/test_tuning.py",
    "import_history": "tests/app/privacy/test_imports.py",
    "calibrate": "tests/app/algorithms/test_calibrate.py",
    "calibrate_events": "tests/app/algorithms/test_open_events.py",
    "advise": "tests/app/algorithms/test_advise.py",
    "derive_assumptions": "tests/app/algorithms/test_assumptions.py",
    "sweep": "tests/app/sweeps/test_sweep.py",
    "create_run": "tests/app/runs/test_runs.py",
    "create_audit": "tests/app/audits/test_audits.py",
}


def test_every_example_is_answered_as_the_document_says(sqlite_databases: DatabaseFactory, tmp_path: Path) -> None:
    """One test, because the story takes longer than all that is asked of its answers."""
    with fresh(sqlite_databases.migrated(), tmp_path) as story:
        play(story)
        assert_every_operation_is_called_and_every_example_is_sent(story)
        assert_every_answer_has_a_documented_status(story)
        assert_the_documented_answers_are_the_given_ones(story)


def assert_every_operation_is_called_and_every_example_is_sent(story: Story) -> None:
    assert set(story.answers) == set(story.operations)
    for name, (_, _, operation) in story.operations.items():
        content = operation.get("requestBody", {}).get("content", {})
        examples = content.get("application/json", {}).get("examples", {})
        if name not in RUN_ELSEWHERE:
            assert set(examples) == story.examples.get(name, set()), name


def assert_every_answer_has_a_documented_status(story: Story) -> None:
    for name, answers in story.answers.items():
        assert set(answers) <= set(story.operations[name][2]["responses"]), name


def assert_the_documented_answers_are_the_given_ones(story: Story) -> None:
    given, documented = shown(story), answers_in(committed())
    assert set(documented) == set(given), "run: make openapi"
    for name, answers in documented.items():
        different = list(differences(answers, given[name], name))
        assert not different, f"run: make openapi ({different})"


def test_no_documented_answer_holds_a_token() -> None:
    assert not re.search(r"epsilond_[a-z0-9]", json.dumps(answers_in(committed())))


def test_a_difference_is_found_and_what_is_never_the_same_is_none() -> None:
    first = {"id": "bud_kgxmtqafnw63lbbjfq7ro6ig", "at": "2026-01-31T10:00:00Z", "epsilon": 1.5, "method": "a"}
    assert not list(
        differences(first, first | {"id": "bud_agxmtqafnw63lbbjfq7ro6ig", "epsilon": 1.5 + 1e-12}, "account")
    )
    for changed in ({"epsilon": 1.6}, {"method": "b"}, {"id": "run_kgxmtqafnw63lbbjfq7ro6ig"}, {"more": 1}):
        assert len(list(differences(first, first | changed, "account"))) == 1, changed
    assert not list(differences(first, first | {"epsilon": 1.6, "method": "b"}, "get_run"))
    assert list(differences(first, first | {"epsilon": "1.5"}, "get_run")) == ["get_run/epsilon"]


def test_an_answer_that_says_the_same_is_written_as_it_was() -> None:
    first = {"id": "bud_kgxmtqafnw63lbbjfq7ro6ig", "epsilon": 1.5}
    same, other = first | {"id": "bud_agxmtqafnw63lbbjfq7ro6ig"}, first | {"epsilon": 1.6}
    assert kept({"account": {"200": first}}, {"account": {"200": same}}) == {"account": {"200": first}}
    assert kept({"account": {"200": first}}, {"account": {"200": other}}) == {"account": {"200": other}}
    assert kept({}, {"account": {"200": other}}) == {"account": {"200": other}}
