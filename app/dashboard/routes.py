"""The routes of all pages of the dashboard, and of its static files."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from app.dashboard import (
    algorithms,
    audits,
    budgets,
    calibrate,
    calibrate_events,
    compare,
    datasets,
    deployments,
    help,
    imports,
    keys,
    ledger,
    limit_requests,
    new_budget,
    new_dataset,
    new_run,
    new_version,
    provider_sign_in,
    run_sweeps,
    runs,
    sign_in,
)
from app.dashboard.asking import ask
from app.dashboard.pages import ASSETS, STATIC, Refused, problem_page
from app.web.pages import TEMPLATES

#: A new page is imported above and named here. A page at a fixed path must come before one whose path has a parameter.
PAGES = (
    calibrate_events,
    calibrate,
    algorithms,
    help,
    imports,
    compare,
    new_budget,
    deployments,
    budgets,
    limit_requests,
    ledger,
    new_dataset,
    new_version,
    datasets,
    new_run,
    runs,
    run_sweeps,
    audits,
    keys,
    provider_sign_in,
    sign_in,
)

#: Resolved once for the process, as they are the same in every application; one that includes routers does it anew.
ROUTES = APIRouter(include_in_schema=False)
for page in PAGES:
    ROUTES.include_router(page.router)


@ROUTES.get(f"{ASSETS}/colours.css")
def colours() -> FileResponse:
    """Return the colours, which the privacy card uses, too."""
    return FileResponse(TEMPLATES / "colours.css")


ROUTES.mount(ASSETS, StaticFiles(directory=STATIC), name="dashboard-assets")


@ROUTES.get("/dashboard/{_:path}")
async def nothing(request: Request) -> Response:
    """Show the service's answer for an unknown path as a page."""
    return problem_page(request, await ask(request, "GET", f"/v1{request.url.path}"))


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response


def add_dashboard(app: FastAPI) -> None:
    """Serve the pages and their files."""
    app.router.routes.extend(ROUTES.routes)
    app.add_exception_handler(Refused, _refused)
