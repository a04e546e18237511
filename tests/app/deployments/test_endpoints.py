"""Facts that only the operator knows are stated once for a budget, inherited below it, and shown on every card."""

from __future__ import annotations

from typing import Any

from app.deployments.schemas import DeploymentAnswers
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import Service, service
from tests.databases import on_one_engine

__all__ = ["service"]

SAID = {"curator": "the clinic", "operator": "its own IT", "retention": "ten years"}


def state(service: Service, budget_id: str, answers: dict[str, Any], key: str | None = None) -> Any:
    return service.post(f"/v1/budgets/{budget_id}/deployment", answers, key)


def test_what_is_said_is_kept_and_replaced_as_a_whole(service: Service) -> None:
    budget = service.budget()["id"]
    path = f"/v1/budgets/{budget}/deployment"
    assert_problem(service.client.get(path), 404, "not_found")
    first = state(service, budget, SAID, key="once")
    assert first.status_code == 200, first.text
    assert state(service, budget, SAID, key="once").json() == first.json()
    assert service.get(path) == first.json()
    assert {name: text for name, text in first.json()["answers"].items() if text} == SAID
    state(service, budget, {"curator": "the new clinic"})
    answers = service.get(path)["answers"]
    assert (answers["curator"], answers["operator"]) == ("the new clinic", None)


def test_budgets_below_inherit_what_is_said_nearest(service: Service) -> None:
    root = service.budget()
    child = service.budget(parent_id=root["id"])
    leaf = service.budget(parent_id=child["id"])["id"]
    state(service, root["id"], {"curator": "root"})
    assert service.get(f"/v1/budgets/{leaf}/deployment")["answers"]["curator"] == "root"
    assert service.get(f"/v1/budgets/{leaf}/deployment")["inherited"] is True
    state(service, child["id"], {"curator": "child"})
    assert service.get(f"/v1/budgets/{leaf}/deployment")["answers"]["curator"] == "child"
    assert service.get(f"/v1/budgets/{root['id']}/deployment")["inherited"] is False


@on_one_engine
def test_faults_are_told_at_their_place(service: Service) -> None:
    budget = service.budget()["id"]
    assert_problem(state(service, budget, {"curator": "a\nb"}), 422, "invalid_request", "/curator")
    assert_problem(state(service, budget, {"owner": "us"}), 422, "invalid_request", "/owner")
    assert_problem(state(service, budget, {"curator": "x" * 1001}), 422, "invalid_request", "/curator")
    assert_problem(state(service, "bud_none", SAID), 404, "not_found")


@on_one_engine
def test_every_answer_closes_an_open_point_of_the_card(service: Service) -> None:
    budget, run = service.private()
    service.work()
    path = f"/v1/runs/{run['id']}/report"
    before = service.get(path)
    assert before["deployment"] is None
    answers = {name: f"{name} as it was said" for name in DeploymentAnswers.model_fields}
    state(service, budget["id"], answers)
    card = service.get(path)
    told = [*(each["finding"] for each in card["evaluation"]), *(each["value"] for each in card["registry"])]
    page, markdown = (service.client.get(f"{path}?format={each}").text for each in ("html", "markdown"))
    for text in answers.values():
        assert text in told, text
        assert text in page
        assert text in markdown
    assert "Facts that no service can know were stated for the budget by" in page
