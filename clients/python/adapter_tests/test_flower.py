"""The adapter works with the real Flower: its strategies, messages and records, over a grid within this process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg, FedAvgM
from flwr.supercore.task_identity import TaskIdentity

from epsilond_client import Budget, BudgetExceeded, Client
from epsilond_client.adapters.flower import Gate

# Messages name the task that they come from; a Flower server sets it when it starts one.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1

CLIENTS = (11, 12, 13, 14)
NOISE = 4.0
Update = Callable[[int], np.ndarray]


class InProcess(Grid):
    """Flower's interface to its clients, whose answers are computed on the spot."""

    def __init__(self, update: Update = lambda node: np.full(3, float(node)), failing: frozenset[int] = frozenset()):
        self.update, self.failing, self.asked = update, failing, []

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(CLIENTS)

    def get_nodes(self) -> Iterable[Any]:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return [self.answer(message) for message in messages]

    def answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        self.asked.append(node)
        if node in self.failing:
            return Message(Error(code=0, reason="gone"), reply_to=message)
        [(key, record)] = message.content.array_records.items()
        moved = record["w"].numpy() + self.update(node).astype(np.float32)
        metrics = MetricRecord({"num-examples": node, "loss": 7.0})
        return Message(RecordDict({key: ArrayRecord({"w": Array(moved)}), "m": metrics}), reply_to=message)


def start() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros(3, dtype=np.float32))})


@pytest.fixture
def budget(client: Client) -> Budget:
    """Open a budget that pays for three rounds, and not for four."""
    return client.budgets.create(
        "federated", neighboring_relation="add_or_remove_one", filter={"kind": "zcdp", "rho": 3.5 / (2 * NOISE**2)}
    )


def gate(client: Client, budget: Budget, job: str = "job", strategy: Any = None, **options: Any) -> Gate:
    given = {"noise_multiplier": NOISE, "clipping_norm": 1.0, "expected_clients": 4.0} | options
    return Gate(client, budget, strategy or FedAvg(), job=job, **given)


def states(client: Client, budget: Budget) -> list[str]:
    return sorted(found.state for found in client.reservations.list(budget))


def test_rounds_are_released_until_the_budget_is_spent_and_the_model_stays(client: Client, budget: Budget) -> None:
    grid, strategy = InProcess(), gate(client, budget)
    result = strategy.start(grid, start(), num_rounds=5)
    assert list(strategy.released) == [1, 2, 3]
    assert states(client, budget) == ["committed"] * 3
    assert grid.asked.count(11) == 3, "no client was asked for a round that nobody pays for"
    assert isinstance(strategy.denial, BudgetExceeded)
    assert result.train_metrics_clientapp == {}, "what clients say of their rows is dropped"
    assert result.evaluate_metrics_clientapp == {}
    assert np.isfinite(result.arrays["w"].numpy()).all()
    [event] = client.reservations.get(strategy.released[1])["charged_events"]
    assert (event["mechanism"]["noise_multiplier"], event["count"]) == (NOISE, 1)


def test_jobs_and_clients_share_what_a_budget_has(client: Client, url: str, budget: Budget) -> None:
    with Client(url) as other:
        one, two = gate(client, budget, "one"), gate(other, budget, "two")
        for server_round in (1, 2):
            for each, grid in ((one, InProcess()), (two, InProcess())):
                messages = each.configure_train(server_round, start(), ConfigRecord(), grid)
                each.aggregate_train(server_round, grid.send_and_receive(messages))
    assert sorted([*one.released, *two.released]) == [1, 1, 2], "three rounds of both jobs together"
    assert two.denial is not None


def test_two_rounds_that_are_held_at_once_are_both_paid_for(client: Client, url: str, budget: Budget) -> None:
    grid = InProcess()
    gates = [gate(client, budget, f"job {number}") for number in range(5)]
    asked = [list(each.configure_train(1, start(), ConfigRecord(), grid)) for each in gates]
    assert [bool(messages) for messages in asked] == [True, True, True, False, False], "a hold takes its part at once"
    for each, messages in zip(gates, asked, strict=True):
        each.aggregate_train(1, grid.send_and_receive(messages))
    assert states(client, budget) == ["committed"] * 3


