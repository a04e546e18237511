"""Sweeps whose runs are evaluated on held-out rows: within each cell's target, and charged for every run."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.events import Event, Gaussian
from accounting.relations import NeighboringRelation
from accounting.tuning import DEFAULT_ORDERS
from accounting.tuning.candidates import bounding_events
from app.run_sweeps.preparation import prepare
from app.run_sweeps.schemas import RunSweepRequest
from app.runs import execution
from app.runs.sweep_charges import law_of, selection_cost
from calibrators.plan import plan_from_canonical
from tests.app.run_sweeps.conftest import BEST, Sweeps
from tests.app.runs.test_evaluating import ids_in

RELATION = NeighboringRelation.ADD_OR_REMOVE_ONE
NOISY = BEST | {
    "trials": {"kind": "geometric", "expected_trials": 1.5},
    "score": {"kind": "noisy", "noise_multiplier": 20},
    "release_after_s": 100,
}


def test_every_run_of_a_sweep_for_all_pays_for_its_evaluation_and_shows_it(service: Sweeps) -> None:
    sweep = service.swept(**ids_in(service), evaluation={})
    service.work_all()
    runs = [service.get(f"/v1/runs/{cell['run_id']}") for cell in service.sweep(sweep)["cells"]]
    noise = [run["plan"]["evaluation"]["noise_multiplier"] for run in runs]
    assert len(runs) == 3
    assert all(run["result"]["held_out"]["accuracy"]["estimate"] is not None for run in runs)
    charged = service.get(f"/v1/reservations/{sweep['reservation_id']}")["events"]
    of_evaluations = [event for event in charged if event["mechanism"]["noise_multiplier"] == noise[0]]
    assert set(noise) == {noise[0]}
    assert [event["count"] for event in of_evaluations] == [3], "one for each run"


def test_the_selection_pays_for_the_evaluation_of_every_trial(service: Sweeps) -> None:
    """The best of a number of trials costs what trials with their evaluations cost, and more than without these."""
    prepared = prepare(service.context, RunSweepRequest(service.request(**ids_in(service), **NOISY, evaluation={})))
    events = [plan_from_canonical(each["plan"], each["plan_hash"]).events for each in prepared.columns]
    assert all(isinstance(each[-1].mechanism, Gaussian) and len(each) == 2 for each in events)
    found = []
    for charged in (events, [each[:-1] for each in events]):
        bound = (*bounding_events(charged), Event(Gaussian(20.0)))
        cost = selection_cost(bound, RELATION, law_of(prepared.sweep.trials or {}), 1e-5, DEFAULT_ORDERS)
        found.append(cost.epsilon.value.upper)
    assert prepared.sweep.guarantee is not None
    said = prepared.sweep.guarantee["epsilon"]["upper"]
    assert said == pytest.approx(found[0], rel=1e-9)
    assert said > 1.01 * found[1]


def test_the_chosen_run_alone_shows_its_evaluation_and_no_noise_is_used_twice(
    service: Sweeps, draws: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws.trials = 2
    keys: dict[str, list[int]] = {"held_out_body": [], "noisy_score": []}
    for name, place in (("held_out_body", 2), ("noisy_score", 3)):
        drawn = getattr(execution, name)

        def watched(*arguments: Any, name: str = name, place: int = place, drawn: Any = drawn) -> Any:
            keys[name].append(arguments[place])
            return drawn(*arguments)

        monkeypatch.setattr(execution, name, watched)
    sweep = service.swept(**ids_in(service), **NOISY, evaluation={})
    service.work_all()
    used = [*keys["held_out_body"], *keys["noisy_score"]]
    assert len(keys["held_out_body"]) == len(keys["noisy_score"]) >= 2
    assert len(set(used)) == len(used)
    shown = [run.result["held_out"] for run in service.runs_of(sweep) if run.result is not None]
    assert all(each is not None for each in shown)
