"""`python -m benchmarks.http.uploads`: time uploads of 60000 x 784 pixels over HTTP, as NPZ and as CSV.

The command writes benchmarks/results/uploads.json. ``--quick`` uploads a hundredth of the rows, and writes elsewhere.
Both files hold the same private rows. Each round uploads NPZ, CSV and NPZ again to one server, so that a slow moment of
the machine affects both formats. A time runs from the first byte to the answer. The CPU time is that of all processes
of the server.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import report
from benchmarks.http_servers import AUTHORIZATION, HOST, Server, client, migrated, service

ROWS, PIXELS, CLASSES = 60_000, 784, 10
LABEL = "label"
#: The goal: an upload as NPZ takes at most this share of the time as CSV.
GOAL = 0.1
ROUNDS = 3
TURNS = ("npz", "csv", "npz")
TIMEOUT_S = 900.0
CHUNK = 2**20
DISTRIBUTIONS = ("fastapi", "starlette", "uvicorn", "numpy")


def write_files(folder: Path, rows: int) -> dict[str, Path]:
    """Write the same images in both formats, and return the files by format. Most pixels are 0.

    Args:
        folder: The folder for the files.
        rows: The number of rows.
    """
    draw = np.random.default_rng(0)
    drawn = draw.integers(0, 256, (rows, PIXELS), dtype=np.uint8)
    pixels: npt.NDArray[np.uint8] = np.where(draw.random((rows, PIXELS)) < 0.8, 0, drawn).astype(np.uint8)
    labels = draw.integers(0, CLASSES, rows)
    files = {kind: folder / f"images.{kind}" for kind in ("npz", "csv")}
    np.savez(files["npz"], features=pixels, label=labels)
    with files["csv"].open("w") as file:
        file.write(",".join([*_names(PIXELS), LABEL]) + "\n")
        np.savetxt(file, np.column_stack([pixels, labels]), fmt="%d", delimiter=",")
    return files


def measure(folder: Path, rows: int, rounds: int) -> dict[str, Any]:
    """Return the seconds and the CPU seconds of each upload, round by round."""
    files = write_files(folder, rows)
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in files}
    data_dir = folder / "data"
    data_dir.mkdir()
    with service(migrated(f"sqlite:///{data_dir / 'uploads.sqlite3'}"), data_dir) as server:
        metadata = metadata_of(rows, PIXELS, _budget(server))
        for _ in range(rounds):
            for kind in TURNS:
                taken[kind].append(_upload(server, files[kind], metadata))
    return {
        "rows": rows,
        "features": PIXELS,
        "rounds": rounds,
        "files": {kind: {"bytes": files[kind].stat().st_size, **_medians(each)} for kind, each in taken.items()},
    }


def goals(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a mapping with "what", "goal", "measured" and "met" for elapsed times and for CPU times."""
    npz, csv = figures["files"]["npz"], figures["files"]["csv"]
    upload = f"an upload of {figures['rows']} x {figures['features']} as NPZ, over that of the same rows as CSV"
    return [
        {
            "what": f"{words} for {upload}",
            "goal": f"at most {GOAL:g}",
            "measured": f"{npz[name] / csv[name]:.3f} ({npz[name]:.2f} s and {csv[name]:.1f} s)",
            "met": npz[name] <= GOAL * csv[name],
        }
        for name, words in (("seconds", "whole time"), ("cpu_seconds", "CPU time of the server"))
    ]


