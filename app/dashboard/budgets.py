"""Pages of budgets: what is left and how it changed, what was spent, and which reservations are held or overdue."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard.amounts import READ
from app.dashboard.asking import ask
from app.dashboard.axes import Axis, Scale
from app.dashboard.charts import Chart, Level, Series, line_chart
from app.dashboard.pages import need, page
from app.dashboard.wording import at_least, at_most

router = APIRouter(prefix="/dashboard/budgets", include_in_schema=False)

#: The most items on one page of the list.
_SHOWN = 100
#: The ways in which the charges of a budget can be grouped.
GROUPS = ("purpose", "principal", "mechanism", "month", "day")
#: The states by which reservations are filtered; the first stands for those that hold budget or have spent it.
STATES = ("", "pending", "started", "committed", "voided", "expired")


@dataclass(frozen=True)
class Row:
    """A budget in the list, and how many of the budgets above it are shown."""

    budget: Mapping[str, Any]
    depth: int


@router.get("")
async def index(request: Request, cursor: str | None = None) -> Response:
    """Show all budgets that the key may see, each under its parent."""
    found = await need(request, "/v1/budgets", _paged(cursor))
    return page(request, "budgets.html", rows=in_tree_order(found["items"]), next_cursor=found["next_cursor"])


@router.get("/{budget_id}")
async def show(request: Request, budget_id: str, delta: str = "") -> Response:
    """Show one budget. Its parts are loaded afterwards, so that a long history does not delay the remaining amount."""
    answer = await ask(request, "GET", f"/v1/budgets/{budget_id}", query={"delta": delta} if delta else None)
    budget = answer.body if answer.is_good else await need(request, f"/v1/budgets/{budget_id}")
    children = await ask(request, "GET", "/v1/budgets", query={"parent_id": budget_id, "limit": str(_SHOWN)})
    return page(
        request,
        "budget.html",
        budget=budget,
        delta=delta,
        faults=[] if answer.is_good else answer.faults(""),
        rows=in_tree_order(children.body.get("items", [])),
        groups=GROUPS,
        states=STATES,
    )


@router.get("/{budget_id}/burn-down")
async def burn_down(request: Request, budget_id: str) -> Response:
    """Return the remaining amount after each day with a commit."""
    budget = await need(request, f"/v1/budgets/{budget_id}", in_part=True)
    days: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        query = {"group_by": "day", **_paged(cursor)}
        spent = await need(request, f"/v1/budgets/{budget_id}/spending", query, in_part=True)
        days += spent["items"]
        cursor = spent["next_cursor"]
        if cursor is None:
            break
    return page(request, "budget_burn_down.html", chart=_burn_down(budget, days))


@router.get("/{budget_id}/spending")
async def spending(request: Request, budget_id: str, group_by: str = GROUPS[0], cursor: str | None = None) -> Response:
    """Show the charges, added up."""
    budget = await need(request, f"/v1/budgets/{budget_id}", in_part=True)
    query = {"group_by": group_by, **_paged(cursor)}
    spent = await need(request, f"/v1/budgets/{budget_id}/spending", query, in_part=True)
    return page(request, "budget_spending.html", budget=budget, group_by=group_by, first=cursor is None, **spent)


@router.get("/{budget_id}/spending.csv")
async def spending_table(request: Request, budget_id: str, group_by: str = GROUPS[0]) -> Response:
    """Return all charges, added up, as a table for a spreadsheet."""
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        query = {"group_by": group_by, **_paged(cursor)}
        spent = await need(request, f"/v1/budgets/{budget_id}/spending", query)
        rows += spent["items"]
        cursor = spent["next_cursor"]
        if cursor is None:
            break
    content = _as_csv(group_by, rows)
    named = {"Content-Disposition": f'attachment; filename="spending-{budget_id}.csv"'}
    return Response(content, media_type="text/csv", headers=named)


def _as_csv(group_by: str, rows: list[dict[str, Any]]) -> str:
    amounts = [name for name, value in rows[0]["amount"].items() if isinstance(value, int | float)] if rows else []
    names = ["name"] if group_by == "principal" else []
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow([group_by, *names, "charges", *amounts])
    for each in rows:
        typed = [each["key"], *([each["name"] or ""] if names else [])]
        # People type these texts, and a spreadsheet would read a text that begins like this as a formula.
        safe = [f"'{text}" if text.startswith(("=", "+", "-", "@")) else text for text in typed]
        table.writerow([*safe, each["charges"], *(each["amount"][name] for name in amounts)])
    return text.getvalue()


@router.get("/{budget_id}/reservations")
async def reservations(request: Request, budget_id: str, state: str = "", cursor: str | None = None) -> Response:
    """Show the reservations, newest first."""
    budget = await need(request, f"/v1/budgets/{budget_id}", in_part=True)
    query = {**({"overdue": "true"} if state == "overdue" else {"state": state} if state else {}), **_paged(cursor)}
    found = await need(request, f"/v1/budgets/{budget_id}/reservations", query, in_part=True)
    return page(request, "budget_reservations.html", budget=budget, state=state, **found)


@router.get("/{budget_id}/webhooks")
async def webhooks(request: Request, budget_id: str) -> Response:
    """Show the budget's webhooks and the outcome of the newest messages to readers who may see webhooks."""
    answer = await ask(request, "GET", f"/v1/budgets/{budget_id}/webhooks")
    found = answer.body["items"] if answer.is_good else []
    newest = {}
    for each in found:
        query = {"limit": "3"}
        newest[each["id"]] = await need(request, f"/v1/webhooks/{each['id']}/deliveries", query, in_part=True)
    return page(request, "budget_webhooks.html", answer=answer, webhooks=found, newest=newest)


