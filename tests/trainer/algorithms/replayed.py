"""Neighbours with the same transcript: what one record does to each mean, given all that was released before."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

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
from trainer.streams import RandomStreams

Data = tuple[np.ndarray, np.ndarray]


def trainer_of(plan: Plan, data: Data, streams: RandomStreams, dtype: str = "float64") -> Trainer:
    """A trainer of least squares, to be carried out step by step."""
    model = LinearModel(Squared(), data[0].shape[1], fit_intercept=False)
    return given.trainer_of(replace(plan, dtype=dtype), model, *data, streams)


def means_of(plan: Plan, one: Data, other: Data, *, seed: int = 0, dtype: str = "float64") -> list[np.ndarray]:
    """The differences of the neighbours' sums over their bound, in order; the second one's trajectory is the first's.

    So each is the change of what is noised given the same releases before, as the divergence of a composition takes it.
    """
    method = ClippedSums.of
    found: list[list[np.ndarray]] = []
    steps: list[float] = []
    for data in (one, other):
        own: list[np.ndarray] = []

        def watched(
            self: ClippedSums, slots: Any, grid: Grid, unit: float, *terms: Term, _own: list[np.ndarray] = own
        ) -> np.ndarray:
            _own.append(np.asarray(method(self, slots, grid, unit, *terms)))
            assert np.all(_own[-1] == np.rint(_own[-1]))
            steps.append(grid.step)
            return _own[-1] if not found else found[0][len(_own) - 1]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ClippedSums, "of", watched)
            trainer = trainer_of(plan, data, RecordingStreams(seed), dtype)
            for _ in range(plan.iterations):
                trainer.step()
        found.append(own)
    # Whole numbers times a power of two: exact.
    return [(first - second) * step for first, second, step in zip(*found, steps, strict=False)]


def cubed_norm(moved: np.ndarray) -> Fraction:
    """The cube of the l_3 norm, without rounding."""
    return sum((abs(Fraction(entry)) ** 3 for entry in moved.tolist()), Fraction(0))


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