def noiseless(gate: Gate) -> Gate:
    gate._noise = 0.0
    return gate


def moved(each: Gate, grid: InProcess) -> np.ndarray:
    messages = each.configure_train(1, start(), ConfigRecord(), grid)
    arrays, metrics = each.aggregate_train(1, grid.send_and_receive(messages))
    assert metrics is None
    assert arrays is not None
    found: np.ndarray = arrays["w"].numpy()
    return found


def test_no_reply_changes_the_sum_by_more_than_the_norm(client: Client, budget: Budget) -> None:
    """The sum is one of clipped updates, whatever weights clients state, whichever fail, and whatever is not a
    number."""
    grid = InProcess(lambda node: np.array([node * 100.0, 0.0, 0.0]))
    np.testing.assert_allclose(moved(noiseless(gate(client, budget, "a")), grid), [1.0, 0.0, 0.0], rtol=1e-6)
    grid.failing = frozenset({12, 13})
    np.testing.assert_allclose(moved(noiseless(gate(client, budget, "b")), grid), [0.5, 0.0, 0.0], rtol=1e-6)
    grid = InProcess(lambda node: np.array([np.nan if node < 13 else np.inf if node == 13 else 0.25, 0.0, 0.0]))
    np.testing.assert_allclose(moved(noiseless(gate(client, budget, "c")), grid), [0.0625, 0.0, 0.0], rtol=1e-6)


def test_who_answers_twice_or_unasked_or_nonsense_counts_once_or_not(client: Client, budget: Budget) -> None:
    grid, each = InProcess(lambda node: np.array([0.5, 0.0, 0.0])), noiseless(gate(client, budget))
    messages = list(each.configure_train(1, start(), ConfigRecord(), grid))
    stranger = Message(messages[0].content, dst_node_id=99, message_type="train")
    nonsense = RecordDict({"arrays": ArrayRecord({"v": Array(np.zeros(3, dtype=np.float32))})})
    replies = [grid.answer(messages[0]), grid.answer(messages[0]), grid.answer(stranger)]
    replies += [Message(nonsense, reply_to=messages[1]), Message(RecordDict(), reply_to=messages[2])]
    arrays, _ = each.aggregate_train(1, replies)
    np.testing.assert_allclose(arrays["w"].numpy(), [0.125, 0.0, 0.0], rtol=1e-6)


def test_the_noise_is_what_is_charged(client: Client) -> None:
    wide = client.budgets.create("wide", neighboring_relation="add_or_remove_one", filter={"kind": "zcdp", "rho": 1.0})
    each = gate(client, wide, clipping_norm=0.5)
    zeros = ArrayRecord({"w": Array(np.zeros(40_000, dtype=np.float32))})
    grid = InProcess(lambda node: np.zeros(40_000))
    messages = each.configure_train(1, zeros, ConfigRecord(), grid)
    arrays, _ = each.aggregate_train(1, grid.send_and_receive(messages))
    assert arrays["w"].numpy().std() == pytest.approx(NOISE * 0.5 / 4, rel=0.02)


@pytest.mark.parametrize("kind", [FedAdam, FedAvgM])
def test_other_strategies_see_the_noisy_mean_alone(client: Client, budget: Budget, kind: Any) -> None:
    result = gate(client, budget, strategy=kind()).start(InProcess(), start(), num_rounds=2)
    assert np.isfinite(result.arrays["w"].numpy()).all()
    assert states(client, budget) == ["committed"] * 2


