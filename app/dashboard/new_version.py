"""The pages on which a new version of a data set is declared and uploaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from app.dashboard import uploads
from app.dashboard.asking import Answer
from app.dashboard.fields import Field, FilledForm
from app.dashboard.forms import read_form
from app.dashboard.new_dataset import whole_number
from app.dashboard.pages import need, page
from app.datasets.schemas import VersionMetadata
from app.tables.states import Change

router = APIRouter(prefix="/dashboard/datasets", include_in_schema=False)

_ERASE = {"no": "stay", "yes": "are removed for good"}


@router.get("/{dataset_id}/versions/new")
async def show(request: Request, dataset_id: str) -> Response:
    """Show the form."""
    dataset = await need(request, f"/v1/datasets/{dataset_id}")
    return page(request, "new_version.html", dataset=dataset, form=read({}), answer=None)


@router.post("/{dataset_id}/versions/new")
async def declare(request: Request, dataset_id: str) -> Response:
    """Check the declaration and ask for the file; or show the form with its faults."""
    dataset = await need(request, f"/v1/datasets/{dataset_id}")
    given = await read_form(request)
    body = body_of(given)
    declared = uploads.checked(request, body, VersionMetadata)
    if isinstance(declared, Answer):
        form = read(given).judged(declared)
        return page(request, "new_version.html", status=declared.status, dataset=dataset, form=form, answer=declared)
    at = f"/dashboard/datasets/{dataset_id}"
    heading = f"Upload another version of {dataset['name']}"
    return uploads.file_page(request, body, action=f"{at}/versions", above=f"{at}/versions/new", heading=heading)


@router.post("/{dataset_id}/versions")
async def upload(request: Request, dataset_id: str, key: str = "") -> Response:
    """Add the version once, however often the file is sent."""
    return await uploads.received(request, f"/v1/datasets/{dataset_id}/versions", key)


def body_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata that the fields make. Empty fields are left out."""
    body: dict[str, Any] = {name: given[name] for name in ("change", "reason") if given.get(name)}
    body |= {name: whole_number(given[name]) for name in ("declared_size", "capacity") if given.get(name)}
    return body | {"erase_earlier": given.get("erase_earlier") == "yes"}


def read(given: Mapping[str, str]) -> FilledForm:
    """Return the form with what was typed."""

    def field(name: str, label: str, hint: str, *, is_text: bool = False) -> Field:
        return Field(name, label, given.get(name, ""), hint, pointers=(f"/{name}",), is_text=is_text)

    def choice(name: str, label: str, options: Mapping[str, str], hint: str) -> Field:
        value = given.get(name, next(iter(options)))
        return Field(name, label, value, hint, (("", tuple(options.items())),), (f"/{name}",))

    changes = {str(each): str(each) for each in Change}
    told = "Everybody who sees the data set sees this; nobody checks it. “replaced” leaves it open."
    erase = "Remove them if a person was deleted. Runs that wait for an earlier version then fail without a charge."
    return FilledForm(
        sections=(
            (
                "What changed",
                (
                    choice("change", "Change", changes, told),
                    field("reason", "Why", "For every later reader. It names no person.", is_text=True),
                ),
            ),
            (
                "How large",
                (
                    field("declared_size", "Rows, about", "As before if left out."),
                    field("capacity", "Capacity", "As before, or an eighth more than the rows, if left out."),
                ),
            ),
            ("Earlier versions", (choice("erase_earlier", "Their rows", _ERASE, erase),)),
        )
    )
