"""Requests for another limit: the form that asks, and the list on which owners decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from accounting.filters import FILTERS
from app.budgets.doubts import doubts, right_guesses
from app.dashboard.amounts import of_limit
from app.dashboard.asking import Answer, ask
from app.dashboard.calibration_fields import label_of
from app.dashboard.fields import Field, FilledForm
from app.dashboard.forms import fresh_key, read_form
from app.dashboard.pages import need, page

router = APIRouter(include_in_schema=False)

#: The most items on one page of the list.
_SHOWN = 50
#: The states by which requests are filtered; the first stands for those that wait for a decision.
STATES = ("open", "approved", "refused", "withdrawn")
_BELOW_USE = (
    "Nothing was decided: more is spent or held than the wanted limit admits. Refuse the request, or approve it once "
    "reservations have ended."
)


@router.get("/dashboard/limit-requests")
async def index(
    request: Request, state: str = STATES[0], cursor: str | None = None, decided: str | None = None
) -> Response:
    """Show the requests that the key may see, newest first. Open requests can be decided here."""
    return await _list(request, state, cursor, decided=decided)


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
        meaning=meaning_of,
        reasons={},
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
        refusal = _BELOW_USE if answer.body["code"] == "limit_below_use" else _sentence(answer.body["detail"])
        typed = {limit_request_id: given.get("reason", "")}
        return await _list(request, STATES[0], None, status=answer.status, refusal=refusal, reasons=typed)
    if given.get("from") == "budget":
        return RedirectResponse(f"/dashboard/budgets/{answer.body['budget_id']}#limit-requests", 303)
    return RedirectResponse(f"/dashboard/limit-requests?decided={answer.body['id']}", 303)


def meaning_of(budget: Mapping[str, Any], limit_request: Mapping[str, Any]) -> list[str]:
    """Return what an owner should know before an approval: how much of the budget is used, what the limit lets an
    attacker guess, and doubts about it."""
    limit = budget["filter"]
    wanted = {name: _written(limit_request["wanted"].get(name, limit[name])) for name in FILTERS[limit["kind"]].limits}
    said = [f"Spent so far: {of_limit(budget, 'spent')}."]
    if budget["amounts"]["limit"] != limit_request["before"]:
        return ["The limit has changed since this request was made, so it can only be refused.", *said]
    found, now = right_guesses(wanted), right_guesses(limit)
    if found is None:
        return said
    return [
        *said,
        f"Once the wanted limit is used up, somebody who knows everything in the data except whether one "
        f"{budget['privacy_unit']} took part guesses right in at most {found} of cases; under the present limit, in at "
        f"most {now}. Without any release it is 50 %.",
        *doubts(wanted),
    ]


async def _list(
    request: Request,
    state: str,
    cursor: str | None,
    *,
    status: int = 200,
    decided: str | None = None,
    refusal: str | None = None,
    reasons: Mapping[str, str] | None = None,
) -> Response:
    """Return the page with the requests in one state.

    Args:
        request: The request for the page.
        state, cursor: What is listed.
        status: The status of the page.
        decided: The id of a request that was decided just now.
        refusal: Why a decision did not take place.
        reasons: Reasons that were typed, by the ids of their requests.
    """
    query = {"state": state, "limit": str(_SHOWN), **({} if cursor is None else {"cursor": cursor})}
    found = await need(request, "/v1/limit-requests", query)
    done = None if decided is None else await _decided(request, decided)
    budgets = {
        each["budget_id"]: await need(request, f"/v1/budgets/{each['budget_id']}", {"delta": "1e-6"})
        for each in [*found["items"], *([] if done is None else [done])]
    }
    return page(
        request,
        "limit_requests.html",
        status=status,
        state=state,
        states=STATES,
        budgets=budgets,
        keys={each["id"]: fresh_key() for each in found["items"]},
        meaning=meaning_of,
        reasons=reasons or {},
        listed=True,
        decided=done,
        refusal=refusal,
        **found,
    )


async def _decided(request: Request, limit_request_id: str) -> dict[str, Any] | None:
    """Return a request that was decided; None if there is none with this id."""
    found = await ask(request, "GET", f"/v1/limit-requests/{quote(limit_request_id, safe='')}")
    return dict(found.body) if found.is_good and found.body["state"] in STATES[1:] else None


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


def _sentence(detail: str) -> str:
    return f"{detail[:1].upper()}{detail[1:].rstrip('.')}."


def _written(amount: float) -> str:
    return f"{amount:.12g}"


def _needs_another_key(answer: Answer) -> bool:
    """Return whether the form needs a new idempotency key, since the same key would get the same answer again."""
    return answer.status == 409 or bool(answer.faults("/header"))
