"""A slice of a run on a machine of the cluster: some seconds, from a checkpoint to the next one or to the end.

It sees no database, no ledger, no data folder and no key of the service: rows, a plan, a model and a checkpoint come
with the call, and what it answers is the next checkpoint or the released parameters. What it is given decides that
answer, so a slice that was lost with its machine is repeated elsewhere and no noise is drawn twice; and one that nobody
waits for any more ends by itself.

Nothing here is printed: Dask shows the names and texts of what it handles, so whatever holds data has a plain one, and
an exception is answered as types and places.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed import Worker
from distributed.spill import SpillBuffer

from app.observability.stack import stack_lines
from app.runs.versions import code_version
from calibrators.plan import plan_from_canonical
from trainer.checkpoint import Checkpoints
from trainer.models import Model
from trainer.run import RunCancelled, run


@dataclass(frozen=True, repr=False, eq=False)
class Rows:
    """Scaled features and labels: what the scheduler places and moves, as one thing."""

    features: npt.NDArray[np.float64]
    labels: npt.NDArray[Any]

    def __sizeof__(self) -> int:
        # Read by Dask, which would take the arrays for nothing.
        return self.features.nbytes + self.labels.nbytes


@dataclass(frozen=True, repr=False, eq=False)
class Slice:
    """Some seconds of a run.

    Attributes:
        plan: Canonical bytes.
        plan_hash: The hash of the plan, as it was charged.
        model: What is trained.
        capacity: Slots of the data set.
        checkpoint: To go on from.
        data_tag: What the checkpoint is bound to, see `trainer.checkpoint.Binding`.
        code_version: The program that may go on from it.
        seconds: After so many, the step that is under way is the last.
    """

    plan: bytes
    plan_hash: str
    model: Model
    capacity: int
    checkpoint: bytes
    data_tag: str
    code_version: str
    seconds: float


@dataclass(frozen=True, repr=False, eq=False)
class Unfinished:
    """There is more to do.

    Attributes:
        steps: Done so far, by this slice and all before it.
        checkpoint: For the next slice.
        loading_s: Seconds that passed before the first step.
    """

    steps: int
    checkpoint: bytes
    loading_s: float


@dataclass(frozen=True, repr=False, eq=False)
class Finished:
    """The released point, under the model's names."""

    parameters: dict[str, npt.NDArray[np.float64]]
    steps: int


@dataclass(frozen=True, eq=False)
class Failed:
    """An exception: where it came from, without its message."""

    stack: list[str]


@dataclass(frozen=True, eq=False)
class Refused:
    """This machine runs another program than the one that the checkpoint belongs to; it took no step."""


Outcome = Unfinished | Finished | Failed | Refused


def train_slice(work: Slice, rows: Rows) -> Outcome:
    """Take the steps of one slice.

    Guarantees:
        - slices_make_the_run: slice after slice, however they are cut and wherever they are, leads to the model of
          `trainer.run.run` to the last bit, on machines that compute alike.
    """
    if code_version() != work.code_version:
        return Refused()
    try:
        return _train(work, rows)
    except Exception as error:
        return Failed(stack_lines(error))


def _train(work: Slice, rows: Rows) -> Unfinished | Finished:
    began, first_step, kept = time.monotonic(), 0.0, None

    def keep(checkpoint: bytes) -> None:
        nonlocal kept
        kept = checkpoint

    def on_progress(_done: int, _total: int) -> None:
        nonlocal first_step
        first_step = first_step or time.monotonic()

    try:
        result = run(
            plan_from_canonical(work.plan, work.plan_hash),
            work.model,
            rows.features,
            rows.labels,
            capacity=work.capacity,
            on_progress=on_progress,
            is_cancelled=lambda: kept is not None,
            checkpoint=Checkpoints(
                keep,
                lambda _steps: time.monotonic() - first_step >= work.seconds,
                work.data_tag,
                work.code_version,
                work.checkpoint,
            ),
        )
    except RunCancelled as cut:
        assert kept is not None, "it is what ended the slice"
        return Unfinished(cut.steps, kept, first_step - began)
    return Finished(result.parameters, result.steps)


@dataclass(frozen=True)
class Machine:
    """The questions that a machine is asked before it gets any rows.

    Attributes:
        code_version: Of its program.
        may_spill: Whether it writes what it holds to its disk when its memory runs short, unencrypted.
    """

    code_version: str
    may_spill: bool


def inspect_machine(dask_worker: Worker) -> Machine:
    """Asked of each machine; Dask fills in the argument."""
    return Machine(code_version(), isinstance(dask_worker.data, SpillBuffer))
