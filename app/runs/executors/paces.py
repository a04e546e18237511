"""Measure how fast this machine carries out runs, on dummy rows and without any private row."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from app.datasets.columns import CategoryColumn
from app.runs.scoring import sum_of_contributions
from app.runs.work import Work
from trainer.devices import HOST, Device
from trainer.held_out import layout_of, noise_stddev, noisy_sums
from trainer.held_out_metrics import metrics_of
from trainer.models import TASKS, Task
from trainer.pace import dummy_rows, measure
from trainer.scores import class_scores, number_scores
from trainer.streams import random_streams

#: A disk is assumed to read and write at least this many bytes per second. Decryption is at least as fast.
BYTES_PER_S = 2.5e8
#: The number of rows on which reading is measured, and the number of rows on which scoring is measured.
SAMPLED_ROWS, SCORED_ROWS = 4096, 32
#: Public rows are measured on at most this many numbers, or on `SCORED_ROWS` rows if these have more.
SAMPLED_NUMBERS = 2**21
#: The number of paces that are remembered.
KNOWN_PACES = 1024


@dataclass(frozen=True)
class Pace:
    """The times that the parts of a run take, in seconds.

    Attributes:
        reading_s: The time to read, hash and scale a full data set (all slots).
        preparing_s: The time from the scaled rows to the first step.
        step_s: The time of a step, averaged over the plan.
        scoring_s: The time to score and evaluate the model on every slot and on public rows, and to write it.
    """

    reading_s: float
    preparing_s: float
    step_s: float
    scoring_s: float


class MeasuredPaces:
    """The paces of this machine, each measured once. Equal shapes have equal paces, and therefore equal schedules.

    Args:
        device: The device that takes the steps.
    """

    def __init__(self, device: Device = HOST) -> None:
        self._device = device
        self._known: OrderedDict[str, Pace] = OrderedDict()
        # Two measurements at once would slow each other down.
        self._measuring = threading.Lock()

    def of(self, work: Work) -> Pace:
        """Return the pace of runs with this work.

        Raises:
            DeviceFull: the device has too little memory for them.
        """
        with self._measuring:
            pace = self._known.get(work.shape)
            if pace is None:
                training = measure(work.plan, work.model, work.capacity, device=self._device)
                scoring_s = _scoring_s(work) + _public_scoring_s(work) + _evaluating_s(work)
                pace = Pace(_reading_s(work), training.preparing_s, training.step_s, scoring_s)
                self._known[work.shape] = pace
            while len(self._known) > KNOWN_PACES:
                self._known.popitem(last=False)
        return pace


def _reading_s(work: Work) -> float:
    """Return the seconds that it takes to read, hash and scale a full data set (all slots) and the test rows."""
    rows, columns = min(work.capacity, SAMPLED_ROWS), work.description.features
    raw = np.linspace(0.0, 1.0, rows * len(columns)).reshape(rows, len(columns))
    for index, column in enumerate(columns):
        if isinstance(column, CategoryColumn):
            raw[:, index] = np.arange(rows) % len(column.categories)
    began = time.perf_counter()
    hashlib.sha256(np.ascontiguousarray(raw).view(np.uint8).data).digest()
    work.description.scale(raw)
    measured = time.perf_counter() - began
    return (work.capacity + work.test_size) * (measured / rows + 8.0 * (len(columns) + 1) / BYTES_PER_S)


def _scoring_s(work: Work) -> float:
    """Return the seconds that it takes to score the model on each slot, if it is scored, and to write it."""
    written_s = 8.0 * work.model.num_parameters / BYTES_PER_S
    if not work.has_score:
        return written_s
    features, labels = dummy_rows(work.model, SCORED_ROWS)
    parameters = work.model.parameters(np.zeros(work.model.num_parameters))
    began = time.perf_counter()
    sum_of_contributions(work.model, parameters, features, labels, SCORED_ROWS)
    return written_s + work.capacity * (time.perf_counter() - began) / SCORED_ROWS


def _public_scoring_s(work: Work) -> float:
    """Return the seconds that it takes to predict and score the public rows."""
    if work.test_size == 0 or TASKS[work.model.kind] is Task.MEAN:
        return 0.0
    rows = min(work.test_size, SAMPLED_ROWS, max(SCORED_ROWS, SAMPLED_NUMBERS // work.model.num_features))
    features, labels = dummy_rows(work.model, rows)
    parameters = work.model.parameters(np.zeros(work.model.num_parameters))
    score = class_scores if work.model.num_classes else number_scores
    began = time.perf_counter()
    score(work.model, parameters, features, labels)
    return work.test_size * (time.perf_counter() - began) / rows


def _evaluating_s(work: Work) -> float:
    """Return the seconds that it takes to compute the sums over the held-out rows, one slot after the other, and the
    metrics."""
    evaluation, model = work.plan.evaluation, work.model
    if evaluation is None:
        return 0.0
    rows = min(work.capacity, SAMPLED_ROWS)
    features, labels = dummy_rows(model, rows)
    parameters = model.parameters(np.zeros(model.num_parameters))
    layout = layout_of(model, parameters)
    began = time.perf_counter()
    sums = noisy_sums(evaluation, model, parameters, features, labels, rows, random_streams())
    drawn = time.perf_counter()
    metrics_of(layout, sums, noise_stddev(evaluation, layout))
    return work.capacity * (drawn - began) / rows + time.perf_counter() - drawn
