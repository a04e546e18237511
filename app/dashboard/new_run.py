"""The page on which a run is started. It asks for data, model, target and budget; the service chooses the rest.

A calibration can lead here with its values; then only the data set, the model and the budget must be chosen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from app.algorithms.targets import AlgorithmChoice
from app.dashboard.asking import Answer, ask
from app.dashboard.calibration_fields import label_of
from app.dashboard.calibration_form import number
from app.dashboard.fields import Field, FilledForm
from app.dashboard.forms import fresh_key, read_form
from app.dashboard.pages import page
from app.dashboard.wording import told_apart, words
from trainer.models import MODELS

router = APIRouter(include_in_schema=False)

PATH = "/dashboard/runs/new"
#: The form's values when it first appears. A field that the reader empties stays empty.
_START: Mapping[str, str] = {"epsilon": "3", "delta": "1e-5"}
#: The number of data sets and of budgets offered in the form.
_LISTED = 200


@dataclass(frozen=True)
class _Lists:
    """The choices: the data sets and budgets that the key may see, and the algorithms."""

    datasets: Sequence[Mapping[str, Any]]
    budgets: Sequence[Mapping[str, Any]]
    algorithms: Sequence[str]


@router.get(PATH)
async def show(request: Request) -> Response:
    """Show the form, with the values from the address filled in."""
    form = read({**_START, **request.query_params}, await _lists(request))
    return _page(request, request.query_params, form, fresh_key())


@router.post(PATH)
async def start(request: Request) -> Response:
    """Queue the run once, however often the form is sent, and lead to its page; or show the form with its faults."""
    given = await read_form(request)
    key = given.get("key", "")
    body = body_of(given)
    body |= {} if "budget_id" in body else await _own_budget(request, body)
    answer = await ask(request, "POST", "/v1/runs", body=body, key=key)
    if answer.is_good:
        return RedirectResponse(f"/dashboard/runs/{answer.body['id']}", 303)
    form = read(given, await _lists(request)).judged(answer)
    if answer.body["code"] == "budget_exceeded":
        form = replace(form, other_faults=(_exceeded(answer.body),))
    if answer.faults("/header"):
        key = fresh_key()
    return _page(request, given, form, key, answer)


def address_from(request: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
    """Return the address of the page with a calibration in it; None if a run would solve for something else.

    Args:
        request: The request that was calibrated.
        answer: The service's answer to that request.
    """
    solved_for = request.get("solve_for", "noise_multiplier")
    if solved_for not in ("noise_multiplier", "iterations", "batch_size"):
        return None
    found = {} if solved_for == "noise_multiplier" else {solved_for: answer["solution"][solved_for]}
    # Sizes are taken from the data set, and the noise is computed from the target.
    kept = {name: value for name, value in request.items() if name in AlgorithmChoice.model_fields}
    return f"{PATH}?{urlencode({'calibration': json.dumps(kept | found)})}"


def calibration_in(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the calibration that the page was opened with; empty if there is none."""
    try:
        found = json.loads(given.get("calibration", ""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def body_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that the fields make. Empty fields are left out."""
    values = _values(given)
    evaluation: dict[str, Any] = {"evaluation": {}} if values.get("evaluate") == "yes" else {}
    if "test_dataset_id" in values:
        evaluation["test_dataset_id"] = values["test_dataset_id"]
    if calibration := calibration_in(given):
        chosen = {name: values[name] for name in ("dataset_id", "budget_id") if name in values}
        return calibration | chosen | {"model": _model(values)} | evaluation
    body: dict[str, Any] = {name: values[name] for name in ("dataset_id", "budget_id", "algorithm") if name in values}
    target = {name: number(values[name]) for name in ("epsilon", "delta") if name in values}
    return body | evaluation | {"model": _model(values), "target": {"kind": "approximate_dp"} | target}


def _model(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the model, with the shares of its classes if they are given: a line for each class, such as
    ``yes=0.1``."""
    found: dict[str, Any] = {"kind": values["model"]} if "model" in values else {}
    if "class_priors" in values:
        parts = (line.rpartition("=") for line in values["class_priors"].splitlines() if line.strip())
        # A line in any other form is passed on as typed; the service refuses it and points to it.
        found["class_priors"] = {
            (name if sign else share).strip(): number(share.strip() if sign else "") for name, sign, share in parts
        }
    return found


def read(given: Mapping[str, str], lists: _Lists) -> FilledForm:
    """Return the form with what was typed."""
    values = _values(given)
    data = (
        _chosen(values, "dataset_id", "Data set", told_apart(lists.datasets), "/dataset_id"),
        _chosen(values, "model", "Model", {kind: words(kind) for kind in MODELS}, "/model/kind"),
        Field(
            "class_priors",
            "Class shares",
            values.get("class_priors", ""),
            "A line for each category of the label, such as yes=0.1. Classes are weighted so that all weigh the same. "
            "Shares are public: never count them in private rows. Left out, all records weigh the same.",
            pointers=("/model/class_priors",),
            is_text=True,
            lines=3,
        ),
    )
    target = tuple(
        Field(name, label_of(name), values.get(name, ""), hint, pointers=(f"/target/{name}",))
        for name, hint in (("epsilon", ""), ("delta", "Far less than one over the number of records."))
    )
    calibration = calibration_in(given)
    can_pay, why = _can_pay(lists.budgets, calibration)
    budgets = {"": "that of the data set, if its rows are private", **told_apart(can_pay)}
    evaluations = {"": "no", "yes": "on the rows that the data set holds out"}
    paid = "A tenth of the target pays for it. The data set must have been registered with a held-out share."
    public = {"": "no", **told_apart([each for each in lists.datasets if each["public"]])}
    free = "Costs no privacy. The rows need the columns of the data set."
    told = (
        "What is told",
        (
            _chosen(values, "evaluate", "Evaluation", evaluations, "/evaluation", paid),
            _chosen(values, "test_dataset_id", "Scored on public rows", public, "/test_dataset_id", free),
        ),
    )
    pays = ("What pays", (_chosen(values, "budget_id", "Budget", budgets, "/budget_id", why),))
    if calibration:
        return FilledForm(sections=(("What is trained", data), told, pays))
    algorithms = {"": "chosen for you", **{name: name for name in lists.algorithms}}
    hint = "Batches, steps, clip threshold, step size and averaging are chosen with it, and shown with their reasons."
    return FilledForm(
        sections=(
            ("What is trained", data),
            ("What is promised", target),
            told,
            pays,
            ("How", (_chosen(values, "algorithm", "Algorithm", algorithms, "/algorithm", hint),)),
        )
    )


def _can_pay(
    budgets: Sequence[Mapping[str, Any]], calibration: Mapping[str, Any]
) -> tuple[Sequence[Mapping[str, Any]], str]:
    """Return the budgets that can pay for a calibrated target, and a hint if some cannot: an approximate_dp budget
    prices a run at the delta of its target."""
    target = calibration.get("target")
    if not isinstance(target, dict) or "delta" in target:
        return budgets, ""
    able = [each for each in budgets if each["filter"]["kind"] != "approximate_dp"]
    hint = "Budgets of the kind approximate_dp are left out: they need a target with a delta."
    return able, hint if len(able) < len(budgets) else ""


def _values(given: Mapping[str, str]) -> dict[str, str]:
    """Return the fields that are filled in."""
    return {name: value.strip() for name, value in given.items() if value.strip()}


def _chosen(
    values: Mapping[str, str], name: str, label: str, options: Mapping[str, str], pointer: str, hint: str = ""
) -> Field:
    """Return a choice. An unknown value is not replaced, so that the service says what is wrong with it."""
    value = values.get(name, "")
    known = {value: value} | dict(options) if value and value not in options else options
    return Field(name, label, value, hint, (("", tuple(known.items())),), (pointer,))


async def _own_budget(request: Request, body: Mapping[str, Any]) -> dict[str, str]:
    """Return the root budget of the data set as the one that pays; nothing if its rows are public."""
    if "dataset_id" not in body:
        return {}
    found = await ask(request, "GET", f"/v1/datasets/{body['dataset_id']}")
    budget_id = found.body.get("budget_id") if found.is_good else None
    return {} if budget_id is None else {"budget_id": budget_id}


def _exceeded(problem: Mapping[str, Any]) -> str:
    """Say why the budget does not admit the run, and what would help. The rest of the service's sentence names fields
    of its interface."""
    words = str(problem["detail"]).partition("; largest_count_that_fits")[0]
    fits = problem.get("largest_count_that_fits")
    said = "" if fits is None else f" {fits} of its steps would fit."
    return f"{words[:1].upper()}{words[1:]}.{said} Ask for a smaller epsilon here, or for another limit on its page."


def _page(
    request: Request, given: Mapping[str, str], form: FilledForm, key: str, answer: Answer | None = None
) -> Response:
    calibration = calibration_in(given)
    return page(
        request,
        "new_run.html",
        status=200 if answer is None else answer.status,
        form=form,
        key=key,
        answer=answer,
        calibration=calibration,
        calibration_text=json.dumps(calibration) if calibration else "",
    )


async def _lists(request: Request) -> _Lists:
    """Ask for the choices that the key may read. A list that it may not read is empty."""
    limit = {"limit": f"{_LISTED}"}
    datasets = await ask(request, "GET", "/v1/datasets", query=limit)
    budgets = await ask(request, "GET", "/v1/budgets", query=limit)
    algorithms = await ask(request, "GET", "/v1/algorithms")
    names = [each["name"] for each in algorithms.body.get("items", ())]
    return _Lists(datasets.body.get("items", []), budgets.body.get("items", []), names)
