"""`make serve` in a fresh clone: the one command that a new user types. (`make test` in one is what CI does.)"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import httpx2
import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300


@pytest.mark.thorough  # `make test` has installed and compiled the same
def test_make_serve_is_all_that_is_typed(tmp_path: Path) -> None:
    # A path with a space in it, as on many people's machines.
    clone = tmp_path / "fresh clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    # What is not committed yet is part of the change under test; in CI nothing is.
    changed = subprocess.run(
        ["git", "ls-files", "--modified", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, changed.split("\0")):
        if (ROOT / name).exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)

    # Without the surrounding virtual environment: the system's own Python, git and make.
    path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if not part.startswith(str(ROOT)))
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("EPSILOND_", "VIRTUAL_ENV"))}
    process = subprocess.Popen(
        ["make", "serve"],
        cwd=clone,
        env=inherited | {"PATH": path, "EPSILOND_PORT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    printed = []
    try:
        assert process.stdout is not None
        url = None
        deadline = time.monotonic() + TIMEOUT_S
        while url is None:
            assert time.monotonic() < deadline, "".join(printed)
            line = process.stdout.readline()
            assert line, f"make serve ended: {''.join(printed)}"
            printed.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            url = found.group() if found else None
        with httpx2.Client(base_url=url, timeout=60) as client:
            while True:
                assert time.monotonic() < deadline, "".join(printed)
                try:
                    if client.get("/health/ready").status_code == 200:
                        break
                except httpx2.TransportError:
                    time.sleep(0.1)
            request = {
                "algorithm": "dp_sgd",
                "dataset_size": 1000,
                "iterations": 10,
                "sampling": "full_batch",
                "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
                "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
            }
            assert client.post("/v1/calibrate", json=request).status_code == 200
        assert (clone / "var" / "epsilond.sqlite3").exists()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    assert "Traceback" not in "".join(printed) + output
    assert any("installing" in line for line in printed), "it says what it does"
