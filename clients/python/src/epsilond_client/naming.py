"""Budgets by name: wherever a call takes the id of a budget, it takes a name that one budget within reach has."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from epsilond_client.answers import Budget
from epsilond_client.transport import Resource, Transport, identifier, path_to

#: What a call takes in place of an id: the object itself, or its name.
BudgetId = str | Budget

#: How ids begin. What begins so is taken for an id, and whoever gives ids asks nothing more.
_PREFIX = "bud_"
#: Of a list, so many at once: the longest page that the service has.
_PAGE = 200
_SUGGESTIONS = 3


def budget_id(http: Transport, budget: BudgetId) -> str:
    """Return the id of a budget that is given by its id, its name, or as the object itself.

    Args:
        http: The server that has it.
        budget: A name is looked up anew at each call.

    Raises:
        ValueError: no budget within the key's reach has this name, or several have it.
    """
    if not isinstance(budget, str) or budget.startswith(_PREFIX) or not budget:
        return identifier(budget)
    all_of_them = list(http.pages("/v1/budgets", Budget, _PAGE))
    found = [each for each in all_of_them if each.name == budget]
    if len(found) == 1:
        return found[0].id
    if found:
        places = ", ".join(f"{each.id} ({_place(each)})" for each in found)
        raise ValueError(f"{len(found)} budgets within reach are named {budget!r}: give the id of one, of {places}")
    close = get_close_matches(budget, [each.name for each in all_of_them], _SUGGESTIONS)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "client.budgets.list() has those there are"
    raise ValueError(f"no budget within reach of this key is named {budget!r}: {hint}")


def with_budget_ids(http: Transport, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request with ids in place of names: in `budget_id`, `parent_id` and the target's."""
    found = dict(fields)
    for name in ("budget_id", "parent_id"):
        if found.get(name):
            found[name] = budget_id(http, found[name])
    target = found.get("target")
    if isinstance(target, Mapping) and target.get("budget_id"):
        found["target"] = {**target, "budget_id": budget_id(http, target["budget_id"])}
    return found


class OfBudgets(Resource):
    """Calls whose path has the id of a budget."""

    def _path(self, pattern: str, budget: BudgetId) -> str:
        return path_to(pattern, budget_id(self._http, budget))


def _place(budget: Budget) -> str:
    return "a root" if budget.parent_id is None else f"below {budget.parent_id}"
