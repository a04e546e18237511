"""The pages on which a data set is declared and uploaded. Each column is typed on a line of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard import uploads
from app.dashboard.asking import Answer, ask
from app.dashboard.calibration_form import number
from app.dashboard.fields import Field, FilledForm
from app.dashboard.forms import read_form
from app.dashboard.pages import page
from app.dashboard.wording import told_apart
from app.datasets.column_lines import columns_in
from app.datasets.schemas import DatasetMetadata

router = APIRouter(include_in_schema=False)

PATH = "/dashboard/datasets/new"
#: The number of budgets that the form offers.
_LISTED = 200
_COLUMNS = (
    "One to a line, in any order: “age: 0 to 120” for a number and its bounds, “smoker: no, yes” for a text and its "
    "values. What you declare is public: know it without looking at any single record. Numbers outside their bounds "
    "are clipped."
)
_WHO = {"private": "private: no row is ever shown", "public": "public: every row may be published"}


@router.get(PATH)
async def show(request: Request) -> Response:
    """Show the form, with the values from the address filled in."""
    return page(request, "new_dataset.html", form=read(request.query_params, await _roots(request)), answer=None)


@router.post(PATH)
async def declare(request: Request) -> Response:
    """Check the declaration and ask for the file; or show the form with its faults."""
    given = await read_form(request)
    roots = await _roots(request)
    body = body_of(given, roots)
    declared = uploads.checked(request, body, DatasetMetadata)
    if isinstance(declared, Answer):
        form = read(given, roots).judged(_at_lines(declared, body))
        return page(request, "new_dataset.html", status=declared.status, form=form, answer=declared)
    above, heading = PATH, f"Upload {declared.name}"
    return uploads.file_page(request, body, action="/dashboard/datasets", above=above, heading=heading)


@router.post("/dashboard/datasets")
async def upload(request: Request, key: str = "") -> Response:
    """Register the data set once, however often the file is sent."""
    return await uploads.received(request, "/v1/datasets", key)


def body_of(given: Mapping[str, str], roots: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the metadata that the fields make. Private data take the privacy unit of their budget."""
    values = {name: value for name, value in given.items() if value}
    body: dict[str, Any] = {
        name: values[name] for name in ("name", "label", "person_column", "budget_id") if name in values
    }
    body |= {
        name: whole_number(values[name]) for name in ("declared_size", "capacity", "rows_per_person") if name in values
    }
    if "held_out_share" in values:
        body["held_out_share"] = number(values["held_out_share"])
    units = {root["id"]: root["privacy_unit"] for root in roots}
    if body.get("budget_id") in units:
        body["privacy_unit"] = units[body["budget_id"]]
    return body | {
        "public": values.get("who") == "public",
        "columns": columns_in(values.get("columns", "").splitlines()),
    }


def whole_number(typed: str) -> int | str:
    """Read a whole number. Other text is returned unchanged, so that the schema says what is wrong with it."""
    return int(typed) if re.fullmatch(r"[0-9]{1,15}", typed) else typed


def read(given: Mapping[str, str], roots: Sequence[Mapping[str, Any]]) -> FilledForm:
    """Return the form with what was typed.

    Args:
        given: The values by the names of the fields.
        roots: The root budgets. Private data belong to one of them for ever.
    """

    def field(name: str, label: str, hint: str = "", *, is_text: bool = False, lines: int = 1) -> Field:
        pointers = (f"/{name}",)
        return Field(name, label, given.get(name, ""), hint, pointers=pointers, is_text=is_text, lines=lines)

    who = Field("who", "Who may see the rows", given.get("who", "private"), choices=(("", tuple(_WHO.items())),))
    budgets = {"": "none: the data are public", **told_apart(roots)}
    of_budget = "Every run on private data is charged to it, for ever."
    budget = Field(
        "budget_id",
        "Budget",
        given.get("budget_id", ""),
        of_budget,
        (("", tuple(budgets.items())),),
        ("/budget_id", "/public", "/privacy_unit"),
    )
    size = "A public number, near the true one. Plans are made with it."
    room = "The most rows that a file may have; an eighth more than declared if left out."
    held_out = (
        "Such as 0.2. A secret coin decides for each private row. Runs can then be scored on these rows, for a price."
    )
    person = "A column of ids, by which a person's rows are counted and deleted. It is never trained on."
    return FilledForm(
        sections=(
            ("What it is", (field("name", "Name", is_text=True), who, budget)),
            ("How large", (field("declared_size", "Rows, about", size), field("capacity", "Capacity", room))),
            ("Rows to evaluate on", (field("held_out_share", "Share that is held out of training", held_out),)),
            (
                "Columns",
                (
                    field("columns", "Columns", _COLUMNS, is_text=True, lines=8),
                    field("label", "Column that a model predicts", is_text=True),
                ),
            ),
            (
                "Persons with several rows",
                (
                    field("person_column", "Column with the person's id", person, is_text=True),
                    field("rows_per_person", "Rows per person at most"),
                ),
            ),
        )
    )


def _at_lines(answer: Answer, body: Mapping[str, Any]) -> Answer:
    """Return the form with the faults of all columns at the field in which columns are typed."""
    faults = [_at_its_line(fault, body["columns"]) for fault in answer.body["errors"]]
    return replace(answer, body=answer.body | {"errors": faults})


def _at_its_line(fault: Mapping[str, Any], columns: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    within = re.match(r"/columns/([0-9]+)", fault["pointer"])
    if within is None:
        return fault
    column = columns[int(within[1])]
    name, detail = column["name"] or "a line without a name", fault["detail"]
    if not column.get("categories", True):
        detail = f"Which values does it have? Write “{name}: 0 to 10” or “{name}: no, yes”."
    return {**fault, "pointer": "/columns", "detail": f"{name}: {detail}"}


async def _roots(request: Request) -> list[dict[str, Any]]:
    """Return the root budgets that the key may read; none if it may not read budgets."""
    answer = await ask(request, "GET", "/v1/budgets", query={"limit": f"{_LISTED}"})
    return [each for each in answer.body.get("items", []) if each["parent_id"] is None]
