"""This module takes our private DP-SGD steps with `trainer.run`, as the service does, but in float32.

A timed step is one turn of the loop in `trainer.run`. Its keys come from the operating system, and all guarantees of
the loop hold. There are three kinds of batches: Poisson batches that are padded to a size that no step of the run
exceeds, Poisson batches that are cut at random to a smaller size, and batches of a fixed size, like those of plain
torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from accounting.events import Event, Gaussian, Poisson, TruncatedPoisson, WithoutReplacement
from accounting.events.samplings import Sampling
from accounting.relations import NeighboringRelation
from benchmarks.trainer.pace import Pace
from benchmarks.trainer.work import (
    CLASSES,
    FEATURES,
    HIDDEN,
    MAX_GRAD_NORM,
    NOISE_MULTIPLIER,
    STEP_SIZE,
    Task,
)
from calibrators.plan import Clip, Phase, Plan
from trainer.arrays import Array
from trainer.losses import Softmax, Squared
from trainer.models import LinearModel, Model, MultilayerPerceptron
from trainer.run import RunCancelled, run

#: The number of steps of the plan. It is larger than the number of timed steps, and the run is cancelled before its
#: end.
MANY_STEPS = 10**7
#: Batches are cut at this many standard deviations above their mean size. With 60000 records, noise 1 and 1000 steps,
#: that raises epsilon by 0.3 % in batches of 256, and by 0.02 % in batches of 1024.
CUT_AFTER = 5.0


def prepare(side: str, task: Task) -> Callable[[Array, Array, Pace], None]:
    """Return a function that trains on arrays of any library until it is told to stop."""
    given, model = replace(plan(task, side), dtype="float32"), model_of(task)

    def train(features: Array, labels: Array, pace: Pace) -> None:
        try:
            run(
                given,
                model,
                features,
                labels,
                on_progress=lambda _done, _total: pace(),
                is_cancelled=lambda: pace.over,
            )
        except RunCancelled:
            return
        raise AssertionError("unreachable: nobody times so many steps")

    return train


def plan(task: Task, side: str = "ours") -> Plan:
    """Return a plan of DP-SGD with the noise and clip threshold of the other private sides, and the batches of this
    side."""
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    batches: Sampling = Poisson(task.sampling_probability)
    if side == "ours_cut":
        largest = task.batch_size + math.ceil(CUT_AFTER * math.sqrt(task.batch_size))
        batches = TruncatedPoisson(task.sampling_probability, largest, task.rows, "random_slots")
    elif side == "ours_fixed":
        relation, batches = NeighboringRelation.REPLACE_ONE, WithoutReplacement(task.batch_size, task.rows)
    event = Event(Gaussian(NOISE_MULTIPLIER), batches, count=MANY_STEPS)
    phase = Phase(event, Clip(MAX_GRAD_NORM), divisor=task.batch_size, step_size=STEP_SIZE)
    return Plan("dp_sgd", task.rows, relation, (phase,))


def model_of(task: Task) -> Model:
    """Return the model of a task. The sides with torch have the same models, except least squares."""
    if task.model == "linear":
        return LinearModel(Squared(), task.features, fit_intercept=True)
    if task.model == "softmax":
        return LinearModel(Softmax(CLASSES), FEATURES, fit_intercept=True)
    return MultilayerPerceptron(FEATURES, CLASSES, hidden=(HIDDEN,), activation="relu")
