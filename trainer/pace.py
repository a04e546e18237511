"""This module measures how fast this machine carries out a plan, on dummy rows of the same public sizes.

The measured time decides when the end of a private run is released, so it must not depend on a private row. No rows are
passed in: the dummy rows follow from the model and the capacity.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.plan import Plan
from trainer.devices import HOST, Device
from trainer.exact.gaussian import load_noise
from trainer.loop import Task, Trainer
from trainer.models import Model
from trainer.records import prepare
from trainer.run import cores_for, execution_of, rows_of
from trainer.streams import random_streams

#: Seconds of steps that are measured, unless the plan is shorter.
BUDGET_S = 0.25


@dataclass(frozen=True)
class Pace:
    """The time that carrying out a plan takes, in seconds.

    Attributes:
        preparing_s: The time from the scaled rows to the first step.
        step_s: The time of a step, averaged over the plan.
    """

    preparing_s: float
    step_s: float


def measure(
    plan: Plan,
    model: Model,
    capacity: int,
    *,
    device: Device = HOST,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.perf_counter,
) -> Pace:
    """Carry out the first steps of an executable plan on dummy rows.

    The first step is a warm-up, which does not count unless it takes the whole budget. The model of the dummy rows is
    dropped.

    Args:
        plan: The plan to carry out.
        model: The model to train.
        capacity: The number of slots of the data set, a public number.
        device: The device on which the plan is carried out.
        budget_s: Steps are measured for about this many seconds.
        clock: A monotonic clock, in seconds.

    Guarantees:
        - no_rows_are_measured: everything that is timed follows from the arguments, and no argument is a row.

    Raises:
        InvalidValue, Unsupported: As `trainer.run.run` does.
        DeviceFull: If the device has too little memory.
    """
    with device.used():
        return _measured(plan, model, capacity, device, budget_s, clock)


def _measured(
    plan: Plan, model: Model, capacity: int, device: Device, budget_s: float, clock: Callable[[], float]
) -> Pace:
    # Otherwise the first step would wait for it, and take the whole budget.
    load_noise()
    began = clock()
    streams = random_streams()
    features, labels = map(device.holding, dummy_rows(model, capacity))
    records = prepare(model, features, labels, plan.dtype, capacity, streams.slots)
    device.settle()
    preparing_s = clock() - began
    execution = execution_of(plan)
    if device is not HOST:
        # The first step of all compiles what the device runs, which may take longer than the budget.
        _steps(execution.make(Task(plan, model, records, random_streams())), 1, budget_s, clock, device)
    with cores_for(plan, model, records):
        warm = execution.make(Task(plan, model, records, random_streams()))
        steps, seconds = _steps(warm, 1, budget_s, clock, device)
        if seconds < budget_s:
            trainer = execution.make(Task(plan, model, records, streams))
            steps, seconds = _steps(trainer, plan.iterations, budget_s, clock, device)
    return Pace(preparing_s, seconds / steps * _heavier(plan, steps))


def dummy_rows(model: Model, count: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return this many rows of scaled features, and their labels: the same for every data set."""
    ramp = np.linspace(-1.0, 1.0, count * model.num_features).reshape(count, model.num_features)
    labels = np.linspace(-1.0, 1.0, count)
    return ramp, np.arange(count, dtype=np.float64) % model.num_classes if model.num_classes else labels


def _steps(
    trainer: Trainer, most: int, budget_s: float, clock: Callable[[], float], device: Device
) -> tuple[int, float]:
    """Take ``most`` steps, or as many as the budget allows, at least one. Return their number and the seconds."""
    try:
        began = clock()
        while trainer.steps_done < most and (trainer.steps_done == 0 or clock() - began < budget_s):
            trainer.step()
        device.settle()
        return trainer.steps_done, clock() - began
    finally:
        trainer.close()


def _heavier(plan: Plan, measured: int) -> float:
    """Return the work of an average step of the plan over the work of a measured step, at least 1."""
    weights = [(phase.steps, rows_of(phase, plan.dataset_size)) for phase in plan.phases]
    left, rows = measured, 0.0
    for steps, weight in weights:
        taken = min(left, steps)
        rows, left = rows + taken * weight, left - taken
    mean = max(rows / measured, 1.0)
    return sum(steps * max(1.0, weight / mean) for steps, weight in weights) / plan.iterations
