"""The algorithms in families, each with its theorem, its assumptions, and the known errors of its paper."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard.calibration_form import by_paper, example_address
from app.dashboard.pages import need, page

router = APIRouter(include_in_schema=False)


@router.get("/dashboard/algorithms")
async def index(request: Request) -> Response:
    """Show all algorithms, by the papers that they come from."""
    algorithms = await need(request, "/v1/algorithms")
    return page(request, "algorithms.html", families=by_paper(algorithms["items"]).items())


@router.get("/dashboard/algorithms/{name}")
async def show(request: Request, name: str) -> Response:
    """Show the page of an algorithm."""
    algorithms = await need(request, "/v1/algorithms")
    found = next((each for each in algorithms["items"] if each["name"] == name), None)
    if found is None:
        found = await need(request, f"/v1/algorithms/{quote(name, safe='')}")
    return page(request, "algorithm.html", algorithm=found, example=example_address(name))
