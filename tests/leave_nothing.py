"""What a test process starts ends with it, however it ends: servers, workers, PostgreSQL, browsers, clusters.

A process that is killed stops nothing. So each process of the tests has a guard, which waits until it has ended and
then kills whatever still lives and was started with the guard's token in the variable `VARIABLE`. Children inherit it,
and so do theirs, also those that leave their parent, as PostgreSQL's server does. Only Linux tells what variables a
process was started with; elsewhere there is no guard.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from pathlib import Path

VARIABLE = "TESTS_THAT_STARTED_THIS"
PROCESSES = Path("/proc")
#: How often the guard looks whether the tests have ended.
INTERVAL_S = 0.25


def start_guard() -> None:
    """Start the guard of this process, and give its token to all children that are started from now on."""
    if not PROCESSES.is_dir():
        return
    inherited = {name: value for name, value in os.environ.items() if name != VARIABLE}
    token = secrets.token_hex(16)
    # Isolated, without the environment's packages: it starts in milliseconds. In a session of its own: Ctrl+C is not
    # for it. Not a `Popen`, which would warn that the guard outlives it.
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid()), token]
    os.posix_spawn(sys.executable, command, inherited, setsid=True)
    os.environ[VARIABLE] = token


def guard(parent: int, token: str) -> None:
    """Wait until the parent has ended, then kill what it has left."""
    while os.getppid() == parent:
        time.sleep(INTERVAL_S)
    # Once more after each round that found some: a process may have started another meanwhile.
    while _kill_all_of(token):
        time.sleep(INTERVAL_S)


def _kill_all_of(token: str) -> bool:
    """Return whether there were any."""
    variable = f"{VARIABLE}={token}".encode()
    found = False
    for folder in PROCESSES.iterdir():
        try:
            if folder.name.isdigit() and variable in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), 9)
                found = True
        except OSError:
            continue  # It has ended, or is another user's.
    return found


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2])
