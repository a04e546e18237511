"""A trace says which parts a request had, and nothing that somebody sent, stored or asked for."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import ValidationError
from starlette.testclient import TestClient

from app import VERSION, setting_types
from app.context import Context
from app.kit import spans
from app.main import create_app
from app.observability.tracing import recording
from app.settings import Settings
from tests.app.conftest import ConnectAs
from tests.app.observability.test_requests import SECRET, answers
from tests.local_access import local_client

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"

NAMES = {"database read", "database write", "ledger commit", "evaluation"}
ATTRIBUTES = {"http.request.method", "http.route", "http.response.status_code", "db.system.name", "error.type"}


@contextmanager
def sent_with(given: Settings) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    with recording(given, "server", SimpleSpanProcessor(exporter)):
        yield exporter


@pytest.fixture
def sent(context: Context) -> Iterator[InMemorySpanExporter]:
    with sent_with(context.settings) as exporter:
        yield exporter


def requests_of(sent: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in sent.get_finished_spans() if span.kind is SpanKind.SERVER]


def parts_of(sent: InMemorySpanExporter, request: ReadableSpan) -> list[ReadableSpan]:
    """Of a request, what is directly below it."""
    assert request.context is not None
    return [
        each for each in sent.get_finished_spans() if each.parent and each.parent.span_id == request.context.span_id
    ]


BUDGET = {"name": "b", "neighboring_relation": "add_or_remove_one", "filter": {"kind": "zcdp", "rho": 1}}
ACCOUNT = {
    "events": [
        {"mechanism": {"kind": "gaussian", "noise_multiplier": 3.0}, "sampling": {"kind": "full_batch"}, "count": 1}
    ],
    "neighboring_relation": "add_or_remove_one",
    "delta": 1e-5,
}


def test_a_request_has_its_template_method_and_status(client: TestClient, sent: InMemorySpanExporter) -> None:
    client.get("/v1/budgets/bud_unknown")
    [span] = requests_of(sent)
    assert span.name == "GET /v1/budgets/{budget_id}"
    assert span.parent is None
    assert dict(span.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/v1/budgets/{budget_id}",
        "http.response.status_code": 404,
    }
    assert span.status.status_code is StatusCode.UNSET
    assert "database read" in [part.name for part in parts_of(sent, span)]
    about = dict(span.resource.attributes)
    assert about.pop("service.instance.id")
    assert about == {"service.name": "epsilond", "service.version": VERSION, "epsilond.process": "server"}


def test_a_command_waits_for_its_transaction_and_a_number_for_the_engine(
    client: TestClient, sent: InMemorySpanExporter
) -> None:
    opened = client.post("/v1/budgets", json=BUDGET, headers={"Idempotency-Key": "k"}).json()
    path = f"/v1/budgets/{opened['id']}/reservations"
    reserve = {"events": [{"mechanism": {"kind": "zcdp", "rho": 0.1}}], "purpose": "p", "expires_in": 60}
    assert client.post(path, json=reserve, headers={"Idempotency-Key": "r"}).status_code == 201
    client.post("/v1/account", json=ACCOUNT)
    opening, reserving, accounting = requests_of(sent)
    assert opening.name == "POST /v1/budgets"
    assert reserving.name == "POST /v1/budgets/{budget_id}/reservations"
    assert "database write" in [part.name for part in parts_of(sent, opening)]
    assert "ledger commit" in [part.name for part in parts_of(sent, reserving)]
    assert "evaluation" in [part.name for part in parts_of(sent, accounting)]


def test_no_span_holds_what_somebody_sent(connect: ConnectAs, sent: InMemorySpanExporter) -> None:
    headers = {
        "User-Agent": SECRET,
        "X-Request-Id": SECRET,
        "tracestate": f"a={SECRET}",
        "baggage": f"a={SECRET}",
        "traceparent": TRACEPARENT,
    }
    client = connect(headers=headers)
    answers(client)
    client.post("/v1/budgets", json=BUDGET | {"name": SECRET}, headers={"Idempotency-Key": SECRET})
    client.get(f"/v1/budgets?cursor={SECRET}")
    client.get(f"/v1/budgets/{SECRET}")
    client.get(f"/{SECRET}")
    client.request(SECRET.upper(), "/v1/budgets")
    told = sent.get_finished_spans()
    assert len(requests_of(sent)) > 20
    assert {span.name for span in told if span.kind is not SpanKind.SERVER} <= NAMES
    for span in told:
        text = json.dumps(json.loads(span.to_json()))
        assert SECRET not in text.lower(), text
        assert TRACE not in text
        assert set(span.attributes or {}) <= ATTRIBUTES
        assert not span.events
        assert not span.links
        assert span.status.description is None
    assert {span.name for span in requests_of(sent)} >= {"GET", "HTTP"}, "without a route there is no path"


def test_a_part_that_fails_has_the_type_of_the_error_alone(
    client: TestClient, context: Context, sent: InMemorySpanExporter
) -> None:
    @client.app.get("/fails")  # type: ignore[attr-defined, untyped-decorator]
    def fails() -> None:
        with context.database.read():
            raise ValueError(SECRET)

    client.get("/fails")
    [request] = requests_of(sent)
    [part] = [each for each in parts_of(sent, request) if (each.attributes or {}).get("error.type") == "ValueError"]
    for span, error in ((part, "ValueError"), (request, "500")):
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None
        assert dict(span.attributes or {})["error.type"] == error
        assert SECRET not in span.to_json()


def believing(context: Context, networks: str) -> TestClient:
    changed = context.settings.model_copy(update={"traces_parents": networks})
    return local_client(create_app(replace(context, settings=changed)))


@pytest.mark.parametrize(
    ("networks", "given", "is_believed"),
    [
        ("127.0.0.0/8", [TRACEPARENT], True),
        ("", [TRACEPARENT], False),
        ("10.0.0.0/8", [TRACEPARENT], False),
        ("127.0.0.0/8", [TRACEPARENT, TRACEPARENT], False),
        ("127.0.0.0/8", [f"{TRACEPARENT}{SECRET}"], False),
        ("127.0.0.0/8", [f"00-{'0' * 32}-{SPAN}-01"], False),
    ],
)
def test_a_parent_is_that_of_whoever_is_believed(
    context: Context,
    sent: InMemorySpanExporter,
    networks: str,
    given: list[str],
    is_believed: bool,
) -> None:
    client = believing(context, networks)
    client.get("/health/live", headers=[("tracestate", f"a={SECRET}"), *(("traceparent", each) for each in given)])  # type: ignore[arg-type]
    [span] = requests_of(sent)
    assert span.context is not None
    assert (f"{span.context.trace_id:032x}" == TRACE) is is_believed
    assert (span.parent is not None) is is_believed
    if span.parent is not None:
        assert f"{span.parent.span_id:016x}" == SPAN
    assert not span.context.trace_state


def test_a_believed_parent_says_whether_it_is_recorded_and_others_do_not(
    context: Context,
    sent: InMemorySpanExporter,
) -> None:
    unsampled = {"traceparent": TRACEPARENT[:-2] + "00"}
    believing(context, "127.0.0.0/8").get("/health/ready", headers=unsampled)
    assert sent.get_finished_spans() == ()
    believing(context, "").get("/health/ready", headers=unsampled)
    assert len(requests_of(sent)) == 1


def test_of_traces_that_begin_here_a_share_is_recorded(context: Context, client: TestClient) -> None:
    with sent_with(context.settings.model_copy(update={"traces_ratio": 0.0})) as sent:
        client.get("/health/ready")
        assert sent.get_finished_spans() == ()


def test_lines_of_a_request_have_the_trace(client: TestClient, sent: InMemorySpanExporter, logged: Any) -> None:
    client.get("/health/live")
    [line] = [json.loads(line) for line in logged.getvalue().splitlines() if '"request"' in line]
    [span] = requests_of(sent)
    assert span.context is not None
    assert line["trace_id"] == f"{span.context.trace_id:032x}"


def test_what_is_not_sent_is_told_in_two_words(logged: Any) -> None:
    logger = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    logger.warning("Transient error %s", SECRET)
    logger.error("Failed to export %s", SECRET)
    logging.getLogger("opentelemetry.sdk._shared_internal").exception(
        "Exception %s", SECRET, exc_info=ValueError(SECRET)
    )
    lines = [json.loads(line) for line in logged.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["traces_not_sent"] * 2
    assert SECRET not in logged.getvalue()


def test_nothing_is_recorded_outside_of_a_request(context: Context, sent: InMemorySpanExporter) -> None:
    with context.database.write(), spans.part("evaluation"):
        pass
    assert sent.get_finished_spans() == ()


def test_off_nothing_of_the_sdk_is_loaded() -> None:
    code = (
        "import sys, app.main, app.cli.service, app.runs.process\n"
        "assert not [name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("url", ["collector:4318", "http://user:word@collector/v1/traces", "ftp://collector/"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="traces_url"):
        Settings(traces_url=url)


def test_without_the_packages_it_says_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setting_types, "_TRACING", ("opentelemetry_absent.sdk.trace",))
    with pytest.raises(ValidationError, match="make tracing"):
        Settings(traces_url="http://127.0.0.1:4318/v1/traces")
