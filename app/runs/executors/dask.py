"""Carry out runs on a Dask cluster, slice after slice.

A run's steps are sent as slices of about a second. Each slice begins with the checkpoint that the previous one
returned. Between two slices, the cluster holds only the rows of the run. So a run is cancelled, stopped or handed back
by sending no further slice. If a machine, the scheduler or the connection is lost, only the present slice is lost. The
worker always holds the newest checkpoint, from which a repeated slice begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType

import structlog

from app.runs.executors.cluster import ATTEND_INTERVAL_S, Cluster, ClusterAway, MachineLost
from app.runs.executors.interface import MachinesLost, TrainingFailed
from app.runs.executors.paces import MeasuredPaces, Pace
from app.runs.executors.slices import Failed, Finished, Slice, Unfinished
from app.runs.job import Job
from app.runs.work import Work
from trainer.checkpoint import Binding, Checkpoints
from trainer.devices import HOST
from trainer.run import RunCancelled, RunResult, steps_in

log = structlog.get_logger()

SHORTEST_SLICE_S, LONGEST_SLICE_S = 1.0, 30.0
#: A slice lasts this many times as long as its preparation, so that most of its time is spent on steps.
STEPS_PER_LOADING = 20.0
#: The assumed speed of the network, for the time in which a checkpoint is sent to a machine and back.
BYTES_PER_S = 1e8
#: The factor by which slicing lengthens the time of steps, and the seconds that it takes to begin a slice.
SLICED, MOVING_S = 1.3, 1.0
#: A slice is not sent again after this many machines were lost with it.
MAX_MACHINES_LOST = 4
#: The shortest and the longest pause in seconds while the cluster is unavailable.
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0


class DaskExecutor:
    """Send slices of runs to the Dask cluster at a scheduler's address. Its machines compute on their CPUs.

    Attributes:
        device: The device that computes: the CPUs.
    """

    device = HOST

    tells_before_each_step = False

    def __init__(self, address: str, *, may_be_in_the_clear: bool = False) -> None:
        self._cluster = Cluster(address, may_be_in_the_clear=may_be_in_the_clear)
        self._paces = MeasuredPaces()

    def __enter__(self) -> DaskExecutor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    def is_ready(self) -> bool:
        return self._cluster.is_ready()

    def pace(self, work: Work) -> Pace:
        """Return the pace of this process's machine, with an allowance for the transfer of rows and slices.

        The machines of the cluster are assumed to be as fast as this one. Runs on slower machines end late.
        """
        here = self._paces.of(work)
        moved_s = 8.0 * work.capacity * (work.model.num_features + 1) / BYTES_PER_S
        preparing_s = 2.0 * here.preparing_s + moved_s + MOVING_S
        return replace(here, preparing_s=preparing_s, step_s=SLICED * here.step_s)

    def train(
        self,
        job: Job,
        checkpoints: Checkpoints,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> RunResult:
        assert checkpoints.resume is not None, "the keys are kept before the charge starts"
        newest = checkpoints.resume
        binding = Binding(job.plan.plan_hash, checkpoints.data_tag, checkpoints.code_version)
        steps, seconds, pause = steps_in(binding, newest), SHORTEST_SLICE_S, SHORTEST_PAUSE_S
        machines_lost = 0

        def attend() -> None:
            on_progress(steps, job.plan.iterations)
            if checkpoints.is_due(steps):
                checkpoints.save(newest)
            if is_cancelled():
                raise RunCancelled(steps)

        while True:
            attend()
            work = Slice(
                job.run.plan,
                job.run.plan_hash,
                job.model,
                job.training.capacity,
                newest,
                checkpoints.data_tag,
                checkpoints.code_version,
                seconds,
            )
            try:
                outcome = self._cluster.carry_out(work, job, attend)
            except ClusterAway as away:
                machines_lost += isinstance(away, MachineLost)
                if machines_lost == MAX_MACHINES_LOST:
                    raise MachinesLost from None
                log.warning("cluster_away", run_id=job.run.id, why=away.why, seconds=pause)
                _wait(pause, attend)
                pause = min(2.0 * pause, LONGEST_PAUSE_S)
                continue
            match outcome:
                case Finished(parameters, done):
                    on_progress(done, job.plan.iterations)
                    return RunResult(parameters, done)
                case Unfinished():
                    newest, steps = outcome.checkpoint, outcome.steps
                    beside_s = outcome.loading_s + 2 * len(newest) / BYTES_PER_S
                    seconds = min(max(SHORTEST_SLICE_S, STEPS_PER_LOADING * beside_s), LONGEST_SLICE_S)
                    pause, machines_lost = SHORTEST_PAUSE_S, 0
                case Failed(stack):
                    raise TrainingFailed(stack)
                case _:
                    log.error("machine_of_another_version", run_id=job.run.id, seconds=pause)
                    _wait(pause, attend)
                    pause = min(2.0 * pause, LONGEST_PAUSE_S)


def _wait(seconds: float, attend: Callable[[], None]) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        attend()
        time.sleep(min(left, ATTEND_INTERVAL_S))
