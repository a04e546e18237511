"""The ledger: looked through, verified, and held in one hash that is kept elsewhere."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard.asking import ask
from app.dashboard.pages import page, problem_page
from app.dashboard.wording import told_apart
from app.ledger.states import EntryKind

router = APIRouter(prefix="/dashboard/ledger", include_in_schema=False)

_SHOWN = 100
#: By which entries are looked for, as `/v1/budgets/{id}/entries` names them.
FIELDS = ("kind", "purpose", "mechanism", "principal_id", "after", "before")
KINDS = tuple(str(kind) for kind in EntryKind)


@router.get("")
async def index(request: Request) -> Response:
    """What can be asked of the ledger; with a budget, the first of its entries that match."""
    asked = dict(request.query_params)
    budgets = await ask(request, "GET", "/v1/budgets", query={"limit": "200"})
    if not budgets.is_good:
        return problem_page(request, budgets)
    values: dict[str, Any] = {name: asked.get(name, "") for name in ("budget_id", *FIELDS)}
    # A budget that is not among the first ones is chosen all the same.
    known = told_apart(budgets.body["items"])
    if values["budget_id"]:
        known.setdefault(values["budget_id"], values["budget_id"])
    return page(request, "ledger.html", budgets=known, kinds=KINDS, **values)


@router.get("/entries")
async def entries(request: Request) -> Response:
    """Entries of one budget, the oldest first."""
    asked = dict(request.query_params)
    budget_id = asked.get("budget_id", "")
    if not budget_id:
        return page(request, "ledger_entries.html", budget=None, items=[], more=None)
    query = {name: _as_moment(name, asked[name]) for name in (*FIELDS, "cursor") if asked.get(name)}
    budget = await ask(request, "GET", f"/v1/budgets/{budget_id}")
    answer = await ask(request, "GET", f"/v1/budgets/{budget_id}/entries", query={"limit": str(_SHOWN), **query})
    for each in (budget, answer):
        if not each.is_good:
            return page(request, "problem_part.html", problem=each.body)
    cursor = answer.body["next_cursor"]
    more = None if cursor is None else {**asked, "cursor": cursor}
    return page(request, "ledger_entries.html", budget=budget.body, items=answer.body["items"], more=more)


@router.get("/entries/{entry_id}/proof")
async def proof(request: Request, entry_id: str) -> Response:
    """What shows that the entry is in the tree over all entries."""
    answer = await ask(request, "GET", f"/v1/ledger/entries/{entry_id}/proof")
    if not answer.is_good:
        return page(request, "problem_part.html", problem=answer.body)
    return page(request, "ledger_proof.html", proof=answer.body)


@router.get("/checkpoint")
async def checkpoint(request: Request) -> Response:
    """All entries in one signed hash."""
    answer = await ask(request, "GET", "/v1/ledger/checkpoint")
    if not answer.is_good:
        return page(request, "problem_part.html", problem=answer.body)
    return page(request, "ledger_checkpoint.html", checkpoint=answer.body)


@router.post("/verify")
async def verify(request: Request) -> Response:
    """Whether the books are what the ledger wrote."""
    answer = await ask(request, "POST", "/v1/ledger/verify", body={})
    if not answer.is_good:
        return page(request, "problem_part.html", problem=answer.body)
    return page(request, "ledger_verdict.html", verdict=answer.body)


def _as_moment(name: str, value: str) -> str:
    """A day, or a minute of a form, as the beginning of it in UTC; anything else as it is."""
    if name not in ("after", "before") or value.endswith("Z"):
        return value
    return f"{value}T00:00:00Z" if "T" not in value else f"{value}:00Z"
