"""The page that solves for one field in a list of events, from any pipeline, so that the events meet a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard import events_form
from app.dashboard.asking import Answer, ask
from app.dashboard.calibrate import RELATIONS, Tile, achieved_in_words, tile_of_the_guarantee, written
from app.dashboard.events_form import Form
from app.dashboard.pages import page, part_of
from app.dashboard.same_request import as_curl, as_python
from app.dashboard.wording import words

router = APIRouter(include_in_schema=False)

_PATH, _ASKED = "/dashboard/calibrate/events", "/v1/calibrate/events"
_TEMPLATES = {
    "page": "calibrate_events.html",
    "form": "calibrate_events_form_changed.html",
    "answer": "calibrate_events_answer_changed.html",
}


@router.get(_PATH)
async def show(request: Request) -> Response:
    """Show the form and its answer; if htmx asks, only the part that changes."""
    form = events_form.read(request.query_params)
    answer = await ask(request, "POST", _ASKED, body=form.body())
    form = form.judged(answer)
    part = part_of(request, "list")
    response = page(
        request,
        _TEMPLATES[part],
        part=part,
        form=form,
        answer=answer,
        summary=_summary(form, answer),
        tiles=_tiles(answer.body) if answer.is_good else (),
        curl=as_curl(request, _ASKED, form.body()),
        python=as_python(request, "calibrate_events", form.body()),
    )
    if part != "page":
        response.headers["HX-Replace-Url"] = f"{_PATH}?{form.address}"
    return response


def _summary(form: Form, answer: Answer) -> str:
    """Return the answer in a sentence, which a screen reader says when it changes."""
    if not answer.is_good:
        return f"No answer: {form.refusal(answer)}"
    body = answer.body
    relation = RELATIONS[body["convention"]["neighboring_relation"]]
    found = f"{words(body['solve_for']).capitalize()} {_value(body)}"
    return f"{found}: {achieved_in_words(body['achieved'])}, {relation}."


def _value(body: Mapping[str, Any]) -> str:
    """Return the value that was found. Integers stay unchanged, noise is rounded up, and a probability is rounded
    down."""
    if body["solve_for"] in ("count", "batch_size"):
        return f"{body['value']:.0f}"
    return written(body["value"], is_largest=body["solve_for"] == "sampling_probability")


def _tiles(body: Mapping[str, Any]) -> list[Tile]:
    extreme = {True: "none beyond it meets the target", False: "certified; a value beyond it may also meet the target"}
    tiles = [Tile(words(body["solve_for"]), _value(body), extreme[body["is_extreme"]])]
    tiles.append(tile_of_the_guarantee(body["achieved"]))
    if body["next"] is not None:
        tiles.append(
            Tile(
                f"{words(body['solve_for'])} {body['next']['value']}",
                "misses",
                achieved_in_words(body["next"]["achieved"]),
            )
        )
    steps = sum(event["count"] for event in body["events"])
    return [*tiles, Tile("steps", f"{steps}")] if steps > 1 else tiles
