"""Pages of data sets: what is declared about each, its versions, and what can be done with it. No page shows a row."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard.asking import ask
from app.dashboard.pages import need, page

router = APIRouter(prefix="/dashboard/datasets", include_in_schema=False)

#: The most items on one page of the list.
_SHOWN = 100
#: The number of columns that are shown; further ones are folded away.
_COLUMNS = 40


@router.get("")
async def index(request: Request, cursor: str | None = None) -> Response:
    """Show all data sets that the key may see, the bundled ones first."""
    found = await need(request, "/v1/datasets", _paged(cursor))
    return page(request, "datasets.html", datasets=found["items"], next_cursor=found["next_cursor"])


@router.get("/{dataset_id}")
async def show(request: Request, dataset_id: str, cursor: str | None = None) -> Response:
    """Show one data set as its owner declared it, and its versions."""
    dataset = await need(request, f"/v1/datasets/{dataset_id}")
    versions = await need(request, f"/v1/datasets/{dataset_id}/versions", _paged(cursor))
    return page(
        request,
        "dataset.html",
        dataset=dataset,
        budget=await _budget(request, dataset["budget_id"]),
        columns=dataset["columns"][:_COLUMNS],
        more_columns=dataset["columns"][_COLUMNS:],
        versions=versions["items"],
        next_cursor=versions["next_cursor"],
    )


async def _budget(request: Request, budget_id: str | None) -> dict[str, Any] | None:
    """Return the root budget that pays for its runs; None if there is none, or the reader may not see it."""
    if budget_id is None:
        return None
    answer = await ask(request, "GET", f"/v1/budgets/{budget_id}")
    return answer.body if answer.is_good else None


def _paged(cursor: str | None) -> dict[str, str]:
    return {"limit": f"{_SHOWN}", **({} if cursor is None else {"cursor": cursor})}
