"""Stepping: draw the rows, draw the noise, update. The same for every algorithm that releases noisy gradient sums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from calibrators.plan import Phase
from trainer.arrays import Array, silent
from trainer.gradients import Batch, SelectedBatch
from trainer.models import Model
from trainer.records import Records
from trainer.samplers import Sampler


class Update(Protocol):
    """One step of an algorithm: point, batch, phase and standard normal noise to the next point."""

    def __call__(self, point: Array, batch: Batch, phase: Phase, standard_noise: Array) -> Array: ...


class Noise(Protocol):
    """A source of independent standard normal variates."""

    def standard_normal(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]: ...


def points(
    phase: Phase, update: Update, model: Model, records: Records, *, start: Array, sampler: Sampler, noise: Noise
) -> Iterator[Array]:
    """The points that the phase's steps lead to, ``phase.event.count`` of them.

    Every step draws its rows and then its noise, an empty batch included, so each step is one charged event.

    Args:
        start: shape (num_inputs, num_outputs), float64.
        sampler: Draws each step's rows; of the kind that ``phase.event.sampling`` was charged for.
        noise: Draws each step's noise.

    Guarantees:
        - as_many_steps_as_charged: exactly the event's count.
        - empty_batches_are_noised: the noise is added whatever was drawn.
    """
    point = start
    shape = (model.num_inputs, model.num_outputs)
    for _ in range(phase.event.count):
        with silent():
            batch = SelectedBatch(model, records, sampler.draw(), point)
            point = update(point, batch, phase, records.xp.asarray(noise.standard_normal(shape)))
        yield point
