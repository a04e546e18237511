"""The first page: a calibration form whose answer follows every change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard import calibration_charts, calibration_form, new_run
from app.dashboard.asking import Answer, ask
from app.dashboard.calibration_charts import Drawn
from app.dashboard.calibration_form import Form
from app.dashboard.pages import need, page, part_of
from app.dashboard.same_request import as_curl, as_python
from app.dashboard.wording import at_least, at_most, words

router = APIRouter(include_in_schema=False)

_TEMPLATES = {
    "page": "calibrate.html",
    "form": "calibrate_form_changed.html",
    "answer": "calibrate_answer_changed.html",
}
#: This event tells the charts to fetch themselves again.
_ANSWERED = {"HX-Trigger-After-Settle": "calibrated"}

RELATIONS = {
    "add_or_remove_one": "one record added or removed",
    "replace_one": "one record replaced",
    "replace_special": "one record replaced by a null record",
}


@dataclass(frozen=True)
class Tile:
    """A number that readers look for first."""

    name: str
    value: str
    note: str = ""


@router.get("/")
async def show(request: Request) -> Response:
    """Show the form and its answer; if htmx asks, only the part that changes."""
    algorithms = await need(request, "/v1/algorithms")
    # If the key may not read budgets, the form offers none.
    budgets = (await ask(request, "GET", "/v1/budgets", query={"limit": "200"})).body.get("items", [])
    form = calibration_form.read(request.query_params, algorithms["items"], budgets)
    answer = await ask(request, "POST", "/v1/calibrate", body=form.body())
    form = form.judged(answer)
    part = part_of(request, "calibration")
    response = page(
        request,
        _TEMPLATES[part],
        part=part,
        form=form,
        answer=answer,
        summary=_summary(form, answer),
        tiles=_tiles(answer.body) if answer.is_good else (),
        curl=as_curl(request, "/v1/calibrate", form.body()),
        python=as_python(request, "calibrate", form.body()),
        example=calibration_form.example_address(form.algorithm["name"]),
        charts=calibration_charts.CHARTS,
        over_bands=calibration_charts.error_over_bands(answer.body) if answer.is_good else None,
        start_run=new_run.address_from(form.body(), answer.body) if answer.is_good else None,
        budget=next((each for each in budgets if each["id"] == form.values.get("budget_id")), None),
    )
    if part != "page":
        response.headers.update({**_ANSWERED, "HX-Replace-Url": f"/?{form.address}"})
    return response


@router.get("/dashboard/calibrate/{name}")
async def chart(request: Request, name: str) -> Response:
    """Show one chart of a calibration."""
    algorithms = await need(request, "/v1/algorithms")
    form = calibration_form.read(request.query_params, algorithms["items"])
    answer = await ask(request, "POST", "/v1/calibrate", body=form.body())
    drawn = Drawn(None, "No chart, because there is no answer.")
    if answer.is_good and name in calibration_charts.CHARTS:
        drawn = await calibration_charts.CHARTS[name].draw(request, form.body(), answer.body)
    is_part = "hx-request" in request.headers
    template = "calibrate_chart.html" if is_part else "calibrate_chart_page.html"
    return page(request, template, drawn=drawn, address=form.address)


def _summary(form: Form, answer: Answer) -> str:
    """Return the answer in a sentence, which a screen reader says when it changes."""
    if not answer.is_good:
        return f"No answer: {form.refusal(answer)}"
    body = answer.body
    relation = RELATIONS[body["convention"]["neighboring_relation"]]
    steps = sum(event["count"] for event in body["events"])
    times = f" for {steps} steps" if steps > 1 else ""
    name, value = next(iter(body["solution"].items()))
    certified = achieved_in_words(body["achieved"])
    if name in body["achieved"]:  # Epsilon or delta was solved for, and the noise was given.
        return f"{certified[:1].upper()}{certified[1:]}{times}, {relation}."
    if name == "iterations":
        times = ""
    # Values are rounded up, because noise must not be too small; integers are not rounded.
    return f"{words(name).capitalize()} {written(value)}{times}: {certified}, {relation}."


def achieved_in_words(body: Mapping[str, Any]) -> str:
    """Return the certified guarantee in words."""
    name, value, given = _found_and_given(body)
    if not isinstance(value, Mapping):
        bound = f"at most {at_most(value)}"
    elif name == "bayes_risk":
        bound = f"at least {at_least(value['lower'])}"
    else:
        bound = f"at most {at_most(value['upper'])}"
    return " at ".join([f"{words(name)} {bound}", *(f"{words(each)} {at_most(body[each])}" for each in given)])


def _found_and_given(body: Mapping[str, Any]) -> tuple[str, Any, list[str]]:
    """Return the achieved interval or proved cost, and the numbers of the target, such as delta."""
    values = {name: value for name, value in body.items() if name not in ("method", "error_budget")}
    name = next((each for each, value in values.items() if isinstance(value, Mapping)), next(iter(values)))
    return name, values[name], [each for each in values if each != name]


def tile_of_the_guarantee(achieved: Mapping[str, Any]) -> Tile:
    """Return the tile of the certified guarantee."""
    found, value, given = _found_and_given(achieved)
    beside = "".join(f"at {words(each)} {at_most(achieved[each])}; " for each in given)
    if not isinstance(value, Mapping):
        return Tile(words(found), f"≤ {at_most(value)}", f"{beside}a proved cost")
    bound = f"≥ {at_least(value['lower'])}" if found == "bayes_risk" else f"≤ {at_most(value['upper'])}"
    within = f"proved within [{at_least(value['lower'])}, {at_most(value['upper'])}]"
    return Tile(words(found), bound, f"{beside}{within}")


def _tiles(body: Mapping[str, Any]) -> list[Tile]:
    solved_for, solution = next(iter(body["solution"].items()))
    found = _found_and_given(body["achieved"])[0]
    tiles = [] if solved_for == found else [Tile(words(solved_for), written(solution), _note(body["solution"]))]
    tiles.append(tile_of_the_guarantee(body["achieved"]))
    noise = body["noise"]
    if noise["stddev_on_mean"] is not None:
        tiles.append(Tile("noise on the mean gradient", written(noise["stddev_on_mean"]), "standard deviation"))
    steps = sum(event["count"] for event in body["events"])
    rate = body["convention"]["sampling_probability"]
    if steps > 1:
        tiles.append(Tile("steps", str(steps), "" if rate is None else f"each record with probability {at_most(rate)}"))
    return tiles


def _note(solution: Mapping[str, Any]) -> str:
    further = [f"{words(name)} {written(value)}" for name, value in list(solution.items())[1:]]
    return ", ".join(further) or ("noise on the sum, over C" if "noise_multiplier" in solution else "")


def written(value: Any, *, is_largest: bool = False) -> str:
    """Return the value that was found. Noise is rounded up, and a value that must not be exceeded is rounded down."""
    if isinstance(value, list):
        numbers = [at_most(each) for each in value]
        return numbers[0] if len(set(numbers)) == 1 else f"{numbers[0]} … {numbers[-1]}"
    if isinstance(value, int):
        return str(value)
    return at_least(value) if is_largest else at_most(value)
