"""A worker process, started by the supervisor.

It carries out as many runs at once as it has slots, each in a thread of its own: one if this process takes the steps,
and more if a Dask cluster takes them. It stops on SIGTERM, and when its parent has ended.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext

import structlog

from app.db.database import Database
from app.fence.watching import fenced_context
from app.observability.logs import configure_logging
from app.observability.stack import stack_lines
from app.observability.tracing import tracing
from app.runs import liveness
from app.runs.doorbell import Doorbell
from app.runs.executors.interface import Executor
from app.runs.executors.local import LOCAL, LocalExecutor
from app.runs.worker import work
from app.settings import Settings
from trainer.devices import DeviceUnusable, cuda_device


def main(worker_id: str, parent_pid: int, slots: int = 1) -> int:
    """Work until told to stop. After a fault, which is logged without its message, the exit status is 1."""
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    told_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: told_to_stop.set())
    # Ctrl+C in a terminal reaches the whole process group, but the parent decides, and sends SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    context = fenced_context(settings, Database(settings.sqlalchemy_url))
    try:
        with (
            tracing(settings, "worker"),
            liveness.alive(settings.data_dir, worker_id),
            Doorbell(settings.data_dir, worker_id) as bell,
            executor_for(settings) as executor,
        ):

            def fill_slot() -> None:
                work(context, worker_id, bell, lambda: told_to_stop.is_set() or os.getppid() != parent_pid, executor)

            _in_threads(slots, fill_slot, told_to_stop)
    except DeviceUnusable as unusable:
        structlog.get_logger().error("device_unusable", worker_id=worker_id, advice=str(unusable))
        return 1
    except Exception as error:
        structlog.get_logger().error("worker_failed", worker_id=worker_id, stack_trace=stack_lines(error))
        return 1
    finally:
        context.database.dispose()
    return 0


def executor_for(settings: Settings) -> AbstractContextManager[Executor]:
    """Make the executor that the settings name, and close it at the end of the block.

    Raises:
        DeviceUnusable: the settings name a device that is missing, or whose arithmetic is not what private runs need.
    """
    if settings.device == "cuda":
        device = cuda_device()
        structlog.get_logger().info("device_found", device=device.name, **device.versions)
        return nullcontext(LocalExecutor(device))
    if settings.dask_scheduler is None:
        return nullcontext(LOCAL)
    # Imported here, because Dask is optional and slow to load.
    from app.runs.executors.dask import DaskExecutor  # noqa: PLC0415

    return DaskExecutor(settings.dask_scheduler, may_be_in_the_clear=settings.dask_without_tls)


def _in_threads(count: int, action: Callable[[], None], told_to_stop: threading.Event) -> None:
    """Carry out ``action`` in several threads at once. If one fails, the others are told to stop, and then the failure
    is raised."""
    with ThreadPoolExecutor(count, thread_name_prefix="slot") as pool:
        for done in as_completed([pool.submit(action) for _ in range(count)]):
            if done.exception() is not None:
                told_to_stop.set()
            done.result()
