"""The pages on which administrators see keys and their rights, create keys, give them new tokens, and revoke them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.auth.principal import Scope
from app.dashboard.asking import Answer, ask
from app.dashboard.calibration_form import number
from app.dashboard.fields import Field, FilledForm
from app.dashboard.forms import fresh_key, read_form
from app.dashboard.pages import need, page, problem_page
from app.dashboard.wording import told_apart

router = APIRouter(prefix="/dashboard/keys", include_in_schema=False)

#: The most keys on one page of the list.
_SHOWN = 50
#: The number of budgets that the form offers: the most that a list returns at once.
_MOST_BUDGETS = 200
_DAY_S = 86_400
#: What each scope allows, beginning with the scope that is chosen most often.
SCOPES: Mapping[Scope, str] = {
    Scope.ANALYST: "calibrates, reserves, trains, and asks for other limits",
    Scope.OWNER: "opens budgets, uploads data, and decides requests for other limits",
    Scope.AUDITOR: "reads, exports and verifies the ledger",
    Scope.LIMITS: "changes limits",
    Scope.CORRECTIONS: "lowers charges that were wrong",
    Scope.REFUNDS: "states which steps were never taken",
    Scope.METRICS: "reads /metrics",
    Scope.ADMIN: "may do all of this, and manages keys",
}


@router.get("")
async def index(request: Request, cursor: str | None = None) -> Response:
    """Show all keys, and the form that creates one."""
    return await _page(request, read({}), cursor=cursor)


@router.post("")
async def create(request: Request) -> Response:
    """Create a key once and show its token; or show the form with its faults."""
    given = await read_form(request)
    body = body_of(given, await _budgets(request))
    answer = await ask(request, "POST", "/v1/keys", body=body, key=given.get("key", ""))
    if answer.is_good:
        return _with_token(request, answer)
    return await _page(request, read(given).judged(answer), answer=answer, chosen=scopes_of(given))


@router.post("/{key_id}/rotate")
async def rotate(request: Request, key_id: str) -> Response:
    """Give the key another token, and show it. The old token works for another hour."""
    given = await read_form(request)
    answer = await ask(request, "POST", f"/v1/keys/{key_id}/rotate", body={}, key=given.get("key", ""))
    return _with_token(request, answer) if answer.is_good else problem_page(request, answer)


@router.post("/{key_id}/revoke")
async def revoke(request: Request, key_id: str) -> Response:
    """Revoke the key and lead back to the list."""
    given = await read_form(request)
    answer = await ask(request, "POST", f"/v1/keys/{key_id}/revoke", body={}, key=given.get("key", ""))
    return RedirectResponse("/dashboard/keys", 303) if answer.is_good else problem_page(request, answer)


def body_of(given: Mapping[str, str], named: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that the fields make.

    Args:
        given: The values by the names of the fields.
        named: The names of budgets by their ids.
    """
    body: dict[str, Any] = {name: given[name] for name in ("name",) if given.get(name)}
    body["scopes"] = scopes_of(given)
    ids = {name: identifier for identifier, name in named.items()}
    typed = [each.strip() for each in given.get("budgets", "").split(",")]
    # A text that names no budget is passed on as typed; the service refuses it and points to the field.
    budgets = [ids.get(each, each) for each in typed if each]
    days = number(given["days"]) if given.get("days") else None
    if budgets:
        body["budgets"] = budgets
    if days is not None:
        body["expires_in"] = days * _DAY_S if isinstance(days, int | float) else days
    return body


def scopes_of(given: Mapping[str, str]) -> list[Scope]:
    """Return the scopes whose boxes are ticked."""
    return [scope for scope in SCOPES if f"scope.{scope}" in given]


def read(given: Mapping[str, str]) -> FilledForm:
    """Return the form with what was typed. The scopes are not in it; they have boxes of their own."""
    reached = "Names of the budgets that it reaches, with all below them, separated by commas. Left out: everything."
    return FilledForm(
        sections=(
            (
                "A key",
                (
                    Field("name", "Name", given.get("name", ""), "Who or what holds it.", (), ("/name",), is_text=True),
                    Field("budgets", "Budgets", given.get("budgets", ""), reached, (), ("/budgets",), is_text=True),
                    Field(
                        "days",
                        "Ends after this many days",
                        given.get("days", "90"),
                        "If left empty, it ends only when it is revoked.",
                        pointers=("/expires_in",),
                    ),
                ),
            ),
        )
    )


async def _budgets(request: Request) -> dict[str, str]:
    """Return the names of the newest budgets by their ids. If several share a name, the end of the id is added."""
    return told_apart((await need(request, "/v1/budgets", {"limit": f"{_MOST_BUDGETS}"}))["items"])


async def _page(
    request: Request,
    form: FilledForm,
    *,
    answer: Answer | None = None,
    chosen: Sequence[Scope] | None = None,
    cursor: str | None = None,
) -> Response:
    query = {"limit": f"{_SHOWN}", **({} if cursor is None else {"cursor": cursor})}
    found = await need(request, "/v1/keys", query)
    if chosen is None:
        # The first key should be an administrator's, with which all others are made.
        chosen = (Scope.ANALYST,) if found["items"] else (Scope.ADMIN,)
    return page(
        request,
        "keys.html",
        status=200 if answer is None else answer.status,
        keys=found["items"],
        budgets=await _budgets(request),
        next_cursor=found["next_cursor"],
        form=form,
        scopes=SCOPES,
        chosen=chosen,
        faults=[] if answer is None else answer.faults("/scopes"),
        answer=answer,
        fresh_key=fresh_key,
    )


def _with_token(request: Request, answer: Answer) -> Response:
    """Show the page with a token. The service never tells it again."""
    return page(request, "key_token.html", key=answer.body)
