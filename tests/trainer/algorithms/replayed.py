"""Neighbours with the same transcript: what one record does to each sum, given all that was released before."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from accounting.relations import NeighboringRelation
from calibrators.plan import Plan
from tests.conformance.trainers.streams import RecordingStreams
from tests.trainer import given
from trainer.clipped_sums import ClippedSums, Term
from trainer.grid import Grid
from trainer.loop import Trainer
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.records import Selection
from trainer.streams import RandomStreams

Data = tuple[np.ndarray, np.ndarray]


def trainer_of(plan: Plan, data: Data, streams: RandomStreams) -> Trainer:
    """A trainer of least squares, to be carried out step by step."""
    model = LinearModel(Squared(), data[0].shape[1], fit_intercept=False)
    return given.trainer_of(plan, model, *data, streams)


@dataclass(frozen=True)
class Moved:
    """What a record does to a sum.

    Attributes:
        steps: The difference of the neighbours' sums, in whole steps of the grid.
        grid: Where the sums lie.
    """

    steps: tuple[int, ...]
    grid: Grid

    @property
    def units(self) -> np.ndarray:
        """The difference in units of the contribution bound, as near as floats come to it."""
        return np.array(self.steps) * self.grid.step

    def is_within(self, sensitivity: int, order: int | float = math.inf) -> bool:
        """Decide, between integers, whether the difference is no longer than so many bounds in the l_order norm."""
        most = Fraction(sensitivity) / Fraction(self.grid.step)
        if math.isinf(order):
            return max(abs(step) for step in self.steps) <= most
        assert order == int(order), "powers of integers are integers"
        return sum(abs(step) ** int(order) for step in self.steps) <= math.floor(most ** int(order))


def sums_of(plan: Plan, one: Data, other: Data, *, seed: int = 0) -> list[Moved]:
    """The differences of the neighbours' sums, in order: the second one's trajectory is that of the first.

    So each is the change of what is noised given the same releases before, as the divergence of a composition takes it.
    """
    true_sum = ClippedSums.of
    found: list[list[tuple[np.ndarray, Grid]]] = []
    for data in (one, other):
        own: list[tuple[np.ndarray, Grid]] = []

        def watched(
            sums: ClippedSums,
            slots: Selection,
            grid: Grid,
            unit: float,
            *terms: Term,
            own: list[tuple[np.ndarray, Grid]] = own,
        ) -> np.ndarray:
            total = np.array(true_sum(sums, slots, grid, unit, *terms))
            assert np.all(total == np.rint(total))
            own.append((total, grid))
            return total.copy() if not found else found[0][len(own) - 1][0].copy()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ClippedSums, "of", watched)
            trainer = trainer_of(plan, data, RecordingStreams(seed))
            for _ in range(plan.iterations):
                trainer.step()
        found.append(own)
    moved = []
    for (first, grid), (second, other_grid) in zip(*found, strict=True):
        assert grid == other_grid, "the grid is public"
        moved.append(Moved(tuple(int(a) - int(b) for a, b in zip(first, second, strict=True)), grid))
    return moved


def neighbours(plan: Plan, features: int, seed: int) -> tuple[Data, Data]:
    """Data that differ in one record, which is as large as it gets and points against its replacement, or is null."""
    rng = np.random.default_rng(seed)
    rows, labels = rng.normal(size=(plan.dataset_size, features)), rng.uniform(-1.0, 1.0, plan.dataset_size)
    where, size = int(rng.integers(plan.dataset_size)), float(rng.choice([0.5, 3.0, 1e3, 1e40]))
    direction = np.eye(features)[0] if seed % 2 else rng.normal(size=features)
    rows[where], labels[where] = size * direction, 1.0
    others, other_labels = rows.copy(), labels.copy()
    if plan.neighboring_relation is NeighboringRelation.REPLACE_SPECIAL:
        others[where] = np.nan
    elif seed % 3:
        other_labels[where] = -1.0
    else:  # whose gradients change in another direction
        others[where] = size * rng.normal(size=features)
    return (rows, labels), (others, other_labels)


def under(plan: Plan, relation: NeighboringRelation) -> Plan:
    return replace(plan, neighboring_relation=relation)
