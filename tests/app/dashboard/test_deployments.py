"""The page that asks what only the operator knows."""

from __future__ import annotations

import re
from html import unescape

from app.deployments.schemas import DeploymentAnswers
from tests.app.dashboard.documents import Document
from tests.app.dashboard.test_new_budget import HERE, marked
from tests.app.runs.conftest import Service, quick

__all__ = ["quick"]


def test_every_question_is_asked_once_and_what_is_answered_is_kept(quick: Service) -> None:
    budget = quick.budget()
    at = f"/dashboard/budgets/{budget['id']}/deployment"
    assert f'href="{at}"' in quick.client.get(f"/dashboard/budgets/{budget['id']}").text
    page = quick.client.get(at)
    assert (page.status_code, Document(page.text).faults) == (200, [])
    assert re.findall(r'<textarea id="[^"]*" name="([^"]*)"', page.text) == list(DeploymentAnswers.model_fields)
    (key,) = re.findall(r'name="key" value="([^"]+)"', page.text)
    typed = {"key": key, "curator": "the clinic,\r\n Ward 3", "retention": "", "operator": "</textarea><b>us"}
    answer = quick.client.post(at, data=typed, headers=HERE, follow_redirects=False)
    assert answer.headers["location"] == f"/dashboard/budgets/{budget['id']}"
    said = quick.get(f"/v1/budgets/{budget['id']}/deployment")["answers"]
    assert (said["curator"], said["retention"]) == ("the clinic, Ward 3", None)
    again = quick.client.get(at).text
    assert Document(again).faults == []
    assert "the clinic, Ward 3</textarea>" in unescape(again)
    assert "<b>us" not in again


def test_an_answer_that_is_too_long_is_told_at_its_question(quick: Service) -> None:
    budget = quick.budget()
    at = f"/dashboard/budgets/{budget['id']}/deployment"
    typed = {"key": "page-of-a-test-0000000", "curator": "x" * 1001}
    answer = quick.client.post(at, data=typed, headers=HERE)
    assert answer.status_code == 422
    assert set(marked(answer.text)) == {"curator"}
