"""Requests for another limit: the form that asks, and the list on which owners decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from accounting.filters import FILTERS
from app.dashboard.asking import Answer, ask
from app.dashboard.calibration_fields import label_of
from app.dashboard.fields import Field, FilledForm
from app.dashboard.forms import fresh_key, read_form
from app.dashboard.pages import need, page, problem_page

router = APIRouter(include_in_schema=False)

#: The most items on one page of the list.
_SHOWN = 50
#: The states by which requests are filtered; the first stands for those that wait for a decision.
STATES = ("open", "approved", "refused", "withdrawn")


@router.get("/dashboard/limit-requests")
async def index(request: Request, state: str = STATES[0], cursor: str | None = None) -> Response:
    """Show the requests that the key may see, newest first. Open requests can be decided here."""
    query = {"state": state, "limit": str(_SHOWN), **({} if cursor is None else {"cursor": cursor})}
    found = await need(request, "/v1/limit-requests", query)
    budgets = {
        each["budget_id"]: await need(request, f"/v1/budgets/{each['budget_id']}", {"delta": "1e-6"})
        for each in found["items"]
    }
    keys = {each["id"]: fresh_key() for each in found["items"]}
    return page(
        request, "limit_requests.html", state=state, states=STATES, budgets=budgets, keys=keys, listed=True, **found
    )


@router.get("/dashboard/budgets/{budget_id}/limit-requests")
async def of_budget(request: Request, budget_id: str) -> Response:
    """Show the requests of a budget, and the form that asks for another limit."""
    budget = await need(request, f"/v1/budgets/{budget_id}", in_part=True)
    query = {"limit": str(_SHOWN)}
    found = await need(request, f"/v1/budgets/{budget_id}/limit-requests", query, in_part=True)
    keys = {each["id"]: fresh_key() for each in found["items"]}
    return page(
        request,
        "budget_limit_requests.html",
        budget=budget,
        budgets={budget_id: budget},
        items=found["items"],
        keys=keys,
        listed=False,
        form=form_of(budget, {}),
        key=fresh_key(),
        answer=None,
    )


@router.post("/dashboard/budgets/{budget_id}/limit-requests")
async def ask_for_limit(request: Request, budget_id: str) -> Response:
    """Make the request once, however often the form is sent, and lead back to the budget; or show the form with its
    faults."""
    given = await read_form(request)
    budget = await need(request, f"/v1/budgets/{budget_id}")
    path, key = f"/v1/budgets/{budget_id}/limit-requests", given.get("key", "")
    answer = await ask(request, "POST", path, body=body_of(budget, given), key=key)
    if answer.is_good:
        return RedirectResponse(f"/dashboard/budgets/{budget_id}#limit-requests", 303)
    form = form_of(budget, given).judged(answer)
    return page(
        request,
        "ask_for_limit.html",
        status=answer.status,
        budget=budget,
        form=form,
        key=fresh_key() if _needs_another_key(answer) else key,
        answer=answer,
    )


@router.post("/dashboard/limit-requests/{limit_request_id}/{decision}")
async def decide(request: Request, limit_request_id: str, decision: str) -> Response:
    """Approve, refuse or withdraw a request, and lead back to the list."""
    given = await read_form(request)
    path = f"/v1/limit-requests/{limit_request_id}/{decision}"
    body = {} if decision == "withdraw" else {"reason": given.get("reason", "")}
    answer = await ask(request, "POST", path, body=body, key=given.get("key", ""))
    if not answer.is_good:
        return problem_page(request, answer)
    budget_id = answer.body["budget_id"]
    then = f"/dashboard/budgets/{budget_id}#limit-requests" if given.get("from") == "budget" else None
    return RedirectResponse(then or "/dashboard/limit-requests", 303)


def body_of(budget: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that the fields make. Amounts are sent as they were typed, since the service reads decimals
    exactly."""
    kind = budget["filter"]["kind"]
    amounts = {name: given[name] for name in FILTERS[kind].limits if given.get(name)}
    return {"filter": {"kind": kind} | amounts, "reason": given.get("reason", "")}


def form_of(budget: Mapping[str, Any], given: Mapping[str, str]) -> FilledForm:
    """Return the form with what was typed. It begins with the budget's present limit."""
    limit = budget["filter"]
    fields = [
        Field(name, label_of(name), given.get(name, _written(limit[name])), pointers=(f"/filter/{name}",))
        for name in FILTERS[limit["kind"]].limits
    ]
    why = "For the owner who decides, and for every later reader of the ledger."
    fields.append(Field("reason", "Why", given.get("reason", ""), why, pointers=("/reason",), is_text=True))
    return FilledForm(sections=(("Another limit", tuple(fields)),))


def _written(amount: float) -> str:
    return f"{amount:.12g}"


def _needs_another_key(answer: Answer) -> bool:
    """Return whether the form needs a new idempotency key, since the same key would get the same answer again."""
    return answer.status == 409 or bool(answer.faults("/header"))
