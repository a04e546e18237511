"""Pages of runs: their state and progress, their results, and their privacy cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.dashboard.asking import ask, relay
from app.dashboard.forms import fresh_key, read_form
from app.dashboard.pages import need, page, problem_page
from app.dashboard.try_model import body_of, can_be_tried, form_of

router = APIRouter(prefix="/dashboard/runs", include_in_schema=False)

#: The most items on one page of the list.
_SHOWN = 50
#: The most data sets that are shown by name; older ones are shown by id.
_NAMED = 200
#: The states that a run or a sweep leaves by itself: its page reloads until then.
UNDER_WAY = frozenset({"queued", "running", "cancelling"})


@router.get("")
async def index(request: Request, cursor: str | None = None) -> Response:
    """Show all runs that the key may see, newest first."""
    query = {"limit": str(_SHOWN), **({} if cursor is None else {"cursor": cursor})}
    runs = await need(request, "/v1/runs", query)
    names = await dataset_names(request)
    return page(request, "runs.html", runs=runs["items"], names=names, next_cursor=runs["next_cursor"])


@router.get("/{run_id}")
async def show(request: Request, run_id: str) -> Response:
    """Show one run: its progress and its result."""
    run = await need(request, f"/v1/runs/{run_id}")
    budget = await _budget(request, run["budget_id"])
    report = await ask(request, "GET", f"/v1/runs/{run_id}/report") if run["state"] == "succeeded" else None
    model = await _model(request, run)
    ledger = (report.body["ledger"] or {}) if report is not None and report.is_good else {}
    return page(
        request,
        "run.html",
        run=run,
        names=await dataset_names(request),
        certificate=ledger.get("certificate"),
        budget=budget,
        statement=report.body["statement"] if report is not None and report.is_good else None,
        model=model,
        form=None if model is None else form_of(model, {}),
        answer=None,
        prediction=None,
        under_way=UNDER_WAY,
        key=fresh_key(),
    )


@router.get("/{run_id}/progress")
async def progress(request: Request, run_id: str) -> Response:
    """Show the run's progress. The browser asks for it every second until the run ends, then for the whole page."""
    run = await need(request, f"/v1/runs/{run_id}", in_part=True)
    return part_of_what_goes_on(request, "run_progress.html", run["state"], run=run, under_way=UNDER_WAY)


@router.post("/{run_id}/cancel")
async def cancel(request: Request, run_id: str) -> Response:
    """Cancel the run. If it has started, its charge stands."""
    return await cancelled(request, f"/v1/runs/{run_id}/cancel", f"/dashboard/runs/{run_id}")


@router.get("/{run_id}/card")
async def card(request: Request, run_id: str) -> Response:
    """Return the privacy card as a document that can be kept, sent and printed."""
    return await relay(request, f"/v1/runs/{run_id}/report", {"format": "html"})


@router.get("/{run_id}/model")
async def model_file(request: Request, run_id: str) -> Response:
    """Return the model file, with everything that predictions need."""
    return await relay(request, f"/v1/runs/{run_id}/model", {"format": "npz"})


@router.post("/{run_id}/try")
async def try_model(request: Request, run_id: str) -> Response:
    """Predict one row, and show the form again with the result."""
    given = await read_form(request)
    run = await need(request, f"/v1/runs/{run_id}")
    model = await need(request, f"/v1/runs/{run_id}/model")
    form = form_of(model, given)
    if form is None:
        return RedirectResponse(f"/dashboard/runs/{run_id}", 303)
    answer = await ask(request, "POST", f"/v1/runs/{run_id}/predictions", body=body_of(model, given))
    return page(
        request,
        "try_model.html",
        status=answer.status,
        run=run,
        model=model,
        form=form.judged(answer),
        answer=answer,
        prediction=answer.body if answer.is_good else None,
    )


async def _model(request: Request, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the model that can be tried; None if there is none, or it is too large."""
    if not can_be_tried(run):
        return None
    answer = await ask(request, "GET", f"/v1/runs/{run['id']}/model")
    return answer.body if answer.is_good else None


async def _budget(request: Request, budget_id: str | None) -> dict[str, Any] | None:
    """Return the budget that pays for the run; None if there is none, or the reader may not see it."""
    if budget_id is None:
        return None
    answer = await ask(request, "GET", f"/v1/budgets/{budget_id}")
    return answer.body if answer.is_good else None


async def dataset_names(request: Request) -> dict[str, str]:
    """Return the names of the newest data sets by their ids; none if the reader may not see data sets."""
    answer = await ask(request, "GET", "/v1/datasets", query={"limit": f"{_NAMED}"})
    return {each["id"]: each["name"] for each in answer.body.get("items", ())}


def part_of_what_goes_on(request: Request, template: str, state: str, **values: Any) -> Response:
    """Return a part that asks for itself again while work is under way, and for the whole page when the work has
    ended."""
    response = page(request, template, **values)
    if state not in UNDER_WAY:
        response.headers["HX-Refresh"] = "true"
    return response


async def cancelled(request: Request, path: str, then: str) -> Response:
    """Request a cancellation under the idempotency key of the submitted form, and redirect to the page ``then``."""
    form = await read_form(request)
    answer = await ask(request, "POST", path, body={}, key=form.get("key", ""))
    return RedirectResponse(then, 303) if answer.is_good else problem_page(request, answer)
