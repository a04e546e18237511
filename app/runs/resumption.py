"""The beginning of a claim of a run: a new random stream, or the point where the last claim was lost.

The order of these steps ensures that a run releases only once. First the keys of the stream are written to the disk.
Then the charge starts, and the stream's name is stored with it. Then noise is drawn. So a worker that finds a started
charge also finds its keys and draws the same noise again. Any other stream is refused.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from accounting.errors import InvalidValue
from app.context import Context
from app.runs.checkpoint_files import CheckpointFiles
from app.runs.failures import WORKER_LOST, RefusedError
from app.runs.job import Job
from app.runs.score_keys import kept_score_key, new_score_key
from app.runs.versions import code_version
from trainer.checkpoint import Binding, Checkpoints
from trainer.devices import HOST, Device
from trainer.run import first_checkpoint, steps_in

log = structlog.get_logger()


@dataclass(frozen=True)
class Beginning:
    """The point from which a claim continues a run.

    Attributes:
        stream_id: The name of the random stream, which reveals nothing about the stream.
        steps: The number of steps that earlier claims have carried out.
        binding: The plan, data and program to which the checkpoint belongs.
        checkpoint: The checkpoint from which to continue; before the first step it holds only the stream's keys.
        score_key: The key of the noise of the trial's score, or of the evaluation; None if there is neither.
    """

    stream_id: str
    steps: int
    binding: Binding
    checkpoint: bytes
    score_key: int | None = None


def begin(context: Context, job: Job, device: Device = HOST) -> Beginning:
    """Continue from the latest checkpoint of the stream with which the run was started, or keep the keys of a new
    stream.

    Args:
        context: The process's context.
        job: The run.
        device: The device that takes its steps.

    Raises:
        RefusedError: the charge has started, and its stream has no checkpoint for this plan, these data, this program
            and this device.
        OSError: the keys cannot be kept.
    """
    run, files = job.run, CheckpointFiles(context)
    binding = Binding(run.plan_hash, _data_tag(context, job), code_version(device))
    if run.stream_id is not None:
        found = [
            Beginning(run.stream_id, steps, binding, content)
            for content in files.read_all(run.id, run.stream_id)
            if (steps := _steps(run.id, binding, content)) is not None
        ]
        score_key = kept_score_key(files, run.id, run.stream_id) if job.needs_key else None
        if found and (score_key is not None or not job.needs_key):
            farthest = replace(max(found, key=lambda each: each.steps), score_key=score_key)
            log.info("run_resumed", run_id=run.id, epoch=run.epoch, steps=farthest.steps)
            return farthest
        if run.is_charged:
            raise RefusedError(WORKER_LOST)
    stream_id, content = secrets.token_hex(16), first_checkpoint(binding, run.seed)
    files.write(run.id, stream_id, run.epoch, content)
    score_key = new_score_key(files, run.id, stream_id) if job.needs_key else None
    return Beginning(stream_id, 0, binding, content, score_key)


class Keeper:
    """Keep checkpoints of one claim: one whenever the interval has passed, and one when the worker is to stop.

    A checkpoint of the last step is kept as well if the claim does not end with it (``keeps_last``).

    Whether a checkpoint is due depends only on the clock, the number of steps and the order to stop.

    Attributes:
        has_stopped: Whether the worker is to stop and its work is kept.
        score_key: The key of the noise of the trial's score or of the evaluation, as in `Beginning`.
    """

    def __init__(
        self,
        context: Context,
        job: Job,
        beginning: Beginning,
        should_stop: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        keeps_last: bool = False,
    ) -> None:
        self.has_stopped = False
        self.score_key = beginning.score_key
        self._files, self._run, self._beginning = CheckpointFiles(context), job.run, beginning
        self._interval_s = context.settings.checkpoint_interval_s
        self._should_stop, self._clock = should_stop, clock
        self._keeps_last = keeps_last
        self._is_stopping = False
        self._kept_at = clock()

    def checkpoints(self) -> Checkpoints:
        """Return the object with which the trainer saves checkpoints and resumes from one."""
        binding = self._beginning.binding
        return Checkpoints(self._save, self._is_due, binding.data_tag, binding.code_version, self._beginning.checkpoint)

    def _is_due(self, steps_done: int) -> bool:
        self._is_stopping = self._should_stop()
        # A private run may wait long for its release, and its worker may be lost during that time.
        is_last = self._keeps_last and steps_done == self._run.steps_total
        return self._is_stopping or is_last or self._clock() - self._kept_at >= self._interval_s

    def _save(self, content: bytes) -> None:
        run = self._run
        try:
            self._files.write(run.id, self._beginning.stream_id, run.epoch, content)
        except OSError as error:
            # The run is paid for and must not fail for this. It can continue from an earlier checkpoint if its worker
            # is lost.
            log.warning("checkpoint_not_kept", run_id=run.id, error_type=type(error).__name__)
        self._kept_at = self._clock()
        self.has_stopped = self._is_stopping


def _steps(run_id: str, binding: Binding, content: bytes) -> int | None:
    """Return how many steps a checkpoint has; None if it belongs to something else."""
    try:
        return steps_in(binding, content)
    except InvalidValue:
        log.warning("checkpoint_refused", run_id=run_id)
        return None


def _data_tag(context: Context, job: Job) -> str:
    """Return a keyed hash of the rows. If the same noise were added to other rows, the difference of the two releases
    would reveal how the rows differ."""
    bound = json.dumps(job.run.model, sort_keys=True).encode() + job.rows_digest
    return context.keyed_hash("checkpoint", bound)
