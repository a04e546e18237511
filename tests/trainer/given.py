"""Given batches and given noise in place of random ones, for tests that compare steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calibrators.plan import Plan
from trainer.algorithms import EXECUTIONS
from trainer.keystream import Keystream
from trainer.loop import Task, Trainer
from trainer.models import Model
from trainer.records import Records, prepare
from trainer.run import usual_capacity
from trainer.streams import RandomStreams, random_streams


class GivenBatches:
    """Rows, by their numbers as they were handed to the run, in place of a sampler's."""

    def __init__(self, batches: list[np.ndarray], positions: np.ndarray) -> None:
        self._batches, self._positions = batches, positions

    def draw(self) -> np.ndarray:
        found: np.ndarray = self._positions[self._batches.pop(0)]
        return found

    def state(self) -> dict[str, Any]:
        raise AssertionError("given batches are not checkpointed")

    def restore(self, state: dict[str, Any]) -> None:
        raise AssertionError("given batches are not checkpointed")


class GivenNoise:
    """Vectors in place of noise."""

    def __init__(self, noises: list[np.ndarray]) -> None:
        self._noises = noises

    def rounded(self, size: int, scale: float) -> np.ndarray:
        noise = self._noises.pop(0)
        assert noise.shape == (size,)
        found: np.ndarray = np.rint(scale * noise)
        return found

    def state(self) -> dict[str, Any]:
        raise AssertionError("given noise is not checkpointed")

    def restore(self, state: dict[str, Any]) -> None:
        raise AssertionError("given noise is not checkpointed")

    def close(self) -> None:
        pass


class GivenStreams(RandomStreams):
    """Streams with given batches (or the plan's own sampler, where there are none) and given noise.

    Args:
        noises: One vector of shape (d,) for each step.
        batches: Rows of each step, across phases.
        seed: Of everything else.
    """

    def __init__(
        self, noises: Sequence[np.ndarray], batches: Sequence[Sequence[int]] | None = None, seed: int = 0
    ) -> None:
        streams: dict[str, Keystream] = vars(random_streams(seed))
        super().__init__(**streams)
        rows = None if batches is None else [np.asarray(batch, dtype=np.intp) for batch in batches]
        object.__setattr__(self, "_batches", rows)
        object.__setattr__(self, "_noises", [np.asarray(noise, dtype=np.float64) for noise in noises])

    def gaussian_noise(self) -> GivenNoise:
        return GivenNoise(self.__dict__["_noises"])

    def sampler(self, sampling: Any, steps: int, divisor: int, dataset_size: int, records: Any) -> Any:
        batches = self.__dict__["_batches"]
        if batches is None:
            return super().sampler(sampling, steps, divisor, dataset_size, records)
        return GivenBatches(batches, records.positions)


def in_slots(
    plan: Plan, model: Model, features: np.ndarray, labels: np.ndarray, streams: RandomStreams, capacity: int = 0
) -> Records:
    """Return the rows in slots as a run puts them there; more slots than usual where there are more rows."""
    slots = max(capacity, usual_capacity(plan), features.shape[0])
    return prepare(model, features, labels, plan.dtype, slots, streams.slots)


def trainer_of(
    plan: Plan, model: Model, features: np.ndarray, labels: np.ndarray, streams: RandomStreams, capacity: int = 0
) -> Trainer:
    """Return the trainer of a plan, as a run makes it."""
    records = in_slots(plan, model, features, labels, streams, capacity)
    return EXECUTIONS[plan.algorithm].make(Task(plan, model, records, streams))
