"""This module carries out a plan on data and returns the model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue, Unsupported, one_of
from accounting.events import (
    Blocks,
    CyclicPoisson,
    DisjointBatches,
    FixedOrderEpochs,
    Poisson,
    RandomAllocation,
    ShuffledEpochs,
    TruncatedPoisson,
    WithoutReplacement,
)
from calibrators.plan import BoundedSteps, Plan
from calibrators.spec import default_capacity
from trainer.algorithms import EXECUTIONS
from trainer.arrays import Array, on_host, silent, to_host
from trainer.checkpoint import Binding, Checkpoints, pack, unpack
from trainer.execution import Execution
from trainer.loop import Task, Trainer
from trainer.models import Model
from trainer.products import one_core_left
from trainer.records import Records, prepare
from trainer.streams import RandomStreams, random_streams

#: The noise gets a core of its own if there are at least this many parameters and a step has at most that many records.
_LONG_NOISE, _SHORT_PRODUCTS = 1 << 15, 64


@dataclass(frozen=True)
class RunResult:
    """Everything that a run releases, and nothing else.

    Attributes:
        parameters: The released point under the model's names, such as "weights" and "bias".
        steps: The number of steps that were carried out, which is the plan's.
    """

    parameters: dict[str, npt.NDArray[np.float64]]
    steps: int


class RunCancelled(Exception):
    """The run was asked to stop; nothing is released.

    Attributes:
        steps: The number of steps that had been carried out.
    """

    def __init__(self, steps: int) -> None:
        super().__init__(f"cancelled after {steps} steps")
        self.steps = steps


def run(
    plan: Plan,
    model: Model,
    features: Array,
    labels: Array,
    *,
    seed: int | None = None,
    capacity: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    is_cancelled: Callable[[], bool] | None = None,
    checkpoint: Checkpoints | None = None,
    streams: RandomStreams | None = None,
) -> RunResult:
    """Carry out the plan on private rows.

    The plan decides sampling, bounds, noise, step sizes, divisors, the number of steps, the numeric type and which
    point is released. The rows decide the sums of bounded contributions and nothing else: no divisor and no amount of
    work depends on the number of rows, and no value of a row raises, warns or is logged. There may be no rows.

    Args:
        plan: An executable plan of an algorithm in `trainer.algorithms`.
        model: The model to train, from its initial parameters.
        features: shape (n, p), scaled by declared bounds (`trainer.scaling`); NumPy, CuPy or array API.
        labels: shape (n,), class indices, or real numbers in [-1, 1] if the model predicts numbers.
        seed: A seed for runs on public data only: with the seed, the noise can be subtracted. If it is None, the
            operating system makes the keys. A run that goes on from a checkpoint uses the keys of the checkpoint.
        capacity: The number of slots of the data set, a public number: at least the declared size, and at least the
            number of rows. None takes `usual_capacity`.
        on_progress: A cheap function that is called with (steps done, steps in all) at the start and after every step.
        is_cancelled: A cheap function that is called before every step; if it returns true, the run stops.
        checkpoint: The place of checkpoints, and the checkpoint from which to go on, if any.
        streams: For tests only: streams that give known batches and noise.

    Returns:
        The released point as NumPy arrays, and the number of steps.

    Guarantees:
        - what_was_charged_is_what_runs: sampler, noise, bound and counts are those of the plan's events.
        - rows_show_only_in_the_model: exceptions, warnings, progress and shapes are the same for every value of a row,
          and also if the row is missing.
        - resumed_runs_go_on: bit by bit as if they had never been interrupted, from `first_checkpoint` on.
        - unseeded_runs_differ, seeded_runs_repeat.

    Requires:
        Each row was scaled without looking at other rows; a seed is given for public data only.

    Raises:
        InvalidValue: If the plan is not executable or its parts do not fit the algorithm; if shapes do not fit the
            model; if there are fewer slots than declared records or fewer slots than rows; if the seed is not a
            non-negative integer; or if the checkpoint belongs to something else.
        Unsupported: If there is no trainer of this name, or if there is no sampler for a kind of sampling that was
            charged.
        RunCancelled: If ``is_cancelled`` returned true.

    >>> from accounting.events import Event, Gaussian
    >>> from accounting.relations import NeighboringRelation
    >>> from calibrators.plan import Clip, Phase
    >>> from trainer.models import logistic_regression
    >>> phase = Phase(Event(Gaussian(1.0), count=5), Clip(1.0), divisor=2, step_size=0.5)
    >>> plan = Plan("dp_sgd", 2, NeighboringRelation.ADD_OR_REMOVE_ONE, (phase,))
    >>> result = run(plan, logistic_regression(3), np.zeros((2, 3)), np.array([0, 1]))
    >>> result.steps, result.parameters["weights"].shape, result.parameters["bias"].shape
    (5, (3,), ())
    """
    execution = execution_of(plan)
    capacity = usual_capacity(plan) if capacity is None else capacity
    if capacity < plan.dataset_size:
        raise InvalidValue(f"capacity must be at least the declared size {plan.dataset_size}", pointer=("capacity",))
    streams = random_streams(seed) if streams is None else streams
    keeper = None if checkpoint is None else _Keeper(checkpoint, plan, streams)
    state = None if keeper is None else keeper.resumed()
    records = prepare(model, features, labels, plan.dtype, capacity, streams.slots)
    trainer = execution.make(Task(plan, model, records, streams))
    with cores_for(plan, model, records):
        try:
            if state is not None:
                trainer.restore(state)
            _carry_out(trainer, plan.iterations, on_progress, is_cancelled, keeper)
            with silent():
                return RunResult(model.parameters(to_host(trainer.released())), trainer.steps_done)
        finally:
            trainer.close()


def cores_for(plan: Plan, model: Model, records: Records) -> AbstractContextManager[None]:
    """Leave a core to the noise if the noise takes about as long as the products. Both take d numbers for each
    record."""
    if on_host(records.xp) and model.num_parameters >= _LONG_NOISE and rows_per_step(plan) <= _SHORT_PRODUCTS:
        return one_core_left()
    return nullcontext()


def first_checkpoint(binding: Binding, seed: int | None = None) -> bytes:
    """Return the checkpoint of a run that has not begun. It has the run's keys, from which nothing is drawn yet.

    Every run that goes on from this checkpoint draws the same batches and the same noise. So a caller who keeps the
    checkpoint before the run begins can repeat a run that was lost, and never releases it a second time with other
    noise.

    Args:
        seed: A seed for public data only; see `run`.

    Raises:
        InvalidValue: If the seed is no non-negative integer.
    """
    return pack(binding, {"steps": 0, "streams": random_streams(seed).state(), "trainer": None})


def steps_in(binding: Binding, checkpoint: bytes) -> int:
    """Return how many steps had been carried out when the checkpoint was made.

    Raises:
        InvalidValue: If these are not the bytes of a checkpoint, or the checkpoint belongs to something else.
    """
    return int(unpack(binding, checkpoint)["steps"])


class _Keeper:
    """Keeps the checkpoints of one run."""

    def __init__(self, checkpoint: Checkpoints, plan: Plan, streams: RandomStreams) -> None:
        self._checkpoint = checkpoint
        self._binding = Binding(plan.plan_hash, checkpoint.data_tag, checkpoint.code_version)
        self._streams = streams

    def resumed(self) -> dict[str, object] | None:
        """Return the trainer's state in the checkpoint to go on from, and restore the streams that it does not contain.

        Return None if no step was carried out. The run then begins with the streams of the checkpoint, if there is one.
        """
        trainer: dict[str, object] | None = None
        if self._checkpoint.resume is not None:
            stored = unpack(self._binding, self._checkpoint.resume)
            trainer = stored["trainer"]
            if trainer is None:
                self._streams.restore(stored["streams"])
            else:
                self._streams.slots.state = stored["slots"]
        self._drawn_from = self._streams.slots.state
        return trainer

    def after_step(self, trainer: Trainer) -> None:
        if self._checkpoint.is_due(trainer.steps_done):
            state = {"steps": trainer.steps_done, "slots": self._drawn_from, "trainer": trainer.state()}
            self._checkpoint.save(pack(self._binding, state))


def _carry_out(
    trainer: Trainer,
    total: int,
    on_progress: Callable[[int, int], None] | None,
    is_cancelled: Callable[[], bool] | None,
    keeper: _Keeper | None,
) -> None:
    _tell(on_progress, trainer.steps_done, total)
    while trainer.steps_done < total:
        if is_cancelled is not None and is_cancelled():
            raise RunCancelled(trainer.steps_done)
        trainer.step()
        _tell(on_progress, trainer.steps_done, total)
        if keeper is not None:
            keeper.after_step(trainer)


def _tell(on_progress: Callable[[int, int], None] | None, done: int, total: int) -> None:
    if on_progress is not None:
        on_progress(done, total)


def execution_of(plan: Plan) -> Execution:
    """Return the record of how the plan's algorithm is carried out.

    Raises:
        Unsupported: If there is no trainer of this name.
    """
    execution = EXECUTIONS.get(plan.algorithm)
    if execution is None:
        raise Unsupported(
            f"no trainer for {plan.algorithm!r}; use {one_of(list(EXECUTIONS))}",
            code="unsupported_algorithm",
            pointer=("algorithm",),
        )
    return execution


def usual_capacity(plan: Plan) -> int:
    """Return the capacity of a run if none is given: the one for which it is charged, if any, else
    `default_capacity`."""
    charged = [
        event.sampling.dataset_size
        for event in plan.events
        if isinstance(event.sampling, TruncatedPoisson) and event.sampling.truncation == "random_slots"
    ]
    return max(charged, default=default_capacity(plan.dataset_size))


def rows_per_step(plan: Plan) -> float:
    """Return the largest mean number of records in a step of the plan, a public number that follows from the declared
    size."""
    return max(rows_of(phase, plan.dataset_size) for phase in plan.phases)


def rows_of(phase: object, dataset_size: int) -> float:
    """Return the mean number of records in a step of the phase, which follows from the declared size."""
    if not isinstance(phase, BoundedSteps):
        return float(dataset_size)
    match phase.event.sampling:
        case Poisson() | WithoutReplacement() as sampling:
            share = sampling.sampling_probability
        case TruncatedPoisson() as sampling:
            return min(sampling.sampling_probability * sampling.dataset_size, float(sampling.max_batch_size))
        case RandomAllocation() | Blocks() as sampling:
            share = sampling.participations / sampling.num_bins
        case CyclicPoisson() as sampling:
            share = sampling.sampling_probability / sampling.cycle_length
        case ShuffledEpochs() | FixedOrderEpochs() as sampling:
            share = 1.0 / sampling.steps_per_epoch
        case DisjointBatches():
            share = min(phase.divisor / dataset_size, 1.0)
        case _:
            share = 1.0
    return share * dataset_size
