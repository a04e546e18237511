"""This module takes private DP-SGD steps of ours, through `trainer.run` as the service does, but in float32.

Batches are Poisson, keys come from the operating system, and every guarantee of the loop holds. One turn of this loop
is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from accounting.events import Event, Gaussian, Poisson
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

#: More steps than are ever timed; the run is cancelled before the end.
MANY_STEPS = 10**7


def prepare(_side: str, task: Task) -> Callable[[Array, Array, Pace], None]:
    """Prepare the plan and the model, and return a function that trains on data of any array library until told to
    stop."""
    given, model = replace(plan(task), dtype="float32"), model_of(task)

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


def plan(task: Task) -> Plan:
    """Return the plan of DP-SGD with the noise, the bound and the batches of the other private sides."""
    event = Event(Gaussian(NOISE_MULTIPLIER), Poisson(task.sampling_probability), count=MANY_STEPS)
    phase = Phase(event, Clip(MAX_GRAD_NORM), divisor=task.batch_size, step_size=STEP_SIZE)
    return Plan("dp_sgd", task.rows, NeighboringRelation.ADD_OR_REMOVE_ONE, (phase,))


def model_of(task: Task) -> Model:
    """Return the model of a task: the same as torch's, or least squares."""
    if task.model == "linear":
        return LinearModel(Squared(), task.features, fit_intercept=True)
    if task.model == "softmax":
        return LinearModel(Softmax(CLASSES), FEATURES, fit_intercept=True)
    return MultilayerPerceptron(FEATURES, CLASSES, hidden=(HIDDEN,), activation="relu")
