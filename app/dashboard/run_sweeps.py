"""Pages of sweeps of runs: their cells as a table and as a heat map, or the best of a secret number of trials."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard.asking import relay
from app.dashboard.forms import fresh_key
from app.dashboard.pages import need, page
from app.dashboard.runs import UNDER_WAY, cancelled, dataset_names, part_of_what_goes_on

router = APIRouter(prefix="/dashboard/run-sweeps", include_in_schema=False)

_SHOWN = 50


@router.get("")
async def index(request: Request, cursor: str | None = None) -> Response:
    """Show all sweeps that the key may see, newest first."""
    query = {"limit": str(_SHOWN), **({} if cursor is None else {"cursor": cursor})}
    sweeps = await need(request, "/v1/run-sweeps", query)
    names = await dataset_names(request)
    return page(request, "run_sweeps.html", sweeps=sweeps["items"], names=names, next_cursor=sweeps["next_cursor"])


@router.get("/{sweep_id}")
async def show(request: Request, sweep_id: str) -> Response:
    """Show one sweep."""
    sweep = await need(request, f"/v1/run-sweeps/{sweep_id}")
    return page(request, "run_sweep.html", key=fresh_key(), names=await dataset_names(request), **_table(sweep))


@router.get("/{sweep_id}/cells")
async def cells(request: Request, sweep_id: str) -> Response:
    """Show the table of its cells. The browser asks for it every two seconds until the sweep ends, then for the whole
    page."""
    sweep = await need(request, f"/v1/run-sweeps/{sweep_id}", in_part=True)
    return part_of_what_goes_on(request, "run_sweep_cells.html", sweep["state"], **_table(sweep))


@router.post("/{sweep_id}/cancel")
async def cancel(request: Request, sweep_id: str) -> Response:
    """Stop the runs that have not ended. Runs that have started stay charged."""
    return await cancelled(request, f"/v1/run-sweeps/{sweep_id}/cancel", f"/dashboard/run-sweeps/{sweep_id}")


@router.get("/{sweep_id}/heat-map.svg")
async def heat_map(request: Request, sweep_id: str) -> Response:
    """Return the scores as a picture."""
    return await relay(request, f"/v1/run-sweeps/{sweep_id}/heat-map", {})


def _table(sweep: dict[str, Any]) -> dict[str, Any]:
    """Return what the page and its part show: the sweep, whether it is still running, and whether there is a map."""
    scored = [cell for cell in sweep["cells"] if cell["metrics"]]
    return {"sweep": sweep, "is_under_way": sweep["state"] in UNDER_WAY, "has_map": bool(scored)}