def uploads_section(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines of the section: goals, then both formats."""
    versions = ", ".join(f"{name} {version}" for name, version in figures["versions"].items())
    rows = [
        [kind, f"{found['bytes'] / 1e6:.0f} MB", f"{found['seconds']:.2f}", f"{found['cpu_seconds']:.2f}"]
        for kind, found in figures["files"].items()
    ]
    return [
        f"`make bench-http`, {figures['date']}, {report.commit_of(figures)}; {versions}.",
        "The rows are private and consist of pixels, four in five of which are 0. Each of "
        f"{figures['rounds']} rounds uploads them as NPZ, as CSV, and as NPZ again.",
        "The whole time runs from the first byte to the answer. The CPU time counts all processes of the server. Both "
        f"are medians. The load average was {figures['load_average_before']:.1f} before, on "
        f"{figures['machine']['cores']} cores.",
        "All figures are in [uploads.json](../benchmarks/results/uploads.json).",
        "",
        *report.goals_table(figures["goals"]),
        "",
        *report.markdown_table(["format", "size", "whole time, s", "server CPU, s"], rows),
    ]


def _names(features: int) -> list[str]:
    return [f"p{index}" for index in range(features)]


def _budget(server: Server) -> str:
    budget = {"name": "uploads", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1.0}}
    with client(server) as asking:
        return str(asking.post("/v1/budgets", budget, 201)["id"])


def metadata_of(rows: int, features: int, budget_id: str, **more: object) -> bytes:
    """Return the declaration of the given number of private rows of pixels."""
    columns: list[dict[str, Any]] = [
        {"name": name, "type": "number", "lower": 0, "upper": 255} for name in _names(features)
    ]
    columns.append({"name": LABEL, "type": "category", "categories": [str(index) for index in range(CLASSES)]})
    document = {"name": "images", "declared_size": rows, "columns": columns, "label": LABEL, "budget_id": budget_id}
    return json.dumps(document | more).encode()


def send(server: Server, file: Path, metadata: bytes) -> bytes:
    """Upload a file, and return the answer.

    Raises:
        RuntimeError: If the status is not 201.
    """
    boundary = secrets.token_hex(16)
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="metadata"\r\nContent-Type: application/json\r\n\r\n'
    ).encode() + metadata
    middle = f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{file.name}"\r\n\r\n'.encode()
    tail = f"\r\n--{boundary}--\r\n".encode()
    name, _, token = os.environ[AUTHORIZATION].partition(": ")
    headers = {
        name: token,
        "Idempotency-Key": secrets.token_hex(16),
        "Content-Type": f"multipart/form-data; boundary={boundary}",
        "Content-Length": str(len(head) + len(middle) + file.stat().st_size + len(tail)),
    }

    def body() -> Iterator[bytes]:
        yield head + middle
        with file.open("rb") as opened:
            while chunk := opened.read(CHUNK):
                yield chunk
        yield tail

    connection = http.client.HTTPConnection(HOST, server.port, timeout=TIMEOUT_S)
    connection.request("POST", "/v1/datasets", body(), headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status != 201:
        raise RuntimeError(f"{answer.status} {content.decode()}")
    return content


def _upload(server: Server, file: Path, metadata: bytes) -> dict[str, float]:
    before, began = server.cpu_seconds(), time.perf_counter()
    content = send(server, file, metadata)
    seconds = time.perf_counter() - began
    cpu_seconds = server.cpu_seconds() - before
    name, _, token = os.environ[AUTHORIZATION].partition(": ")
    connection = http.client.HTTPConnection(HOST, server.port, timeout=TIMEOUT_S)
    connection.request("DELETE", f"/v1/datasets/{json.loads(content)['id']}", headers={name: token})
    connection.getresponse().read()
    connection.close()
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def _medians(each: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    medians = {name: statistics.median(one[name] for one in each) for name in ("seconds", "cpu_seconds")}
    return {**medians, "each": list(each)}


def main() -> None:
    """Measure, write the figures, and print which goals are met."""
    output, is_quick = report.asked("uploads", __doc__)
    started = time.perf_counter()
    figures = report.header("uploads", "make bench-http", is_quick, DISTRIBUTIONS, ["app"])
    with tempfile.TemporaryDirectory(prefix="epsilond-bench-") as temporary:
        figures |= measure(Path(temporary), ROWS // 100 if is_quick else ROWS, 1 if is_quick else ROUNDS)
    figures = report.plain(figures)
    report.conclude(output, figures, goals(figures), time.perf_counter() - started)


if __name__ == "__main__":
    main()
