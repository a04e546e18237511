"""Budgets and data sets by name. A call that takes an id also takes a name, if the key reaches the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from epsilond_client.answers import Budget, Dataset
from epsilond_client.transport import Resource, Transport, identifier, path_to

#: An id, a name, or the budget itself.
BudgetId = str | Budget
DatasetId = str | Dataset

#: The number of items of a list that are fetched at once: the longest page of the service.
_PAGE = 200
_SUGGESTIONS = 3


@dataclass(frozen=True)
class _Kind:
    """A kind of object that has a name.

    Attributes:
        noun: The noun in messages.
        prefix: The beginning of its ids. Text that begins like this is taken as an id and not looked up.
        path: The path of the list.
        answer: The class of its items.
        hint: The call that lists them.
    """

    noun: str
    prefix: str
    path: str
    answer: type[Budget] | type[Dataset]
    hint: str

    def id_of(self, http: Transport, given: str | Budget | Dataset) -> str:
        if not isinstance(given, str) or given.startswith(self.prefix) or not given:
            return identifier(given)
        all_of_them: list[Budget | Dataset] = list(http.pages(self.path, self.answer, _PAGE))
        found = [each for each in all_of_them if each.name == given]
        if len(found) == 1:
            return found[0].id
        if found:
            places = ", ".join(f"{each.id}{_place(each)}" for each in found)
            raise ValueError(
                f"{len(found)} {self.noun}s that this key reaches have the name {given!r}: give one of the ids {places}"
            )
        close = get_close_matches(given, [each.name for each in all_of_them], _SUGGESTIONS)
        hint = (
            f"did you mean {' or '.join(map(repr, close))}?"
            if close
            else (f"{self.hint} lists all that this key reaches")
        )
        raise ValueError(f"this key reaches no {self.noun} with the name {given!r}: {hint}")


_BUDGETS = _Kind("budget", "bud_", "/v1/budgets", Budget, "client.budgets.list()")
_DATASETS = _Kind("data set", "ds_", "/v1/datasets", Dataset, "client.datasets.list()")
#: The fields of requests that hold an id which a name may stand for.
_FIELDS = {"budget_id": _BUDGETS, "parent_id": _BUDGETS, "dataset_id": _DATASETS, "test_dataset_id": _DATASETS}


def budget_id(http: Transport, budget: BudgetId) -> str:
    """Return the id of a budget. The budget is given by its id, its name, or as an object.

    Args:
        http: The server that has it.
        budget: The budget; a name is looked up again at each call.

    Raises:
        ValueError: no budget within the key's reach has this name, or several have it.
    """
    return _BUDGETS.id_of(http, budget)


def dataset_id(http: Transport, dataset: DatasetId) -> str:
    """Return the id of a data set. The data set is given by its id, its name, or as an object.

    Args:
        http: The server that has it.
        dataset: The data set; a name is looked up again at each call.

    Raises:
        ValueError: no data set within the key's reach has this name, or several have it.
    """
    return _DATASETS.id_of(http, dataset)


def with_ids(http: Transport, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request with ids instead of the names of budgets and data sets, even in the target."""
    found = dict(fields)
    for name, kind in _FIELDS.items():
        if found.get(name):
            found[name] = kind.id_of(http, found[name])
    target = found.get("target")
    if isinstance(target, Mapping) and target.get("budget_id"):
        found["target"] = {**target, "budget_id": budget_id(http, target["budget_id"])}
    return found


class OfBudgets(Resource):
    """Calls whose path has the id of a budget."""

    def _path(self, pattern: str, budget: BudgetId) -> str:
        return path_to(pattern, budget_id(self._http, budget))


def _place(found: Budget | Dataset) -> str:
    """Return where a budget is in the tree of budgets. This distinguishes budgets with the same name."""
    if not isinstance(found, Budget):
        return ""
    return " (a root)" if found.parent_id is None else f" (below {found.parent_id})"
