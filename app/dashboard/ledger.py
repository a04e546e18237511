"""The pages that show the ledger, verify it, and sign it in one hash to be kept elsewhere."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from accounting.canonical import canonical_text
from accounting.certificates import NoCertificate, Verdict, check_again, verifier
from app.context import Context, CurrentContext
from app.dashboard.forms import read_form
from app.dashboard.pages import need, page
from app.dashboard.wording import told_apart
from app.entries.kinds import EntryKind
from app.kit.process_pool import JobFailed
from app.ledger.amounts import in_short

router = APIRouter(prefix="/dashboard/ledger", include_in_schema=False)

_SHOWN = 100
#: The fields by which entries are filtered, as `/v1/budgets/{id}/entries` names them.
FIELDS = ("kind", "purpose", "mechanism", "made_by", "after", "before")
KINDS = tuple(str(kind) for kind in EntryKind)


@router.get("")
async def index(request: Request) -> Response:
    """Show what can be done with the ledger, and the newest entries of a budget: the named one, else the newest."""
    asked = dict(request.query_params)
    budgets = await need(request, "/v1/budgets", {"limit": "200"})
    values: dict[str, Any] = {name: asked.get(name, "") for name in ("budget_id", *FIELDS)}
    # A budget can be chosen even if it is not among those that the list shows.
    known = told_apart(budgets["items"])
    if values["budget_id"]:
        known.setdefault(values["budget_id"], values["budget_id"])
    else:
        values["budget_id"] = next(iter(known), "")
    return page(request, "ledger.html", budgets=known, kinds=KINDS, **values)


@router.get("/entries")
async def entries(request: Request) -> Response:
    """Show the entries of one budget, newest first."""
    asked = dict(request.query_params)
    budget_id = asked.get("budget_id", "")
    if not budget_id:
        return page(request, "ledger_entries.html", budget=None, items=[], more=None)
    query = {name: _as_moment(name, asked[name]) for name in (*FIELDS, "cursor") if asked.get(name)}
    budget = await need(request, f"/v1/budgets/{budget_id}", in_part=True)
    query = {"limit": str(_SHOWN), "newest_first": "true", **query}
    found = await need(request, f"/v1/budgets/{budget_id}/entries", query, in_part=True)
    cursor = found["next_cursor"]
    more = None if cursor is None else {**asked, "cursor": cursor}
    return page(request, "ledger_entries.html", budget=budget, items=found["items"], more=more)


@router.get("/entries/{entry_id}/proof")
async def proof(request: Request, entry_id: str) -> Response:
    """Show the proof that the entry is in the tree over all entries."""
    found = await need(request, f"/v1/ledger/entries/{entry_id}/proof", in_part=True)
    return page(request, "ledger_proof.html", proof=found)


@router.get("/reservations/{reservation_id}/certificate")
async def certificate(request: Request, context: CurrentContext, reservation_id: str) -> Response:
    """Check the certificate of a charge, and show what it states."""
    found = await need(request, f"/v1/reservations/{reservation_id}/certificate", in_part=True)
    text = canonical_text(found)
    try:
        verdict = await run_in_threadpool(_checked, context, text.encode())
    except (NoCertificate, JobFailed) as reason:
        return page(request, "ledger_certificate.html", text=text, verdict=None, reason=str(reason))
    return page(request, "ledger_certificate.html", text=text, verdict=verdict, reason=verdict.reason)


def _checked(context: Context, data: bytes) -> Verdict:
    """Check a certificate in a process with limits. It may take seconds, and all threads of a process share the
    precision of the arithmetic."""
    verifier()  # unpickling the answer of the process needs it, too
    return context.processes.run(check_again, data)


@router.get("/checkpoint")
async def checkpoint(request: Request) -> Response:
    """Show the signed checkpoint: one hash that covers all entries."""
    found = await need(request, "/v1/ledger/checkpoint", in_part=True)
    return page(request, "ledger_checkpoint.html", checkpoint=found)


@router.post("/verify")
async def verify(request: Request) -> Response:
    """Verify the books and, if requested, the prices of all charges."""
    body = {"prices": "prices" in await read_form(request)}
    verdict = await need(request, "/v1/ledger/verify", method="POST", body=body, in_part=True)
    return page(request, "ledger_verdict.html", verdict=verdict, in_short=in_short)


def _as_moment(name: str, value: str) -> str:
    """Return the beginning of a day or minute from a form, in UTC; anything else is returned unchanged."""
    if name not in ("after", "before") or value.endswith("Z"):
        return value
    return f"{value}T00:00:00Z" if "T" not in value else f"{value}:00Z"
