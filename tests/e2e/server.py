"""A real server process on a free port, and a client of it."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.local_access import access_to, remember

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60
RUN_TIMEOUT_S = 120


class Api:
    """Thin client: a fresh idempotency key per POST, JSON in and out."""

    def __init__(self, client: httpx2.Client) -> None:
        self.client = client

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self.client.get(path, **options)

    def post(self, path: str, body: object | None = None, **options: Any) -> httpx2.Response:
        headers = {"Idempotency-Key": secrets.token_hex(8)} | options.pop("headers", {})
        return self.client.post(path, json=body, headers=headers, **options)

    def wait_for_run(self, run_id: str) -> dict[str, Any]:
        """The run once it has ended."""
        deadline = time.monotonic() + RUN_TIMEOUT_S
        while time.monotonic() < deadline:
            run: dict[str, Any] = self.get(f"/v1/runs/{run_id}").json()
            if run["state"] in ("succeeded", "failed", "cancelled"):
                return run
            time.sleep(0.1)
        raise AssertionError(f"run {run_id} has not ended: {run}")


@contextmanager
def serving(
    environment: dict[str, str], program: Sequence[str] = (sys.executable, "-m", "app"), cwd: Path = ROOT
) -> Iterator[Api]:
    """`epsilond serve --migrate` until the block ends, by default this checkout's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPSILOND_")}
    process = subprocess.Popen(
        [*program, "serve", "--migrate"],
        cwd=cwd,
        env=inherited | {"EPSILOND_PORT": "0", "EPSILOND_WARM_UP": "no"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    address: list[str] = []
    known = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found and not address:
                address.append(found.group())
                known.set()
        known.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert known.wait(START_TIMEOUT_S), f"the server did not start: {''.join(lines)}"
        assert address, f"the server ended: {''.join(lines)}"
        data_dir = Path(cwd, environment.get("EPSILOND_DATA_DIR") or "var")
        remember(int(address[0].rpartition(":")[2]), data_dir)
        with httpx2.Client(base_url=address[0], timeout=60, auth=access_to(data_dir)) as client:
            _wait_until_ready(client, process, lines)
            yield Api(client)
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()
            reader.join(10)
            assert process.stdout is not None
            process.stdout.close()
    assert "Traceback" not in "".join(lines), "".join(lines)


def _wait_until_ready(client: httpx2.Client, process: subprocess.Popen[str], lines: list[str]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if client.get("/health/ready").status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.05)
    raise AssertionError(f"the server is not ready: {''.join(lines)}")
