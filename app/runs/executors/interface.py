"""A worker asks this of whatever carries out its runs.

The worker keeps all that makes a run one release and one charge: the claim, the start, the keys and checkpoints on the
disk, the model, the end. An executor gets a plan, rows and a checkpoint, and takes steps.
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
    """A training has cost so many machines their lives that it is not given to another."""


class TrainingFailed(Exception):
    """An exception ended the training on another machine.

    Attributes:
        stack: Where it came from, for the log.
    """

    def __init__(self, stack: list[str]) -> None:
        super().__init__("the training failed on its machine")
        self.stack = stack


class Executor(Protocol):
    """Carries out the steps of runs. Several threads may use one at once, with a run each.

    Attributes:
        device: What computes; it is told with the run's result.
        tells_before_each_step: Whether ``on_progress`` is told before each step, and may wait there.
    """

    tells_before_each_step: bool

    @property
    def device(self) -> Device: ...

    def is_ready(self) -> bool:
        """Return whether a run that is claimed now would be carried out soon. Every claim asks it, so it is cheap."""
        ...

    def pace(self, work: Work) -> Pace:
        """Return how fast such runs are carried out, as measured on dummy rows. It may be asked again and again.

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
        """Carry out the job's plan, from the checkpoint to go on from to the end.

        Args:
            checkpoints: Asked whether one is due, and given one, at least once a second.
            on_progress: Told the steps done and the steps in all, likewise.
            is_cancelled: Asked whether to give up, likewise.

        Guarantees:
            - executors_agree: the model is the same wherever it is trained, on machines that compute alike.

        Raises:
            RunCancelled: ``is_cancelled`` said so.
            MachinesLost: see there.
        """
        ...
