"""Traces of a server and its worker, as they arrive by OTLP over HTTP. What takes them is a receiver of the test's own
on OpenTelemetry's published messages, and no collector. `tests/app/observability/test_tracing.py` is the shorter
relative.
"""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from app.observability.tracing import LAST_SPANS_S
from tests.e2e.server import serving
from tests.e2e.test_proxies import free_port

pytestmark = pytest.mark.thorough

PATIENCE_S = 60
SECRET = "datum48151623"


class Receiver:
    """Takes spans, and keeps them by the process that sent them."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = {"server": [], "worker": []}
        self.bodies: list[bytes] = []
        self.headers: list[str | None] = []

    def take(self, body: bytes) -> None:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            about = {each.key: each.value.string_value for each in part.resource.attributes}
            assert about["service.name"] == "epsilond"
            for scope in part.scope_spans:
                self.spans[about["epsilond.process"]] += scope.spans
        self.bodies.append(body)

    def names(self, process: str) -> set[str]:
        return {span.name for span in self.spans[process]}

    def wait_for(self, process: str, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while name not in self.names(process):
            assert time.monotonic() < deadline, f"{name} does not arrive: {self.names(process)}"
            time.sleep(0.1)


@contextmanager
def receiving() -> Iterator[tuple[Receiver, str]]:
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.headers.append(self.headers.get("X-Tenant"))
            receiver.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver, f"http://127.0.0.1:{server.server_port}/v1/traces"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


RUN = {
    "algorithm": "dp_sgd",
    "dataset_id": "ds_breast_cancer",
    "model": {"kind": "logistic_regression"},
    "iterations": 10,
    "sampling": "full_batch",
    "gradient_bound": {"kind": "clip", "max_grad_norm": 1.0},
    "target": {"kind": "approximate_dp", "epsilon": 1, "delta": 1e-5},
    "hyperparameters": {"step_size": 0.5},
}


def test_spans_of_server_and_worker_arrive(tmp_path: Path) -> None:
    with receiving() as (receiver, url):
        environment = {
            "EPSILOND_DATA_DIR": str(tmp_path / "data"),
            "EPSILOND_WORKERS": "1",
            "EPSILOND_TRACES_URL": url,
            "OTEL_EXPORTER_OTLP_HEADERS": "X-Tenant=privacy",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            # What OpenTelemetry would say of a process by itself is left out.
            "OTEL_RESOURCE_ATTRIBUTES": f"leak={SECRET}",
        }
        with serving(environment) as api:
            created = api.post("/v1/runs", RUN)
            assert created.status_code == 202, created.text
            run = api.wait_for_run(created.json()["id"])
            assert run["state"] == "succeeded"
            assert api.get(f"/v1/budgets?name={SECRET}").status_code in (200, 422)
            receiver.wait_for("worker", "run")
            api.get("/health/live")
        # The last one is sent when the server ends.
        assert "GET /health/live" in receiver.names("server")
        assert receiver.names("server") >= {"POST /v1/runs", "GET /v1/runs/{run_id}", "database read", "database write"}
        assert receiver.names("worker") == {"run", "run check", "run load", "run train", "run end"}
        [whole] = [span for span in receiver.spans["worker"] if span.name == "run"]
        assert {each.key: each.value.string_value for each in whole.attributes} == {
            "epsilond.run.id": run["id"],
            "epsilond.run.outcome": "succeeded",
        }
        assert set(receiver.headers) == {"privacy"}
        assert not any(SECRET.encode() in body for body in receiver.bodies)


def test_a_collector_that_is_away_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Neither who asks nor who stops the server, which would otherwise wait ten seconds for its last spans."""
    environment = {
        "EPSILOND_DATA_DIR": str(tmp_path / "data"),
        "EPSILOND_WORKERS": "0",
        "EPSILOND_TRACES_URL": f"http://127.0.0.1:{free_port()}/v1/traces",
    }
    with serving(environment) as api:
        for _ in range(20):
            assert api.get("/health/ready").elapsed.total_seconds() < 5
        began = time.monotonic()
    assert time.monotonic() - began < LAST_SPANS_S + 6
