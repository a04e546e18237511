"""The page on which a budget is opened: what it protects, its limit in the currency of one filter, and its parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from accounting.filters import FILTERS
from app.budgets.doubts import best_guess, doubts, same_name
from app.context import Context, CurrentContext
from app.dashboard.asking import Answer, ask
from app.dashboard.calibration_fields import CHOICES, label_of
from app.dashboard.calibration_form import number
from app.dashboard.fields import Field, FilledForm, Sections
from app.dashboard.forms import fresh_key, read_form
from app.dashboard.pages import page, part_of
from app.dashboard.wording import told_apart, words
from app.idempotency.records import find_one

router = APIRouter(include_in_schema=False)

PATH = "/dashboard/budgets/new"
_START: Mapping[str, str] = {"kind": "approximate_gaussian_dp", "neighboring_relation": "add_or_remove_one"}
#: The number of budgets that the form offers as parents.
_PARENTS = 200
#: The kinds of filter; the first leaves the choice to the service.
_KINDS: Mapping[str, str] = {
    "approximate_gaussian_dp": "Each plan costs about its tight epsilon. For training, and for everything else.",
    "renyi_dp": "Divergences add up at several orders, and the best one counts.",
    "zcdp": "Rho adds up. Gaussian noise on sampled batches costs as much as on all records.",
    "pure_dp": "Epsilon adds up. Gaussian noise has no cost in it, and is refused.",
    "approximate_dp": "Epsilon and delta add up. Each reservation is priced tightly, as a whole, at its own delta.",
    "gaussian_dp": "The squares of mu add up. Gaussian noise on sampled batches costs as much as on all records.",
}
_HINTS: Mapping[str, str] = {"delta": "Far less than one over the number of records."}
_UNIT = "What one record stands for, such as person. It is fixed for ever once the budget is open."
_NO_UNIT = "Say what one record stands for, such as person: that cannot be changed later."
_SENT_BEFORE = "This form was sent before, with other values, and has opened a budget. Sent again, it opens another."


class Form(FilledForm):
    """The fields of a budget, filled in."""

    def judged(self, answer: Answer) -> Self:
        """Return the form with the faults that the service found; a reused key is explained in words of this page."""
        if answer.body["code"] == "idempotency_key_reused":
            return replace(self, other_faults=(_SENT_BEFORE,))
        found = super().judged(answer)
        sections = tuple((legend, tuple(_in_own_words(each) for each in fields)) for legend, fields in found.sections)
        return replace(found, sections=sections)


def _in_own_words(field: Field) -> Field:
    is_missing = field.name == "privacy_unit" and field.faults and not field.value
    return replace(field, faults=(_NO_UNIT,)) if is_missing else field


@router.get(PATH)
async def show(request: Request) -> Response:
    """Show the form. When htmx asks for the amounts of another kind, what was typed stays."""
    form = read(request.query_params, await _budgets(request))
    template = "new_budget_form.html" if part_of(request, "new-budget") == "form" else "new_budget.html"
    return page(request, template, form=form, key=fresh_key(), answer=None, doubts=(), means=None)


@router.get(f"{PATH}/meaning")
async def meaning(request: Request) -> Response:
    """Explain the limit that is being typed, and list doubts about the budget."""
    body = body_of(request.query_params)
    found = _doubts(body, await _budgets(request))
    return page(
        request,
        "new_budget_meaning.html",
        doubts=found,
        means=best_guess(body["filter"], body.get("privacy_unit", "unit")),
    )


@router.post(PATH)
async def open_budget(request: Request, context: CurrentContext) -> Response:
    """Open the budget once, however often the form is sent, and lead to its page; or show the form with its faults.

    If there are doubts about the budget, they are shown first. The budget is opened when the reader confirms.
    """
    given = await read_form(request)
    key, body, budgets = given.get("key", ""), body_of(given), await _budgets(request)
    found = _doubts(body, budgets)
    if not ({"privacy_unit", "parent_id"} & body.keys()):
        # The service has a default unit, which this page does not offer. An empty unit is refused together with all
        # other faults.
        answer = await ask(request, "POST", "/v1/budgets", body=body | {"privacy_unit": ""}, key=key)
    elif found and not given.get("sure") and not await _was_carried_out(request, context, key):
        form = read(given, budgets)
        return page(request, "new_budget.html", status=422, form=form, key=key, answer=None, doubts=found, means=None)
    else:
        answer = await ask(request, "POST", "/v1/budgets", body=body, key=key)
    if answer.is_good:
        return RedirectResponse(f"/dashboard/budgets/{answer.body['id']}", 303)
    form = read(given, budgets).judged(answer)
    if answer.faults("/header"):
        key = fresh_key()
    return page(
        request, "new_budget.html", status=answer.status, form=form, key=key, answer=answer, doubts=(), means=None
    )


async def _was_carried_out(request: Request, context: Context, key: str) -> bool:
    """Return whether this form was carried out before. Then it may itself have opened the budget with the same name."""
    asked = (request.state.principal.id, key)
    return await run_in_threadpool(find_one, context.database, asked) is not None


def _doubts(body: Mapping[str, Any], budgets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return doubts about the budget: about its limit, and about another budget of the same name."""
    name = body.get("name")
    named = [same_name(name)] if name is not None and name in {each["name"] for each in budgets} else []
    return named + doubts(body["filter"])


