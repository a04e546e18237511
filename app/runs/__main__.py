"""A worker process: ``python -m app.runs WORKER_ID PARENT_PID``, started by the supervisor.

It stops on SIGTERM, and by itself when its parent is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import structlog

from app.db.database import Database
from app.kit.context import Context
from app.observability.logs import configure_logging
from app.observability.stack import stack_lines
from app.runs import liveness
from app.runs.doorbell import Doorbell
from app.runs.worker import work
from app.settings import Settings


def main(worker_id: str, parent_pid: int) -> int:
    """Work until told to stop; the exit status is 1 after a fault, which is logged without its message."""
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    told_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: told_to_stop.set())
    # Control-C in a terminal reaches the whole process group; the parent decides, and sends SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    context = Context(settings, Database(settings.sqlalchemy_url))
    try:
        with liveness.alive(settings.data_dir, worker_id), Doorbell(settings.data_dir, worker_id) as bell:
            work(context, worker_id, bell, lambda: told_to_stop.is_set() or os.getppid() != parent_pid)
    except Exception as error:
        structlog.get_logger().error("worker_failed", worker_id=worker_id, stack_trace=stack_lines(error))
        return 1
    finally:
        context.database.dispose()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
