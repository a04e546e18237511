"""A `DpEvent` of the real library, read by the service; what an Opacus adapter says without torch."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from epsilond_client import Budget, Client, InvalidRequest
from epsilond_client.adapters import dp_event, opacus

#: The adapters' own tests against the real Opacus and PyTorch, in an environment of their own, and what they reported.
ADAPTER_TESTS = Path(__file__).parents[3] / "clients" / "python" / "adapter_tests"
TRAINING = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(4.0)), 50)


class Accountant:
    """A stand-in for an Opacus accountant, with only what the adapter uses. The adapters' tests use real ones."""

    def state_dict(self) -> dict[str, Any]:
        return {"mechanism": "rdp", "history": [(4.0, 0.1, 50)]}


def test_an_event_is_accounted_and_can_be_reserved(client: Client, budget: Budget) -> None:
    answer = dp_event.import_event(client, TRAINING, delta=1e-5)
    rdp = dp.rdp.RdpAccountant().compose(TRAINING).get_epsilon(1e-5)
    assert answer.epsilon.upper <= rdp
    assert answer.reported.epsilon == pytest.approx(rdp)
    assert [dict(event) for event in answer["events"]] == [
        {
            "mechanism": {"kind": "gaussian", "noise_multiplier": 4.0},
            "sampling": {"kind": "poisson", "sampling_probability": 0.1},
            "count": 50,
        }
    ]
    with pytest.raises(InvalidRequest):
        client.reservations.create(budget, [], purpose="nothing")
    renyi = client.budgets.create(
        "r", neighboring_relation="add_or_remove_one", filter={"kind": "renyi_dp", "epsilon": 3, "delta": 1e-5}
    )
    with client.reserve(renyi, answer.events, purpose="from a DpEvent"):
        pass


def test_a_tree_of_events_is_read_whole(client: Client) -> None:
    tree = dp.ComposedDpEvent(
        [
            dp.SelfComposedDpEvent(dp.GaussianDpEvent(np.float64(5.0)), np.int64(3)),
            dp.LaplaceDpEvent(2.0),
            dp.NoOpDpEvent(),
        ]
    )
    answer = dp_event.import_event(client, tree, delta=1e-5)
    assert [(event["mechanism"]["kind"], event["count"]) for event in answer["events"]] == [
        ("gaussian", 3),
        ("laplace", 1),
    ]


def test_what_has_no_sound_account_is_refused_by_name(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="NonPrivateDpEvent"):
        dp_event.import_event(client, dp.ComposedDpEvent([TRAINING, dp.NonPrivateDpEvent()]), delta=1e-5)
    with pytest.raises(TypeError, match="not float"):
        dp_event.to_json(1.0)


def test_what_the_loader_did_is_passed_on(client: Client) -> None:
    poisson = dp_event.import_event(client, TRAINING, delta=1e-5, neighboring_relation="replace_special")
    shuffled = dp_event.import_event(
        client, TRAINING, delta=1e-5, neighboring_relation="replace_special", batches="shuffled"
    )
    assert shuffled.epsilon.upper > 2 * poisson.epsilon.upper
    assert "shuffled_charged_as_poisson" in [difference.code for difference in shuffled.differences]


def test_a_history_alone_does_not_say_how_batches_were_drawn(client: Client) -> None:
    with pytest.raises(ValueError, match="does not say how batches were drawn"):
        opacus.source_of(Accountant())
    answer = opacus.import_engine(client, Accountant(), delta=1e-5, batches="poisson")
    assert answer.epsilon.upper == dp_event.import_event(client, TRAINING, delta=1e-5).epsilon.upper


def test_the_noise_for_a_loader_spends_what_a_budget_has_left(client: Client) -> None:
    renyi = {"kind": "renyi_dp", "epsilon": 3.0, "delta": 1e-5}
    budget = client.budgets.create("of a loader", neighboring_relation="add_or_remove_one", filter=renyi)
    loader = [None] * 128
    noise = opacus.noise_multiplier(client, budget, data_loader=loader, epochs=15)
    with client.guard(budget, noise_multiplier=noise, sample_rate=1 / 128, epochs=15, purpose="all of it") as guard:
        guard.take(15 * 128)
    used = client.budgets.get(budget).epsilon
    assert used.left < 0.01 * used.limit  # and not refused: the guard asks for what Opacus will do
    with pytest.raises(ValueError, match="has no length"):
        opacus.noise_multiplier(client, budget, data_loader=iter(loader), epochs=15)
    with pytest.raises(ValueError, match="no step in 0 epochs"):
        opacus.noise_multiplier(client, budget, data_loader=loader, epochs=0)


def test_a_calibration_prints_its_numbers(client: Client) -> None:
    found = client.calibrate(
        algorithm="dp_sgd",
        dataset_size=1000,
        batch_size=50,
        iterations=20,
        sampling="poisson",
        gradient_bound={"kind": "clip", "max_grad_norm": 1.0},
        target={"kind": "approximate_dp", "epsilon": 2.0, "delta": 1e-5},
    )
    noise, upper = found.solution.noise_multiplier, found.achieved.epsilon.upper
    assert repr(found) == (
        f"Calibration(noise_multiplier={noise}, epsilon <= {upper} at delta 1e-05, plan {found.plan_hash[:8]}...)"
    )


def test_the_report_of_the_adapters_tests_is_of_these_tests_and_versions() -> None:
    """A test that was added or renamed since has not been run against the real library."""
    report = json.loads((ADAPTER_TESTS / "report.json").read_text())
    functions = [node for path in ADAPTER_TESTS.glob("test_*.py") for node in ast.parse(path.read_text()).body]
    names = {node.name for node in functions if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    assert {re.sub(r"\[.*", "", name) for name in report["passed"]} == names
    for line in (ADAPTER_TESTS / "requirements.txt").read_text().splitlines():
        name, _, version = line.partition("==")
        if name in report["libraries"]:
            assert report["libraries"][name].partition("+")[0] == version
