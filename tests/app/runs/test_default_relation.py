"""A private run that names neither sampling nor relation is planned, charged and shown under its budget's relation."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.relations import NeighboringRelation
from app.dashboard.new_budget import _START
from calibrators.registry import ALGORITHMS
from tests.app.runs.conftest import HEADER, Service
from tests.app.runs.test_presets import FACTS, TARGET, shortest

#: None is the preset's own algorithm; the others are one of each default sampling.
NAMED = (None, "dp_sgd", "dp_sgd_gradient", "dp_bandmf", "dp_gd")
UNDER = [
    (algorithm, relation)
    for algorithm in NAMED
    for relation in NeighboringRelation
    if relation in ALGORITHMS[algorithm or "dp_adam"].relations
]
FILTER = {"kind": "renyi_dp", "epsilon": 10, "delta": 1e-5}


def relations_of(service: Service, run: dict[str, Any]) -> dict[str, str]:
    """The relation wherever something is said or charged of a run."""
    card = service.report(run)
    reservation = service.get(f"/v1/reservations/{run['reservation_id']}")
    budget = service.get(f"/v1/budgets/{reservation['budget_id']}")
    return {
        "plan": run["plan"]["neighboring_relation"],
        "card": card["convention"]["neighboring_relation"],
        "the card's plan": card["plan"]["neighboring_relation"],
        "the card's budget": card["budget"]["neighboring_relation"],
        "budget": budget["neighboring_relation"],
    }


@pytest.mark.parametrize(("algorithm", "relation"), UNDER)
@pytest.mark.one_in(3)
def test_a_private_run_is_charged_under_the_relation_of_its_budget_everywhere(
    quick: Service, algorithm: str | None, relation: NeighboringRelation
) -> None:
    budget = quick.budget(neighboring_relation=relation, filter=FILTER)
    # Rows belong to one budget for ever: these are of this case alone.
    rows = f"{HEADER}1,0.{UNDER.index((algorithm, relation)) + 1:02d},red,no\n"
    dataset = quick.dataset(rows, budget_id=budget["id"], declared_size=400)
    ids = {"dataset_id": dataset["id"], "budget_id": budget["id"]}
    run = quick.queued(**shortest(algorithm, **ids, **FACTS.get(algorithm or "", {})))
    assert relations_of(quick, run) == dict.fromkeys(relations_of(quick, run), relation)
    # What was charged is certified under that relation, and it meets the target there.
    held = quick.get(f"/v1/reservations/{run['reservation_id']}")
    asked = {"events": held["events"], "neighboring_relation": relation, "delta": TARGET["delta"]}
    certified = quick.post("/v1/account", asked)
    assert certified.status_code == 200, certified.text
    assert 0.5 * TARGET["epsilon"] < certified.json()["epsilon"]["upper"] <= TARGET["epsilon"]
    named = quick.queued(**shortest(algorithm, **ids, **FACTS.get(algorithm or "", {}), neighboring_relation=relation))
    assert named["plan_hash"] == run["plan_hash"], "naming it changes nothing"


@pytest.mark.parametrize("relation", list(NeighboringRelation))
@pytest.mark.parametrize("sizes", [{"sampling": "full_batch"}, {}])
@pytest.mark.one_in(3)
def test_a_calibration_takes_the_relation_of_the_budget_that_it_names(
    quick: Service, relation: NeighboringRelation, sizes: dict[str, Any]
) -> None:
    budget = quick.budget(neighboring_relation=relation, filter=FILTER)
    body = {
        "algorithm": "dp_sgd_gradient",
        "dataset_size": 400,
        "batch_size": 400 if sizes else 40,
        "iterations": 20,
        "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
        "target": TARGET,
        "hyperparameters": {"step_size": 0.1},
        "budget_id": budget["id"],
        **sizes,
    }
    found = quick.post("/v1/calibrate", body)
    assert found.status_code == 200, found.text
    assert found.json()["convention"]["neighboring_relation"] == relation
    assert found.json()["plan"]["neighboring_relation"] == relation


def test_without_a_budget_the_default_is_what_a_new_budget_starts_with(quick: Service) -> None:
    """Of the preset, of a calibration of its algorithm, and of the form for budgets: so that none surprises another."""
    without = quick.queued(**shortest(None))
    assert without["plan"]["neighboring_relation"] == _START["neighboring_relation"]
    budget = quick.budget(neighboring_relation=_START["neighboring_relation"], filter=FILTER)
    charged = quick.queued(**shortest(None, budget_id=budget["id"]))
    assert charged["plan_hash"] == without["plan_hash"]
    assert relations_of(quick, charged) == dict.fromkeys(relations_of(quick, charged), _START["neighboring_relation"])
