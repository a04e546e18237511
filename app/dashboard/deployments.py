"""The page that asks the operator, once for each budget, for facts that no service can know."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.dashboard.asking import Answer, ask
from app.dashboard.fields import Field, FilledForm
from app.dashboard.forms import fresh_key, read_form
from app.dashboard.pages import need, page
from app.dashboard.wording import words
from app.deployments.schemas import DeploymentAnswers

router = APIRouter(prefix="/dashboard/budgets", include_in_schema=False)

_LINES = 2


@router.get("/{budget_id}/deployment")
async def show(request: Request, budget_id: str) -> Response:
    """Show the questions with the last answers."""
    budget = await need(request, f"/v1/budgets/{budget_id}")
    said = await ask(request, "GET", f"/v1/budgets/{budget_id}/deployment")
    given = {name: text or "" for name, text in said.body["answers"].items()} if said.is_good else {}
    return page(
        request,
        "deployment.html",
        budget=budget,
        form=read(given),
        key=fresh_key(),
        answer=None,
        said=said.body if said.is_good else None,
    )


@router.post("/{budget_id}/deployment")
async def state(request: Request, budget_id: str) -> Response:
    """Save the answers and lead back to the budget; or show the form with its faults."""
    given = await read_form(request)
    budget = await need(request, f"/v1/budgets/{budget_id}")
    path, key = f"/v1/budgets/{budget_id}/deployment", given.get("key", "")
    answer = await ask(request, "POST", path, body=body_of(given), key=key)
    if answer.is_good:
        return RedirectResponse(f"/dashboard/budgets/{budget_id}", 303)
    return _again(request, budget, read(given).judged(answer), answer)


def _again(request: Request, budget: Mapping[str, object], form: FilledForm, answer: Answer) -> Response:
    return page(
        request,
        "deployment.html",
        status=answer.status,
        budget=budget,
        form=form,
        key=fresh_key(),
        answer=answer,
        said=None,
    )


def body_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return the request that the fields make, each on one line. An empty field stays open."""
    flat = {name: " ".join(given.get(name, "").split()) for name in DeploymentAnswers.model_fields}
    return {name: text for name, text in flat.items() if text}


def read(given: Mapping[str, str]) -> FilledForm:
    """Return the form with what was typed. The hint of each question is its description in the HTTP interface."""
    fields = tuple(
        Field(
            name,
            f"{words(name)[0].upper()}{words(name)[1:]}",
            given.get(name, ""),
            str(question.description),
            pointers=(f"/{name}",),
            is_text=True,
            lines=_LINES,
        )
        for name, question in DeploymentAnswers.model_fields.items()
    )
    return FilledForm(sections=(("Questions", fields),))
