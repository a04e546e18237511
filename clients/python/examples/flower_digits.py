"""Federated training with Flower on scikit-learn's digits: no round is released that the budget does not pay for.

    epsilond serve --migrate                      # the server; or make serve
    python clients/python/examples/flower_digits.py    # this; it needs epsilond-client, flwr and scikit-learn

`EPSILOND_URL` is the address of the server, and `EPSILOND_API_KEY` the key. Twenty clients have seventy digits each,
and the privacy unit is all that one client holds. The clients are functions of this process, behind Flower's own
interface; in a deployment a ServerApp calls `start` of the same gate. The digits are public.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from sklearn.datasets import load_digits

from epsilond_client import Client
from epsilond_client.adapters import flower

CLIENTS, TRAIN_ROWS, CLIP, DELTA = 20, 1400, 1.0, 1e-5


def main() -> int:
    """Open a budget, train until it is spent, and say what was charged."""
    options = argparse.ArgumentParser(description="Flower on digits under a budget")
    options.add_argument("--epsilon", type=float, default=3.0, help="epsilon of the budget that is opened")
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--noise", type=float, default=5.0, help="noise multiplier of each round")
    given = options.parse_args()
    features, labels = load_digits(return_X_y=True)
    features = features / 16.0
    with Client() as client:
        budget = client.budgets.create(
            "digits of twenty clients",
            neighboring_relation="add_or_remove_one",
            privacy_unit="client",
            filter={"kind": "renyi_dp", "epsilon": given.epsilon, "delta": DELTA},
        )
        print(f"budget      {budget.id}: epsilon {budget.epsilon.limit} at delta {DELTA}")
        gate = flower.Gate(
            client,
            budget,
            FedAvg(),
            job="digits",
            noise_multiplier=given.noise,
            clipping_norm=CLIP,
            expected_clients=CLIENTS,
        )
        first = ArrayRecord({"weights": Array(np.zeros((64, 10)))})
        result = gate.start(Clients(features[:TRAIN_ROWS], labels[:TRAIN_ROWS]), first, num_rounds=given.rounds)
        scores = features[TRAIN_ROWS:] @ result.arrays["weights"].numpy()
        accuracy = (scores.argmax(axis=1) == labels[TRAIN_ROWS:]).mean()
        print(f"trained     {len(gate.released)} rounds; accuracy {accuracy:.3f} on {len(scores)} held-out rows")
        if gate.denial is not None:
            print(f"denied      the last round, before a client was asked: {gate.denial}")
        print(f"charged     {client.budgets.get(budget)!r}")
        events = [event for held in gate.released.values() for event in client.reservations.get(held)["charged_events"]]
        certified = client.account(events, neighboring_relation="add_or_remove_one", delta=DELTA).epsilon
        print(f"certified   epsilon in [{certified.lower:.6f}, {certified.upper:.6f}] at delta {DELTA}")
    return 0


class Clients(Grid):
    """Flower's interface to its clients; each of them trains on its own rows."""

    def __init__(self, features: Any, labels: Any) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # a Flower server does the same
        self._rows = list(zip(np.split(features, CLIENTS), np.split(labels, CLIENTS), strict=True))

    def get_node_ids(self) -> Iterable[int]:
        """Return the ids of the connected clients."""
        return range(1, CLIENTS + 1)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Let each client train, and return the clients' answers."""
        return [self._trained(message) for message in messages]

    def _trained(self, message: Message) -> Message:
        features, labels = self._rows[message.metadata.dst_node_id - 1]
        [(key, record)] = message.content.array_records.items()
        weights = record["weights"].numpy().copy()
        for _ in range(5):
            scores = np.exp(features @ weights)
            likely = scores / scores.sum(axis=1, keepdims=True)
            weights -= features.T @ (likely - np.eye(10)[labels]) / len(labels)
        answer = {key: ArrayRecord({"weights": Array(weights)}), "metrics": MetricRecord({"num-examples": len(labels)})}
        return Message(RecordDict(answer), reply_to=message)

    def set_run(self, run: Any) -> None:
        """Do nothing, since Flower itself runs nothing here."""

    @property
    def run(self) -> Any:
        """Refuse, since Flower itself runs nothing here."""
        raise NotImplementedError

    def get_nodes(self) -> Iterable[Any]:
        """Refuse, since `FedAvg` does not call this."""
        raise NotImplementedError

    def create_message(self, *args: Any, **options: Any) -> Message:
        """Refuse, since `FedAvg` does not call this."""
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse, since `FedAvg` does not call this."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse, since `FedAvg` does not call this."""
        raise NotImplementedError


if __name__ == "__main__":
    raise SystemExit(main())
