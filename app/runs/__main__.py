"""A worker process: ``python -m app.runs TOKEN PARENT_PID``, started by the supervisor.

It stops on SIGTERM, and by itself when its parent is gone: then nobody would settle what it leaves.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from app.db.database import Database
from app.kit.context import Context
from app.observability.logs import configure_logging
from app.runs.supervisor import worker_id_of
from app.runs.worker import work
from app.settings import Settings


def main(token: str, parent_pid: int) -> None:
    """Work until told to stop."""
    settings = Settings()
    configure_logging(settings.log_level, settings.log_format)
    told_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: told_to_stop.set())
    # Control-C in a terminal reaches the whole process group; the parent decides, and sends SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    context = Context(settings, Database(settings.sqlalchemy_url))
    try:
        work(context, worker_id_of(os.getpid(), token), lambda: told_to_stop.is_set() or os.getppid() != parent_pid)
    finally:
        context.database.dispose()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
