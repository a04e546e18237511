"""The child's side of `app.kit.process_pool`: `python -m app.kit.process_worker DESCRIPTOR MEMORY_BYTES SECONDS`."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from app.kit import collector

MOST_REPLY_BYTES = 64 * 2**20


def answer(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[bool, Any]:
    """Return whether the job succeeded, and its value or its exception."""
    try:
        return True, function(*args, **kwargs)
    except Exception as error:
        return False, error


def packed(reply: tuple[bool, Any]) -> bytes:
    """Return the reply in the form in which it is sent. A reply above `MOST_REPLY_BYTES` is refused, since it would
    fill the parent's memory."""
    try:
        data = bytes(ForkingPickler.dumps(reply))
    except MemoryError:
        data = b""
    if not 0 < len(data) <= MOST_REPLY_BYTES:
        data = bytes(ForkingPickler.dumps((False, MemoryError())))
    return data


def main(descriptor: int, memory_bytes: int, seconds: float) -> None:
    """Do one job after the other, until the parent closes its end of the connection or dies."""
    # The parent decides when to stop, but Ctrl+C in a terminal reaches its children too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # A core file would contain the request, and would take time to write.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    collector.pause()
    with Connection(descriptor) as connection:
        while True:
            try:
                job = connection.recv()
            except EOFError:
                return
            # The first job has loaded what all later jobs need, too.
            collector.resume()
            # The alarm ends this process at its job's time limit, even if the parent is gone.
            signal.setitimer(signal.ITIMER_REAL, seconds)
            reply = packed(answer(*job))
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            try:
                connection.send_bytes(reply)
            except (BrokenPipeError, ConnectionResetError):
                return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
