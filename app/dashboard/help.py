"""The page that explains the words of the dashboard to newcomers, and what an epsilon means."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from accounting.best_guess import under_epsilon
from app.budgets.doubts import in_per_cent
from app.dashboard.pages import page

router = APIRouter(include_in_schema=False)

#: The epsilons that people ask about. They are shown at a delta so small that it changes no digit.
_EPSILONS = (0.1, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0)
_DELTA = 1e-6


@router.get("/dashboard/help")
def show(request: Request) -> Response:
    """Show the page. It asks the service nothing."""
    scale = [(f"{epsilon:g}", in_per_cent(under_epsilon(epsilon, _DELTA))) for epsilon in _EPSILONS]
    return page(request, "help.html", scale=scale)
