"""The server process: a listening socket, the application on it, and the message at its start."""

from __future__ import annotations

import ipaddress
import os
import shlex
import signal
import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType

import structlog
import uvicorn
from fastapi import FastAPI

from app import connections
from app.algorithms.calibrate import CalibrateRequest
from app.algorithms.examples import CALIBRATE_EXAMPLES
from app.algorithms.service import answer as answer_calibration
from app.auth import sessions
from app.auth.principal import ANYBODY
from app.context import Context
from app.problems import Problem
from app.runs.progress import ProgressFeed

log = structlog.get_logger("epsilond.server")

#: The seconds that open requests have when the server is asked to stop; the workers have the rest of the time.
GRACE_S = 3
#: The most seconds that a stop takes, whatever still runs.
STOP_S = 9.0
#: The server ticks ten times a second. It looks for slow clients once in this many ticks.
TICKS_PER_LOOK = 10


class CannotListen(Exception):
    """The server cannot listen on the address. The message says why in one line."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free port.

    Raises:
        CannotListen: The port is taken, the address is not this machine's, or the host has no address.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.create_server(address[:2], family=family, backlog=512)
        # Connections inherit this option: the body of an answer must not wait until the client has acknowledged its
        # head.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.notice_who_vanishes(listening)
        return listening
    except (OSError, UnicodeError) as error:  # a host name that cannot be encoded raises UnicodeError
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else "this is not a host name"
        message = f"cannot listen on {host}, port {port}: {reason}. Choose others with EPSILOND_HOST and EPSILOND_PORT."
        raise CannotListen(message) from None


def banner(context: Context, listening: socket.socket, code: str | None) -> str:
    """Return the first message to the operator: the address, the database, and who has access.

    Args:
        context: The process's context.
        listening: The server's socket.
        code: The code that signs a browser in once; None on a server that has keys.
    """
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if ipaddress.ip_address(host).is_unspecified else shown}:{port}"
    if code is None:
        access = "an API key is required under /v1"
    else:
        access = (
            "no key created yet: only this machine is answered. Calculations are open to it, all else needs the\n"
            f"             token: `curl -H @{shlex.quote(str(_short(context.settings.local_token_file)))}`, until "
            "`epsilond keys create --name NAME --scope admin`.\n"
            f"  dashboard  {sessions.address_with_code(address, code)}\n"
            f"             (good once, for five minutes; `epsilond sign-in --url {address}` prints another)"
        )
    database = "SQLite" if context.database.is_sqlite else "PostgreSQL"
    return "\n".join(
        (
            f"epsilond     {address}  (listening on {shown}:{port})",
            f"  docs       {address}/docs",
            f"  database   {database}",
            f"  access     {access}",
            "  stop       Ctrl+C",
        )
    )


def _short(path: Path) -> Path:
    """Return a path relative to the current folder, if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


class _Server(uvicorn.Server):
    """The server. It stops within a limited time, and waits for clients only as long as `app.connections` says."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, context: Context) -> None:
        super().__init__(config)
        self._state = app.state
        self._context = context
        self._drain_s = context.settings.drain_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._context.settings.warm_up:
            threading.Thread(target=_warm_up, args=(self._context,), daemon=True).start()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Answer `/health/ready` with 503 from now on. After the first SIGTERM, other requests are still answered for
        `drain_s`."""
        is_first = not getattr(self._state, "is_stopping", False)
        self._state.is_stopping = True
        if is_first and sig == signal.SIGTERM and self._drain_s:
            timer = threading.Timer(self._drain_s, super().handle_exit, (sig, None))
            timer.daemon = True
            timer.start()
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_LOOK == 0:
            connections.end_overdue(self.server_state.connections)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        end_within(STOP_S)
        progress: ProgressFeed = self._state.progress
        progress.close()
        await super().shutdown(sockets)


def _warm_up(context: Context) -> None:
    """Load everything that the first page needs, in this process and in a process for numerics, by answering the page's
    request once."""
    request = CalibrateRequest.model_validate(CALIBRATE_EXAMPLES["dp_sgd_poisson"]["value"])
    # Problems here are reported to whoever asks for these answers later.
    with suppress(Problem):
        answer_calibration(context, request, ANYBODY)


def end_within(seconds: float) -> threading.Timer:
    """End the process with status 0 after this time, unless it has ended or the timer is cancelled.

    A thread that waits for a lock of the database, or computes, cannot be interrupted, and Python waits for it. Nothing
    is lost: an uncommitted transaction is rolled back, and worker processes end with their parent.
    """
    timer = threading.Timer(seconds, _end)
    timer.daemon = True
    timer.start()
    return timer


def _end() -> None:
    log.warning("stopped_with_work_unfinished")
    os._exit(0)


def serve(app: FastAPI, context: Context, listening: socket.socket) -> None:
    """Answer requests until the process is told to stop."""
    connections.allow_many_files()
    config = uvicorn.Config(
        app,
        http=connections.Connection,
        timeout_keep_alive=connections.KEEP_ALIVE_S,
        log_config=None,
        log_level=context.settings.log_level,
        access_log=False,
        server_header=False,
        # Requests from this machine are recognized by the peer's address, which no header may change.
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config, app, context)

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    # The server has its own handlers while it runs; these handlers receive signals before and after that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    server.run(sockets=[listening])
