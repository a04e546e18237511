"""Carry out runs in the worker's own process, on the host or on a device of its machine."""

from __future__ import annotations

from collections.abc import Callable

from app.runs.executors.paces import MeasuredPaces, Pace
from app.runs.job import Job
from app.runs.work import Work
from trainer.checkpoint import Checkpoints
from trainer.devices import HOST, Device
from trainer.run import RunResult, run


class LocalExecutor:
    """Take the steps in the calling process.

    Args:
        device: The device that holds the arrays. Rows are put there once, at the beginning of a run.
    """

    tells_before_each_step = True

    def __init__(self, device: Device = HOST) -> None:
        self.device = device
        self._paces = MeasuredPaces(device)

    def pace(self, work: Work) -> Pace:
        return self._paces.of(work)

    def is_ready(self) -> bool:
        return True

    def train(
        self,
        job: Job,
        checkpoints: Checkpoints,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> RunResult:
        with self.device.used():
            features, labels = map(self.device.holding, job.scaled_rows())
            return run(
                job.plan,
                job.model,
                features,
                labels,
                capacity=job.training.capacity,
                on_progress=on_progress,
                is_cancelled=is_cancelled,
                checkpoint=checkpoints,
            )


LOCAL = LocalExecutor()
