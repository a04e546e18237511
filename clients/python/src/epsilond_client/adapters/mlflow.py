"""MLflow: logs the privacy of a training in the active run of MLflow.

    with mlflow.start_run():
        adapter.log_card(client, run)                       # of a run that the service trained
        adapter.log_charge(client, guard, delta=1e-5) # of your own loop

It logs the guarantee, ids, the hash of the plan, and the privacy card. Everybody who may read the budget may read
these. Do not log losses or norms of private records, for which nothing is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from epsilond_client.answers import Answer, Card, Reservation, Run
from epsilond_client.client import Client
from epsilond_client.holding import HeldReservation

#: The folder of the documents among the artifacts of a run.
FOLDER = "privacy"
_PREFIX = "epsilond."
_OF_A_CARD = ("run_id", "state", "statement", "privacy_unit", "algorithm", "plan_hash", "budget_id", "reservation_id")


def log_card(client: Client, run: Run | str) -> Card:
    """Log the privacy card of a run of the service, and return it.

    It sets tags (``epsilond.plan_hash``, ``epsilond.statement``, ids and more), metrics (``epsilond.epsilon`` and
    ``epsilond.delta``, if the guarantee has them), and artifacts (the card as JSON, Markdown and HTML).

    Args:
        client: A client of the server that trained.
        run: The run.
    """
    mlflow: Any = import_module("mlflow")
    card = client.runs.report(run)
    mlflow.set_tags(_tags({name: card[name] for name in _OF_A_CARD}))
    _log_guarantee(mlflow, card["achieved"] or {})
    mlflow.log_dict(dict(card), f"{FOLDER}/card.json")
    mlflow.log_text(client.runs.report(run, "markdown"), f"{FOLDER}/card.md")
    mlflow.log_text(client.runs.report(run, "html"), f"{FOLDER}/card.html")
    return card


def log_charge(client: Client, reservation: HeldReservation | Reservation | str, *, delta: float) -> Answer:
    """Log the charge of your own loop and what it costs alone, and return the account.

    Args:
        client: A client of the server that keeps the budget.
        reservation: The reservation of a guard whose block has ended, or its id.
        delta: The delta at which the steps are accounted.

    Raises:
        ValueError: nothing is charged yet.
    """
    mlflow: Any = import_module("mlflow")
    found = client.reservations.get(reservation.id if isinstance(reservation, HeldReservation) else reservation)
    if not found["charged_events"]:
        raise ValueError(
            f"{found.id} is {found.state}, and nothing is charged yet: log the charge after the block has ended"
        )
    budget = client.budgets.get(found.budget_id)
    answer = client.account(found["charged_events"], neighboring_relation=budget.neighboring_relation, delta=delta)
    mlflow.set_tags(
        _tags(
            {
                "reservation_id": found.id,
                "budget_id": budget.id,
                "budget": budget.name,
                "state": found.state,
                "purpose": found.purpose,
                "privacy_unit": budget.privacy_unit,
                "neighboring_relation": budget.neighboring_relation,
                "plan_hash": found["plan_hash"],
            }
        )
    )
    _log_guarantee(mlflow, answer)
    mlflow.log_dict({"reservation": dict(found), "account": dict(answer)}, f"{FOLDER}/charge.json")
    return answer


def _tags(facts: Mapping[str, Any]) -> dict[str, str]:
    return {f"{_PREFIX}{name}": str(value) for name, value in facts.items() if value is not None}


def _log_guarantee(mlflow: Any, achieved: Mapping[str, Any]) -> None:
    """Log the certified end of the interval, and delta."""
    epsilon, delta = achieved.get("epsilon"), achieved.get("delta")
    if isinstance(epsilon, Mapping):
        epsilon = epsilon["upper"]
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, int | float):
            mlflow.log_metric(f"{_PREFIX}{name}", float(value))
