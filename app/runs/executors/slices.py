"""A slice of a run on a machine of the cluster. A slice takes some seconds. It goes from one checkpoint to the next, or
to the end of the run.

A slice has no access to the database, the ledger, the data folder or the service's keys. Rows, a plan, a model and a
checkpoint come with the call, and the answer is the next checkpoint or the released parameters. The input determines
the answer, so a slice that was lost with its machine can be repeated elsewhere without drawing new noise. A slice for
which nobody waits any more ends by itself.

Nothing here is printed. Dask shows the names and texts of the objects that it handles. So objects with data have
neutral texts, and an exception is returned as types and places.
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
    """Scaled features and labels, as one object that the scheduler places and moves."""

    features: npt.NDArray[np.float64]
    labels: npt.NDArray[Any]

    def __sizeof__(self) -> int:
        # Dask reads this attribute, and would not count the arrays by itself.
        return self.features.nbytes + self.labels.nbytes


@dataclass(frozen=True, repr=False, eq=False)
class Slice:
    """Some seconds of a run.

    Attributes:
        plan: Canonical bytes.
        plan_hash: The hash of the plan, as it was charged.
        model: What is trained.
        capacity: Slots of the data set.
        checkpoint: The checkpoint from which it continues.
        data_tag: The data to which the checkpoint is bound, as in `trainer.checkpoint.Binding`.
        code_version: The version of the program that may continue from it.
        seconds: The time after which no further step is begun.
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
    """The result of a slice after which the run is not finished.

    Attributes:
        steps: The steps done so far, by this slice and all before it.
        checkpoint: The checkpoint for the next slice.
        loading_s: The seconds before the first step.
    """

    steps: int
    checkpoint: bytes
    loading_s: float


@dataclass(frozen=True, repr=False, eq=False)
class Finished:
    """The released point, as arrays with the model's names."""

    parameters: dict[str, npt.NDArray[np.float64]]
    steps: int


@dataclass(frozen=True, eq=False)
class Failed:
    """An exception, with the place where it was raised but without its message."""

    stack: list[str]


@dataclass(frozen=True, eq=False)
class Refused:
    """The answer of a machine whose program is not the one that made the checkpoint. The machine took no step."""


Outcome = Unfinished | Finished | Failed | Refused


def train_slice(work: Slice, rows: Rows) -> Outcome:
    """Take the steps of one slice.

    Guarantees:
        - slices_make_the_run: the slices, however the run is divided and wherever they run, lead to the model of
          `trainer.run.run` to the last bit, on machines that round in the same way.
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
    """The answers of a machine to the questions that are asked before it gets any rows.

    Attributes:
        code_version: The version of its program.
        may_spill: Whether it may write data to its disk, unencrypted, if its memory runs short.
    """

    code_version: str
    may_spill: bool


def inspect_machine(dask_worker: Worker) -> Machine:
    """Return a machine's answers; Dask fills in the argument."""
    return Machine(code_version(), isinstance(dask_worker.data, SpillBuffer))