def body_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the request that the fields make. Amounts are sent as they were typed, since the service reads decimals
    exactly."""
    values = _values(given)
    kind = values["kind"]
    body: dict[str, Any] = {
        name: values[name] for name in ("name", "neighboring_relation", "privacy_unit", "parent_id") if name in values
    }
    body["filter"] = {"kind": kind} | {name: values[name] for name in _limits(kind) if name in values}
    if "report_delta" in values:
        body["report_delta"] = number(values["report_delta"])
    return body


def read(given: Mapping[str, str], budgets: Sequence[Mapping[str, Any]]) -> Form:
    """Return the form with what was typed.

    Args:
        given: The values by the names of the fields.
        budgets: The possible parents, from `GET /v1/budgets`.
    """
    values = _values(given)
    kind = values["kind"]
    relations, kinds = CHOICES["neighboring_relation"], {each: words(each) for each in _KINDS}
    subject = (
        _typed(values, "name", "For people.", is_text=True),
        _typed(values, "privacy_unit", _UNIT, is_text=True),
        _chosen(values, "neighboring_relation", label_of("neighboring_relation"), relations),
    )
    limit = (
        _chosen(values, "kind", "Filter", kinds, _KINDS.get(kind, ""), within="/filter"),
        *(_typed(values, name, _HINTS.get(name, ""), within="/filter") for name in _limits(kind)),
    )
    reports = (_typed(values, "report_delta", "Reports state epsilon at this delta; may be left out."),)
    sections = (("What it protects", subject), ("Limit", limit), *_place(values, budgets), ("Reports", reports))
    return Form(sections=sections)


def _place(values: Mapping[str, str], budgets: Sequence[Mapping[str, Any]]) -> Sections:
    """Return the section that asks for a parent budget, if any budget could be the parent."""
    if not budgets and "parent_id" not in values:
        return ()
    hint = "It must have the same relation, unit and kind of filter. What is charged here is charged there, too."
    if len(budgets) == _PARENTS:
        hint += f" The newest {_PARENTS} are listed."
    return (("Place", (_chosen(values, "parent_id", "Under the budget", {"": "none", **told_apart(budgets)}, hint),)),)


def _limits(kind: str) -> tuple[str, ...]:
    """Return the amounts of a limit of this kind; none for an unknown kind."""
    return FILTERS[kind].limits if kind in FILTERS else ()


def _values(given: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the fields: typed values, or else the initial ones."""
    return {**_START, **{name: value.strip() for name, value in given.items() if value.strip()}}


def _typed(values: Mapping[str, str], name: str, hint: str = "", *, within: str = "", is_text: bool = False) -> Field:
    pointers = (f"{within}/{name}",)
    return Field(name, label_of(name), values.get(name, ""), hint, pointers=pointers, is_text=is_text)


def _chosen(
    values: Mapping[str, str],
    name: str,
    label: str,
    options: Mapping[str, str],
    hint: str = "",
    *,
    within: str = "",
) -> Field:
    """Return a choice. An unknown value is not replaced, so that the service says what is wrong with it."""
    value = values.get(name, "")
    choices = tuple(({value: value} | dict(options) if value not in options else options).items())
    return Field(name, label, value, hint, (("", choices),), (f"{within}/{name}",))


async def _budgets(request: Request) -> list[dict[str, Any]]:
    """Return the budgets that the key may read; none if it may not read budgets."""
    answer = await ask(request, "GET", "/v1/budgets", query={"limit": f"{_PARENTS}"})
    found: list[dict[str, Any]] = answer.body.get("items", [])
    return found
