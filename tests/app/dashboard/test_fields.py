"""Each fault of a request is told at its field, and one that lies in none is told all the same."""

from __future__ import annotations

from typing import Any

from app.dashboard.asking import Answer
from app.dashboard.fields import Field, FilledForm

FORM = FilledForm(sections=(("A", (Field("x", "X", "1", pointers=("/x", "/y")),)), ("B", (Field("z", "Z", "2"),))))


def judged(*errors: dict[str, Any]) -> FilledForm:
    return FORM.judged(Answer(422, {"detail": "In all.", "errors": list(errors)}))


def test_faults_are_told_where_they_lie() -> None:
    found = judged(
        {"pointer": "/x", "detail": "One."},
        {"pointer": "/y", "detail": "Two."},
        {"pointer": "/else", "detail": "Three."},
        {"pointer": "", "detail": "Four."},
    )
    assert [each.faults for each in found.fields] == [("One.", "Two."), ()]
    assert found.other_faults == ("/else: Three.", "Four.")


def test_a_refusal_without_single_faults_is_told_as_it_is() -> None:
    assert judged().other_faults == ("In all.",)


def test_a_good_answer_marks_nothing() -> None:
    assert FORM.judged(Answer(200, {})) == FORM
