"""Algorithms side by side for one problem: which apply, what their theorems promise, and the papers' tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard import compare_form
from app.dashboard.asking import Answer, ask
from app.dashboard.axes import Scale
from app.dashboard.calibration_form import address_of
from app.dashboard.calibration_form import number as number_of
from app.dashboard.charts import MOST_SERIES, Axis, Chart, Series, line_chart
from app.dashboard.compare_form import Form
from app.dashboard.pages import need, page, part_of
from app.dashboard.same_request import as_curl, as_python
from app.dashboard.wording import number

router = APIRouter(include_in_schema=False)

_PATH = "/dashboard/compare"
_SIMULATION = "/dashboard/compare/simulation"
_TABLES = "/v1/algorithms/compare"
#: The chart's data sizes, as multiples of the problem's.
_SIZES = (0.1, 0.3, 1.0, 3.0, 10.0)
_MEASURES = {
    "excess_population_risk": "excess population risk",
    "excess_empirical_risk": "excess empirical risk",
    "stationarity": "distance from a stationary point",
    "mean_squared_error": "squared error of the mean",
    "mean_error": "error of the mean",
}
_TEMPLATES = {
    "page": "compare.html",
    "form": "compare_form_changed.html",
    "answer": "compare_answer_changed.html",
}


@router.get(_PATH)
async def show(request: Request) -> Response:
    """Show the form of a problem with its answers; if htmx asks, only the part that changes."""
    algorithms, titles = await need(request, "/v1/algorithms"), await need(request, _TABLES)
    tables = {table["name"]: table["title"] for table in titles["tables"]}
    form = compare_form.read(request.query_params, algorithms["items"], tables)
    advice = await ask(request, "POST", "/v1/advise", body=form.problem())
    form = form.judged(advice)
    table = await ask(request, "GET", _TABLES, query=form.setting() | {"table": form.values["table"]})
    part = part_of(request, "problem")
    response = page(
        request,
        _TEMPLATES[part],
        part=part,
        form=form,
        advice=advice,
        table=table,
        chart=await _rates(request, form) if table.is_good else None,
        summary=_summary(form, advice),
        addresses=_addresses(advice),
        simulation=_beginning(form, advice),
        curl=as_curl(request, "/v1/advise", form.problem()),
        python=as_python(request, "advise", form.problem()),
    )
    if part != "page":
        response.headers["HX-Replace-Url"] = f"{_PATH}?{form.address}"
    return response


@router.get(_SIMULATION)
async def simulate(request: Request) -> Response:
    """Show the simulation as far as it has come. Each request runs one more algorithm, and htmx asks until the end.

    The service remembers what was simulated before, so that each answer runs only one algorithm.
    """
    query = dict(request.query_params)
    names = [name for name in query.pop("algorithms", "").split(",") if name]
    done = number_of(query.pop("done", "0"))
    algorithms, titles = await need(request, "/v1/algorithms", in_part=True), await need(request, _TABLES, in_part=True)
    form = compare_form.read(query, algorithms["items"], {each["name"]: each["title"] for each in titles["tables"]})
    known = {item["name"] for item in algorithms["items"]}
    names = [name for name in names if name in known]
    through = min(done + 1 if isinstance(done, int) and done >= 0 else 1, len(names))
    found: list[dict[str, Any]] = []
    for name in names[:through]:
        body = form.simulation([name])
        if body is None:
            break
        answer = await ask(request, "POST", "/v1/advise", body=body)
        if not answer.is_good:
            return page(request, "problem_part.html", problem=answer.body)
        found.append(answer.body["simulation"])
    return page(
        request,
        "compare_simulation.html",
        simulation=_simulation(form, names, through, found),
    )


def _beginning(form: Form, advice: Answer) -> dict[str, Any] | None:
    """Return the simulation before its first algorithm; None if no simulation was requested."""
    if not advice.is_good or not form.values["simulated"]:
        return None
    return _simulation(form, list(_addresses(advice)), 0, [])


def _simulation(form: Form, names: Sequence[str], done: int, found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ranked = [item for each in found for item in each["ranked"]]
    ranked.sort(key=lambda item: (item["excess"] is None, item["excess"] or 0.0))
    query = {"algorithms": ",".join(names), "done": f"{done}"}
    return {
        "done": done,
        "total": len(names),
        "address": f"{_SIMULATION}?{form.address}&{urlencode(query)}",
        "about": found[0] if found else None,
        "ranked": ranked,
        "others": [item for each in found for item in each["others"]],
    }


def _summary(form: Form, advice: Answer) -> str:
    if not advice.is_good:
        return f"No answer: {form.refusal(advice)}"
    apply = sum(len(group["ranked"]) for group in advice.body["measures"])
    best = [
        f"{group['ranked'][0]['algorithm']} has the least bound on the {_MEASURES[group['measure']]}"
        for group in advice.body["measures"]
        if group["measure"] and _promises(group["ranked"][0])
    ]
    others = len(advice.body["others"])
    return f"{apply} algorithms apply and {others} do not. {'; '.join(best)}".strip().rstrip(".") + "."


def _promises(item: Mapping[str, Any]) -> bool:
    return item["bound"] is not None and not item["bound"]["vacuous"]


def _addresses(advice: Answer) -> dict[str, str]:
    """Return the address of the calibration for each algorithm that applies."""
    groups = advice.body["measures"] if advice.is_good else []
    return {item["algorithm"]: address_of(item["request"]) for group in groups for item in group["ranked"]}


async def _rates(request: Request, form: Form) -> Chart | None:
    """Return a chart of how the rates in a table depend on the number of records, up to constants."""
    size = number_of(form.values["dataset_size"])
    if not isinstance(size, int):
        return None
    lines: dict[str, list[tuple[float, float | None]]] = {}
    table: Mapping[str, Any] = {}
    for records in sorted({max(2, round(size * factor)) for factor in _SIZES}):
        asked = form.setting() | {"table": form.values["table"], "dataset_size": f"{records}"}
        answer = await ask(request, "GET", _TABLES, query=asked)
        if not answer.is_good:
            return None
        [table] = answer.body["tables"]
        for name, value in _drawn(table):
            lines.setdefault(name, []).append((records, value))
    return line_chart(
        "Rates of the table over the number of records",
        f"{table['title']}: {table['measure']} with 1 for every constant. Lines that grow at the same rate are "
        f"parallel.",
        Axis("records", Scale.LOGARITHMIC, written=number),
        Axis(table["measure"], Scale.LOGARITHMIC, written=number),
        [Series(name, points) for name, points in lines.items()],
    )


def _drawn(table: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return the name and the value of each rate to draw: as many rates of a table as a chart has room for, and the
    lower bound."""
    methods: dict[str, list[Mapping[str, Any]]] = {}
    for row in table["rows"]:
        if row["utility"]["value"] is not None:
            methods.setdefault(row["utility"]["formula"], []).append(row)
    # Rates of algorithms that this service has come before others.
    rates = sorted(methods.values(), key=lambda rows: all(row["algorithm"] is None for row in rows))
    found = [(_name(rows), rows[0]["utility"]["value"]) for rows in rates[: MOST_SERIES - 1]]
    lower = table["lower_bound"]
    return found if lower is None or lower["value"] is None else [*found, ("lower bound", lower["value"])]


def _name(rows: Sequence[Mapping[str, Any]]) -> str:
    """Name the line of a rate after the first of its methods that this service has, else after its first method,
    without the citation."""
    first = next((row for row in rows if row["algorithm"]), rows[0])
    short = first["method"].partition(" (")[0]
    return short if len(rows) == 1 else f"{short} and {len(rows) - 1} more"
