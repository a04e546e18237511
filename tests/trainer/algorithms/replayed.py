"""Neighbours with the same transcript: what one record does to each mean, given all that was released before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting.relations import NeighboringRelation
from calibrators.plan import Plan
from tests.conformance.trainers.streams import RecordingStreams
from trainer.algorithms import ALGORITHMS
from trainer.clipped_means import ClippedMeans
from trainer.loop import Task, Trainer
from trainer.losses import Squared
from trainer.models import LinearModel
from trainer.records import lanes_for, prepare
from trainer.run import rows_per_step
from trainer.streams import RandomStreams

Data = tuple[np.ndarray, np.ndarray]


def trainer_of(plan: Plan, data: Data, streams: RandomStreams, dtype: str = "float64") -> Trainer:
    """A trainer of least squares, to be carried out step by step."""
    model = LinearModel(Squared(), data[0].shape[1], fit_intercept=False)
    records = prepare(model, *data, dtype, lanes_for(rows_per_step(plan)), streams.lanes)
    return ALGORITHMS[plan.algorithm].make(Task(plan, model, records, streams, dtype))


def means_of(plan: Plan, one: Data, other: Data, *, seed: int = 0, dtype: str = "float64") -> list[np.ndarray]:
    """The differences of the neighbours' means, in order: the second one's trajectory is that of the first.

    So each is the change of what is noised given the same releases before, as the divergence of a composition takes it.
    """
    methods = {name: getattr(ClippedMeans, name) for name in ("of_gradients", "of_changes")}
    found: list[list[np.ndarray]] = []
    for data in (one, other):
        own: list[np.ndarray] = []
        with pytest.MonkeyPatch.context() as patched:
            for name, method in methods.items():

                def watched(self, *args, _method=method, _own=own):  # type: ignore[no-untyped-def]
                    _own.append(np.asarray(_method(self, *args)))
                    return _own[-1] if not found else found[0][len(_own) - 1]

                patched.setattr(ClippedMeans, name, watched)
            trainer = trainer_of(plan, data, RecordingStreams(seed), dtype)
            for _ in range(plan.iterations):
                trainer.step()
        found.append(own)
    return [first - second for first, second in zip(*found, strict=True)]


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