def test_a_rate_takes_each_client_by_its_own_coin_and_is_charged_as_such(client: Client) -> None:
    renyi = client.budgets.create(
        "rate", neighboring_relation="add_or_remove_one", filter={"kind": "renyi_dp", "epsilon": 8, "delta": 1e-5}
    )
    grid, each = InProcess(), gate(client, renyi, sample_rate=0.5)
    each.start(grid, start(), num_rounds=30)
    assert len(each.released) == 30, "a round whose coins chose nobody has its noise, too"
    assert 30 < len(grid.asked) < 90
    [event] = client.reservations.get(each.released[1])["charged_events"]
    assert event["sampling"] == {"kind": "poisson", "sampling_probability": 0.5}
    some = gate(client, renyi, "some", FedAvg(fraction_train=0.5), sample_rate=0.5)
    with pytest.raises(ValueError, match="fraction_train=1"):
        some.configure_train(1, start(), ConfigRecord(), grid)


def test_what_would_not_be_charged_as_it_is_is_refused(client: Client, budget: Budget) -> None:
    with pytest.raises(ValueError, match="without Flower's DifferentialPrivacy wrappers"):
        gate(client, budget, strategy=DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 4))
    with pytest.raises(ValueError, match="clipping_norm must be above 0"):
        gate(client, budget, clipping_norm=0.0)
    with pytest.raises(ValueError, match="noise_multiplier must be a number above 0"):
        gate(client, budget, noise_multiplier=0.0)
    whole = ArrayRecord({"n": Array(np.zeros(1, dtype=np.int64))})
    with pytest.raises(ValueError, match="'n' holds int64"):
        gate(client, budget).configure_train(1, whole, ConfigRecord(), InProcess())
    assert states(client, budget) == []


def test_a_round_that_is_not_aggregated_is_given_back(client: Client, budget: Budget) -> None:
    grid, each = InProcess(), gate(client, budget)
    each.configure_train(1, start(), ConfigRecord(), grid)
    assert states(client, budget) == ["pending"]
    moved(each, grid)
    assert states(client, budget) == ["committed", "voided"]


CRASH = textwrap.dedent(
    """
    import os, sys
    import numpy as np
    from flwr.app import ConfigRecord
    from test_flower import FedAvg, Gate, InProcess, start
    from epsilond_client import Client
    from epsilond_client.adapters import flower

    gate = Gate(Client(), sys.argv[1], FedAvg(), job="job", noise_multiplier=4.0, clipping_norm=1.0, expected_clients=4)
    grid = InProcess()
    messages = list(gate.configure_train(1, start(), ConfigRecord(), grid))
    if sys.argv[2] == "before":
        os._exit(7)  # as after SIGKILL: nothing is said to anybody
    flower.fresh_normals = lambda size: os._exit(7)  # started, and not yet drawn: nobody outside can tell
    gate.aggregate_train(1, grid.send_and_receive(messages))
    """
)


def crash(url: str, budget: Budget, when: str) -> None:
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent / "src"), str(here.parents[2])])
    environment = os.environ | {"EPSILOND_URL": url, "PYTHONPATH": paths}
    ended = subprocess.run(
        [sys.executable, "-c", CRASH, budget.id, when], env=environment, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 7, ended.stderr


def test_a_job_that_died_before_its_noise_holds_its_round_once(client: Client, url: str, budget: Budget) -> None:
    crash(url, budget, "before")
    assert states(client, budget) == ["pending"]
    gate(client, budget).start(InProcess(), start(), num_rounds=3)
    assert states(client, budget) == ["committed"] * 3, "all three rounds that the budget has, none held twice"


def test_a_job_that_died_in_its_noise_has_paid_and_pays_for_what_it_draws_anew(
    client: Client, url: str, budget: Budget
) -> None:
    crash(url, budget, "in it")
    assert states(client, budget) == ["started"]
    again = gate(client, budget)
    again.start(InProcess(), start(), num_rounds=3)
    assert list(again.released) == [1, 2], "the round of the dead process is the third that the budget pays for"
    assert states(client, budget) == ["committed"] * 3


def test_an_unstarted_hold_of_a_dead_job_expires_for_the_others(client: Client, budget: Budget) -> None:
    client.reservations.create(budget, [dict(gate(client, budget)._event)], purpose="dead", expires_in=1)
    time.sleep(1.5)
    other = gate(client, budget, "other")
    other.start(InProcess(), start(), num_rounds=3)
    assert len(other.released) == 3
