"""Pages of audits: attacks on the trainer, each beside the claim that it tests."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.dashboard.asking import ask
from app.dashboard.forms import read_form
from app.dashboard.pages import need, page, problem_page

router = APIRouter(prefix="/dashboard/audits", include_in_schema=False)

#: The most items on one page of a list.
_SHOWN = 50
#: The defaults for auditing an evaluation. Its share of the charge is small, so the most powerful method is used. That
#: method is nearly tight, so the confidence is above the default, to report fewer honest evaluations as violated.
_OF_SCORES = {"design": "held_out", "method": "gaussian_dp", "trials": 4000, "confidence": 0.999}


@router.get("")
async def index(request: Request, run_id: str = "", cursor: str | None = None) -> Response:
    """Show the audits that the key may see, newest first; only those of one run if the address names it."""
    query = {"limit": f"{_SHOWN}", **({"run_id": run_id} if run_id else {})}
    found = await need(request, "/v1/audits", query | ({} if cursor is None else {"cursor": cursor}))
    return page(request, "audits.html", audits=found["items"], run_id=run_id, next_cursor=found["next_cursor"])


@router.get("/{audit_id}")
async def show(request: Request, audit_id: str) -> Response:
    """Show the claim, the bound and the verdict of one audit."""
    return page(request, "audit.html", audit=await need(request, f"/v1/audits/{audit_id}"))


@router.post("")
async def attack(request: Request) -> Response:
    """Attack the training or the scores of a run once, with canaries, and redirect to the result."""
    given = await read_form(request)
    body = {"run_id": given.get("run_id", ""), **(_OF_SCORES if given.get("part") == "scores" else {})}
    answer = await ask(request, "POST", "/v1/audits", body=body, key=given.get("key", ""))
    if not answer.is_good:
        return problem_page(request, answer)
    return RedirectResponse(f"/dashboard/audits/{answer.body['id']}", 303)