def in_tree_order(budgets: list[dict[str, Any]]) -> list[Row]:
    """Put each budget after its parent, if the parent is in the list. Otherwise the order stays the same."""
    present = {budget["id"] for budget in budgets}
    under: dict[str | None, list[dict[str, Any]]] = {}
    for budget in budgets:
        above = budget["parent_id"]
        under.setdefault(above if above in present else None, []).append(budget)
    rows: list[Row] = []

    def add(above: str | None, depth: int) -> None:
        for budget in under.get(above, ()):
            rows.append(Row(budget, depth))
            add(budget["id"], depth + 1)

    add(None, 0)
    return rows


def _burn_down(budget: Mapping[str, Any], days: list[dict[str, Any]]) -> Chart | None:
    """Return a chart of the limit less what was committed; None if nothing was committed. All charges of a day are
    drawn at the time of the first.

    So the chart never shows more than was left.
    """
    if not days:
        return None
    field = READ[budget["filter"]["kind"]]
    limit = budget[field]["limit"]
    now = datetime.now(UTC).timestamp()
    points = [(_seconds(budget["created_at"]), limit)]
    points += [(_seconds(day["first_at"]), _less(limit, day["cumulative"][field])) for day in days]
    points.append((now, points[-1][1]))
    left = points[-1][1]
    return line_chart(
        "Left over time",
        f"The limit of {field} {at_most(limit)} less what was committed: {at_least(left)} now. "
        "All charges of a day are shown at the time of the first one.",
        Axis("time (UTC)", Scale.TIME),
        Axis(f"{field} left", from_zero=True, written=at_least),
        [Series("left", points, is_staircase=True)],
        levels=[Level("limit", limit)],
    )


def _less(limit: float, spent: float) -> float:
    """Return the difference of two decimals, so that 4 less 3.3 is 0.7."""
    return max(0.0, float(Decimal(str(limit)) - Decimal(str(spent))))


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _paged(cursor: str | None) -> dict[str, str]:
    return {"limit": str(_SHOWN), **({} if cursor is None else {"cursor": cursor})}
