"""The page for a pasted call of another library: what it truly costs, what the library claims, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard import events_form
from app.dashboard.asking import Answer, ask
from app.dashboard.calibrate import RELATIONS, Tile
from app.dashboard.calibration_fields import CHOICES
from app.dashboard.calibration_form import number
from app.dashboard.fields import Field, FilledForm
from app.dashboard.pages import page, part_of
from app.dashboard.same_request import as_curl, as_python, as_reservation
from app.dashboard.wording import at_least, at_most

router = APIRouter(include_in_schema=False)

_PATH, _ASKED = "/dashboard/import", "/v1/import"
_TEMPLATES = {"page": "import.html", "form": "import_form_changed.html", "answer": "import_answer_changed.html"}
#: The form's values when it first appears.
_START: Mapping[str, str] = {
    "code": "privacy_engine = PrivacyEngine()\n"
    "model, optimizer, loader = privacy_engine.make_private(\n"
    "    module=model, optimizer=optimizer, data_loader=loader,\n"
    "    noise_multiplier=1.1, max_grad_norm=1.0, poisson_sampling=False)",
    "dataset_size": "60000",
    "batch_size": "600",
    "epochs": "10",
    "delta": "1e-5",
}
_NUMBERS = {
    "dataset_size": ("Records", "A public number."),
    "batch_size": ("Batch size", ""),
    "epochs": ("Epochs", "Passes over the data."),
    "steps": ("Steps", "In place of epochs."),
    "noise_multiplier": (
        "Noise multiplier",
        "The noise that the library found, if the call lets it search for the noise.",
    ),
    "delta": ("Delta", ""),
}
_BATCHES = (
    ("", "as the call says"),
    ("poisson", "Poisson: each record by itself"),
    ("shuffled", "cut from a shuffled pass"),
)
_LIBRARY_SAYS = {"below": "too little", "within": "the same", "above": "more than is needed"}


class Form(FilledForm):
    """The call, and the facts that it does not state."""

    @property
    def values(self) -> dict[str, str]:
        """Return the values that are filled in, by the fields' names."""
        return {each.name: each.value for each in self.fields if each.value}

    @property
    def address(self) -> str:
        """Return the state as parameters of an address."""
        return urlencode({"code": "", **self.values})

    def body(self) -> dict[str, Any]:
        """Return the body of `POST /v1/import`. Text that is not a number is sent unchanged, and the service refuses it
        at its field."""
        given = self.values
        numbers = {name: number(given[name]) for name in _NUMBERS if name in given}
        source: dict[str, Any] = {"kind": "call", "code": given.get("code", "")}
        beside: dict[str, Any] = {name: numbers.pop(name) for name in ("delta",) if name in numbers}
        source |= numbers | {name: given[name] for name in ("batches",) if name in given}
        beside |= {name: given[name] for name in ("neighboring_relation",) if name in given}
        return {"source": source, **beside}


def read(query: Mapping[str, str]) -> Form:
    """Read the form from an address.

    Args:
        query: The address's parameters. Without a call, the form shows the example.
    """
    given = query if "code" in query else _START
    code = Field(
        "code",
        "Your call",
        given.get("code", "").replace("\r\n", "\n"),
        "The call as in your script, with the assignments of its numbers. It is read, and never run.",
        (),
        ("/source/code", "/source"),
        is_text=True,
        lines=9,
    )
    numbers = [
        Field(
            name,
            label,
            given.get(name, "").strip()[:100],
            hint,
            (),
            (f"/{name}" if name == "delta" else f"/source/{name}",),
        )
        for name, (label, hint) in _NUMBERS.items()
    ]
    relations = (("", "the library's own"), *CHOICES["neighboring_relation"].items())
    return Form(
        sections=(
            ("Call", (code,)),
            ("What it does not say", tuple(numbers)),
            (
                "What really happens",
                (
                    _choice(given, "batches", "Batches", _BATCHES, "/source/batches"),
                    _choice(given, "neighboring_relation", "Neighbours", relations, "/neighboring_relation"),
                ),
            ),
        )
    )


def _choice(
    given: Mapping[str, str], name: str, label: str, options: tuple[tuple[str, str], ...], pointer: str
) -> Field:
    value = given.get(name, "")
    chosen = value if any(value == each for each, _ in options) else ""
    return Field(name, label, chosen, "", (("", options),), (pointer,))


@router.get(_PATH)
async def show(request: Request) -> Response:
    """Show the form and its answer; if htmx asks, only the part that changes."""
    form = read(request.query_params)
    answer = await ask(request, "POST", _ASKED, body=form.body())
    form = form.judged(answer)
    part = part_of(request, "call")
    response = page(
        request,
        _TEMPLATES[part],
        part=part,
        form=form,
        answer=answer,
        summary=_summary(form, answer),
        tiles=_tiles(answer.body) if answer.is_good else (),
        calibration=_calibration(answer.body) if answer.is_good else None,
        reservation=as_reservation(request, answer.body["events"]) if answer.is_good else "",
        curl=as_curl(request, _ASKED, form.body()),
        python=as_python(request, "import_call", _arguments(form.body())),
    )
    if part != "page":
        response.headers["HX-Replace-Url"] = f"{_PATH}?{form.address}"
    return response


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request as arguments of the client's method."""
    source = {name: value for name, value in body["source"].items() if name != "kind"}
    return source | {name: value for name, value in body.items() if name != "source"}


def _summary(form: Form, answer: Answer) -> str:
    """Return the answer in a sentence or two, which a screen reader says when it changes."""
    if not answer.is_good:
        return f"No answer yet: {form.refusal(answer)}"
    body = answer.body
    relation = RELATIONS[body["convention"]["neighboring_relation"]]
    cost = (
        f"It costs epsilon at most {at_most(body['epsilon']['upper'])} at delta {at_most(body['delta'])}, {relation}."
    )
    reported = body["reported"]
    if reported["epsilon"] is None:
        return f"{cost} {reported['library']} has no number for it."
    return (
        f"{cost} {reported['library']} would say {at_most(reported['epsilon'])}, which is "
        f"{_LIBRARY_SAYS[reported['position']]}."
    )


def _tiles(body: Mapping[str, Any]) -> list[Tile]:
    interval, reported = body["epsilon"], body["reported"]
    within = f"proved within [{at_least(interval['lower'])}, {at_most(interval['upper'])}]"
    tiles = [Tile("epsilon", f"≤ {at_most(interval['upper'])}", f"at delta {at_most(body['delta'])}; {within}")]
    says = "no number" if reported["epsilon"] is None else at_most(reported["epsilon"])
    position = "" if reported["position"] is None else _LIBRARY_SAYS[reported["position"]]
    tiles.append(Tile(f"{reported['library']} says", says, f"{reported['accountant']}; {position}".strip("; ")))
    if body["call"]["target_epsilon"] is not None:
        tiles.append(Tile("the call asks for", f"≤ {at_most(body['call']['target_epsilon'])}"))
    return [*tiles, Tile("steps", f"{sum(event['count'] for event in body['events'])}")]


def _calibration(body: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the address of a calibration of the same steps, and its epsilon, which was requested or claimed."""
    call, reported = body["call"], body["reported"]
    epsilon = call["target_epsilon"] or reported["epsilon"]
    if epsilon is None:
        return None
    wanted = f"{epsilon:.4g}"
    query = events_form.query_for(body["events"], body["convention"]["neighboring_relation"], wanted, body["delta"])
    return None if query is None else (f"/dashboard/calibrate/events?{query}", wanted)
