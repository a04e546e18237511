"""`python -m benchmarks.runs.memory`: compare the memory of a run on many private rows with the memory that the service
states before the run.

The command writes benchmarks/results/memory.json. ``--quick`` takes a hundredth of the rows, and writes elsewhere. For
each size, a new server with one worker takes an upload of pixels. It then carries out a run of few steps, whose request
names only data, model and target. The Linux kernel records the peak memory of each process of the server.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import report
from benchmarks.http.uploads import CLASSES, metadata_of, send
from benchmarks.http_servers import Server, client, migrated, service
from benchmarks.runs.work import BUDGET

#: The sizes of the data sets: rows, features and capacity. Without a capacity, the service chooses its default.
SIZES: tuple[Mapping[str, int], ...] = (
    {"rows": 10**6, "features": 100},
    # The capacity is the number of rows. With the default, which is an eighth larger, the run would take 10.6 GB.
    {"rows": 5 * 10**5, "features": 784, "capacity": 5 * 10**5},
)
#: The number of steps. A few are enough, since later steps take no more memory than the first ones.
STEPS = 3
#: The memory that docs/concepts/datasets.md states for the program, its batches and the model.
ALLOWANCE = 500_000_000
LOOK_S = 1.0
DISTRIBUTIONS = ("numpy", "scipy", "sqlalchemy", "fastapi")


def measure(folder: Path, size: Mapping[str, int]) -> dict[str, Any]:
    """Return the memory that the service states for the rows of a run, and the peak memory of the server's
    processes."""
    rows, features = size["rows"], size["features"]
    file = folder / "images.npz"
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (rows, features), dtype=np.uint8)
    np.savez(file, features=pixels, label=draw.integers(0, CLASSES, rows, dtype=np.uint8))
    del pixels
    data_dir = folder / "data"
    with service(migrated(f"sqlite:///{folder / 'memory.sqlite3'}"), data_dir, workers=1) as server:
        with client(server) as http:
            budget_id = str(http.post("/v1/budgets", BUDGET, 201)["id"])
        capacity = {"capacity": size["capacity"]} if "capacity" in size else {}
        dataset = json.loads(send(server, file, metadata_of(rows, features, budget_id, **capacity)))
        reading = peaks(server.process_id)
        request = {
            "dataset_id": dataset["id"],
            "budget_id": budget_id,
            "model": {"kind": "softmax_regression"},
            "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-6},
            "iterations": STEPS,
        }
        run = _carried_out(server, request)
        running = peaks(server.process_id)
    if run["state"] != "succeeded":
        raise RuntimeError(f"the run has {run['state']}: {run['problem']}")
    [worker] = [peak for command, peak in running if "-m app.runs" in command]
    return {
        **size,
        "capacity": dataset["capacity"],
        "file_bytes": file.stat().st_size,
        "stated_bytes": dataset["run_memory_bytes"],
        "worker_peak_bytes": worker,
        "server_peak_bytes": max(peak for _, peak in reading),
        "seconds": run["seconds"],
    }


def peaks(process_id: int) -> list[tuple[str, int]]:
    """Return the command and the peak memory in bytes of each process of a server."""
    return [(command, peak) for command, peak in _peaks(process_id) if peak]


def _peaks(process_id: int) -> Iterator[tuple[str, int]]:
    process = Path(f"/proc/{process_id}")
    command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    most = [line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM:")]
    yield command, int(most[0].split()[1]) * 1024 if most else 0
    for task in process.glob("task/*/children"):
        for child in task.read_text().split():
            yield from _peaks(int(child))


def _carried_out(server: Server, request: Mapping[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    with client(server) as http:
        run = http.post("/v1/runs", request, 202)
    while run["state"] not in ("succeeded", "failed", "cancelled"):
        time.sleep(LOOK_S)
        with client(server) as http:
            run = http.get(f"/v1/runs/{run['id']}")
    return {**run, "seconds": time.perf_counter() - began}


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for each size."""
    return [
        {
            "what": f"largest memory of a worker that trains on {each['rows']} x {each['features']} rows",
            "goal": f"at most {(each['stated_bytes'] + ALLOWANCE) / 1e9:.2f} GB, as stated",
            "measured": f"{each['worker_peak_bytes'] / 1e9:.2f} GB",
            "met": each["worker_peak_bytes"] <= each["stated_bytes"] + ALLOWANCE,
        }
        for each in figures["sizes"]
    ]


def memory_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section: goals, then every figure."""
    rows = [
        [
            f"{each['rows']} x {each['features']}",
            str(each["capacity"]),
            f"{each['file_bytes'] / 1e6:.0f} MB",
            f"{each['stated_bytes'] / 1e9:.2f} GB",
            f"{each['worker_peak_bytes'] / 1e9:.2f} GB",
            f"{each['server_peak_bytes'] / 1e9:.2f} GB",
        ]
        for each in figures["sizes"]
    ]
    header = ["rows", "slots", "upload", "`run_memory_bytes`", "worker's peak", "largest process of the upload"]
    return [
        f"`python -m benchmarks.runs.memory`, {figures['date']}, {report.commit_of(figures)}.",
        f"An NPZ archive with private rows of `uint8` is uploaded. A run of {STEPS} steps then trains on them, with a "
        "request that names only data, model and target.",
        "All figures are in [memory.json](../benchmarks/results/memory.json).",
        "",
        *report.goals_table(figures["goals"]),
        "",
        *report.markdown_table(header, rows),
    ]


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("memory", __doc__)
    started = time.perf_counter()
    figures: dict[str, Any] = report.header(
        "memory", "python -m benchmarks.runs.memory", is_quick, DISTRIBUTIONS, ["app", "trainer"]
    )
    figures["sizes"] = []
    for size in SIZES:
        asked = {name: value if name == "features" or not is_quick else value // 100 for name, value in size.items()}
        with tempfile.TemporaryDirectory(prefix=f"epsilond-bench-{secrets.token_hex(4)}") as temporary:
            figures["sizes"].append(measure(Path(temporary), asked))
    figures = report.plain(figures)
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
