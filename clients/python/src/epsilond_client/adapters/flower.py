"""Flower: a strategy that releases a round only if a budget pays for it.

    strategy = flower.Gate(
        client, "my project", FedAvg(), job="keyboard-7",
        noise_multiplier=1.1, clipping_norm=1.0, expected_clients=100,
    )
    strategy.start(grid, initial_arrays, num_rounds=20)

A round is reserved before any client is asked. Once the replies have arrived, it is started, each client's update is
clipped, noise is drawn once, and the charge is committed. A round that does not fit is skipped: no client is asked, and
the model stays as it is. Jobs on several machines can share what is left of a budget.

The unit is a client: one record of the budget is all that one client holds. A client that does not answer, or whose
arrays cannot be read, contributes nothing, and the divisor is a public constant. So no reply changes the sum by more
than the clipping norm, and no reply ends the job. The clients' metrics are dropped, since they are statistics of rows
for which nothing is charged.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy

from epsilond_client.answers import Event
from epsilond_client.client import Client
from epsilond_client.declaring import training_event
from epsilond_client.holding import HeldReservation
from epsilond_client.naming import BudgetId
from epsilond_client.noise import fresh_normals
from epsilond_client.problems import BudgetExceeded

log = logging.getLogger("epsilond_client")

#: The longest name of a run: it is part of an idempotency key, which may have 200 characters.
_LONGEST_NAME = 100

Arrays = dict[str, npt.NDArray[np.float64]]


class Gate(Strategy):  # type: ignore[misc]  # Flower is not where the types are checked
    """A strategy of Flower that clips, adds noise, and pays for each round before it is released.

    Args:
        client: A client of the server that keeps the budget.
        budget: The budget that pays: its name, its id, or the budget itself.
        strategy: `FedAvg` or a strategy derived from it (`FedAdam`, `FedYogi`, `FedAvgM`): it chooses the clients, and
            takes the noisy mean as it would take the mean of the replies.
        job: The name of this job among those that share the budget; a process that continues a job needs the same name.
        noise_multiplier: Standard deviation of the noise on the sum, divided by `clipping_norm`.
        clipping_norm: The most by which one client changes the sum, in l2 over all arrays.
        expected_clients: The public constant by which the noisy sum is divided.
        sample_rate: The probability with which each connected client is drawn, independently and in secret; the
            strategy must choose all clients. With None, each round is charged as if every client took part.
        evaluate_on_public_rows: Whether the clients evaluate on public rows only. Otherwise there is no evaluation.
        expires_in, charge_delta: Options of each reservation, as in `Client.reserve`.

    Attributes:
        denial: Why the last round was refused; None if it was not.
        released: The rounds that were released, with the ids of their reservations.

    Raises:
        ValueError: a number is outside its range, or the strategy is not derived from `FedAvg`.
    """

    def __init__(
        self,
        client: Client,
        budget: BudgetId,
        strategy: Strategy,
        *,
        job: str,
        noise_multiplier: float,
        clipping_norm: float,
        expected_clients: float,
        sample_rate: float | None = None,
        evaluate_on_public_rows: bool = False,
        expires_in: int = 3600,
        charge_delta: float | None = None,
    ) -> None:
        if not isinstance(strategy, FedAvg):
            raise ValueError(
                f"{type(strategy).__name__} cannot be gated. FedAvg and strategies derived from it can. Give the "
                "strategy itself, without Flower's DifferentialPrivacy wrappers, because the gate clips and adds "
                "noise"
            )
        for name, value in (("clipping_norm", clipping_norm), ("expected_clients", expected_clients)):
            if not 0.0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, got {value!r}")
        if not 1 <= len(job) <= _LONGEST_NAME or not job.isascii() or not job.isprintable():
            raise ValueError(
                f"job must have 1 to {_LONGEST_NAME} printable ASCII characters: it tells this job from others "
                "that share the budget"
            )
        self._event: Event = training_event(
            noise_multiplier,
            sample_rate=sample_rate,
            sampling={"kind": "full_batch"} if sample_rate is None else None,
            steps=1,
        )
        self._client, self._budget_id, self._strategy, self._job = client, client.budgets.get(budget).id, strategy, job
        self._noise, self._clip, self._divisor = noise_multiplier * clipping_norm, clipping_norm, expected_clients
        self._rate, self._evaluates = sample_rate, evaluate_on_public_rows
        self._expires_in, self._charge_delta = expires_in, charge_delta
        self._round: tuple[ExitStack, HeldReservation] | None = None
        self._current: Arrays = {}
        self._asked: dict[int, Message] = {}
        self._pattern: Message | None = None
        self.denial: BudgetExceeded | None = None
        self.released: dict[int, str] = {}

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Reserve the round and choose its clients. If the budget does not pay for it, there are no messages."""
        self._give_back()
        current = _numbers(arrays)
        messages = list(self._strategy.configure_train(server_round, arrays, config, grid))
        if not messages:
            return []
        if self._rate is not None and {message.metadata.dst_node_id for message in messages} != set(
            grid.get_node_ids()
        ):
            raise ValueError(
                "sample_rate draws each connected client independently, but the strategy has already chosen some of "
                "them: give it fraction_train=1, or leave sample_rate out"
            )
        try:
            self._round = self._reserved(server_round)
        except BudgetExceeded as denial:
            self.denial = denial
            log.warning("round %s of %s is refused, and no client is asked: %s", server_round, self._job, denial)
            return []
        self.denial = None
        self._current, self._pattern = current, messages[0]
        chosen = [message for message in messages if self._rate is None or _coin(self._rate)]
        self._asked = {message.metadata.dst_node_id: message for message in chosen}
        return list(self._asked.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Clip the updates, add the noise, commit the charge, and hand the noisy mean to the strategy."""
        answers = list(replies)
        if self._round is None:
            return None, None
        (stack, held), self._round = self._round, None
        with stack:
            total = self._clipped_sum(answers)
            held.take()  # from here on noise may have been drawn, and the charge stands
            mean = {
                name: (part + self._noise * fresh_normals(part.size).reshape(part.shape)) / self._divisor
                for name, part in total.items()
            }
        self.released[server_round] = held.id
        return self._handed_on(server_round, mean), None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask clients to evaluate, if their rows for that are public."""
        if not self._evaluates:
            return []
        return list(self._strategy.configure_evaluate(server_round, arrays, config, grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Return the strategy's metrics, if the rows are public."""
        return self._strategy.aggregate_evaluate(server_round, replies) if self._evaluates else None

    def summary(self) -> None:
        """Log which budget event each round is charged as, and the strategy's own summary."""
        log.info("job %s: each round is charged as %s", self._job, self._event)
        self._strategy.summary()

    def _reserved(self, server_round: int) -> tuple[ExitStack, HeldReservation]:
        """Return the hold of a round: a new one, or the hold of an earlier process that has not drawn its noise."""
        for attempt in count():
            asked: dict[str, Any] = {
                "purpose": f"{self._job}, round {server_round}",
                "expires_in": self._expires_in,
                "charge_delta": self._charge_delta,
                "idempotency_key": f"{self._budget_id}/{self._job}/{server_round}/{attempt}",
            }
            made = self._client.reservations.create(self._budget_id, [self._event], **asked)
            state = self._client.reservations.get(made).state  # Another process may have made it.
            if state == "started":
                # Its noise may already have been drawn, and new noise would be another release: charge it.
                self._client.reservations.commit(made)
            elif state == "pending":
                stack = ExitStack()
                return stack, stack.enter_context(
                    self._client.reserve(self._budget_id, [self._event], start=False, **asked)
                )
        raise AssertionError("there is always another attempt")

    def _give_back(self) -> None:
        """Release the hold of a round that was never aggregated: no noise was drawn for it."""
        if self._round is not None:
            (stack, held), self._round = self._round, None
            with stack:
                held.void()

    def _clipped_sum(self, replies: Iterable[Message]) -> Arrays:
        """Return the sum of the updates of the clients that were asked. Each counts once, clipped to the norm."""
        total = {name: np.zeros_like(part) for name, part in self._current.items()}
        waiting = set(self._asked)
        for reply in replies:
            node = reply.metadata.src_node_id
            if node in waiting:
                waiting.remove(node)
                for name, part in self._clipped(reply).items():
                    total[name] += part
        return total

    def _clipped(self, reply: Message) -> Arrays:
        """Return a client's update; nothing if there is none or it cannot be read."""
        try:
            [record] = reply.content.array_records.values()
            update = {name: part - self._current[name] for name, part in _numbers(record).items()}
        except (AttributeError, KeyError, TypeError, ValueError):
            return {}
        if update.keys() != self._current.keys() or any(
            part.shape != self._current[name].shape for name, part in update.items()
        ):
            return {}
        with np.errstate(over="ignore", invalid="ignore"):
            norm = math.sqrt(math.fsum(float(np.square(part).sum()) for part in update.values()))
        if not math.isfinite(norm):
            return {}
        return {name: part * min(1.0, self._clip / norm if norm else 1.0) for name, part in update.items()}

    def _handed_on(self, server_round: int, mean: Mapping[str, npt.NDArray[np.float64]]) -> ArrayRecord | None:
        """Return the strategy's result for the noisy mean, which the strategy sees as the reply of a single client."""
        assert self._pattern is not None
        content = self._pattern.content
        [(key, before)] = content.array_records.items()
        dtypes = {name: array.numpy().dtype for name, array in before.items()}
        moved = {name: Array((self._current[name] + part).astype(dtypes[name])) for name, part in mean.items()}
        answer = RecordDict({key: ArrayRecord(moved), "metrics": MetricRecord({self._strategy.weighted_by_key: 1})})
        arrays, _ = self._strategy.aggregate_train(server_round, [Message(answer, reply_to=self._pattern)])
        found: ArrayRecord | None = arrays
        return found


def _numbers(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record in double precision.

    Raises:
        ValueError: an array does not hold floating-point numbers.
    """
    found = {}
    for name, array in record.items():
        values = array.numpy()
        if values.dtype.kind != "f":
            raise ValueError(
                f"the array {name!r} has the type {values.dtype}, but noise can be added only to floating-point "
                "numbers: leave the array out of what clients send"
            )
        found[name] = values.astype(np.float64)
    return found


def _coin(probability: float) -> bool:
    """Return whether a secret variate, a multiple of 2^-53, is below the probability."""
    return secrets.randbits(53) < math.floor(probability * 2.0**53)
