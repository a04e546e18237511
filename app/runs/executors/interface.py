"""The interface between a worker and the executor that carries out the steps of its runs.

The worker does everything that makes a run one release and one charge: it claims, starts and ends the run, and writes
keys, checkpoints and the model. An executor gets a plan, rows and a checkpoint, and takes steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from app.runs.executors.paces import Pace
from app.runs.job import Job
from app.runs.work import Work
from trainer.checkpoint import Checkpoints
from trainer.devices import Device
from trainer.run import RunResult


class MachinesLost(Exception):
    """Raised when so many machines have died during a training that it is not given to another one."""


class TrainingFailed(Exception):
    """An exception ended the training on another machine.

    Attributes:
        stack: Where the exception was raised, for the log.
    """

    def __init__(self, stack: list[str]) -> None:
        super().__init__("the training failed on its machine")
        self.stack = stack


class Executor(Protocol):
    """Carry out the steps of runs. Several threads may use one executor at once, each for its own run.

    Attributes:
        device: The device that computes; the run's result names it.
        tells_before_each_step: Whether ``on_progress`` is called before each step. Then it may make the step wait.
    """

    tells_before_each_step: bool

    @property
    def device(self) -> Device: ...

    def is_ready(self) -> bool:
        """Return whether a run that is claimed now would be carried out soon. Every claim asks this, so it is cheap."""
        ...

    def pace(self, work: Work) -> Pace:
        """Return how fast such runs are carried out, as measured on dummy rows. Callers may ask repeatedly.

        Raises:
            DeviceFull: the device has too little memory for such runs.
        """
        ...

    def train(
        self,
        job: Job,
        checkpoints: Checkpoints,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> RunResult:
        """Carry out the job's plan, from the given checkpoint to the end.

        Args:
            checkpoints: Asked at least once a second whether a checkpoint is due, and given the checkpoint if it is.
            on_progress: Called with the steps done and the total number of steps, also at least once a second.
            is_cancelled: Asked at least once a second whether to give up.

        Guarantees:
            - executors_agree: the model is the same wherever it is trained, on machines that round in the same way.

        Raises:
            RunCancelled: ``is_cancelled`` returned true.
            MachinesLost: too many machines have died during the training.
        """
        ...
