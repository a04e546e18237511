"""What a trace tells of a run: its phases, and of a private one neither what came of it nor when it was ready."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.observability.tracing import recording
from app.runs import phases
from tests.app.runs.clocks import Turned
from tests.app.runs.conftest import Service
from tests.app.runs.test_timetable import (
    deleted,
    failed_training,
    no_room_for_the_model,
    queued,
    rows,
    schedule_of,
    too_full,
    unreadable,
)
from tests.databases import on_one_engine

NAMES = ["run check", "run load", "run train", "run end", "run"]
SECOND = phases.NANOSECONDS


@pytest.fixture
def sent(service: Service) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    with recording(service.context.settings, "worker", SimpleSpanProcessor(exporter)):
        yield exporter


def spans_of(sent: InMemorySpanExporter, run: dict[str, Any]) -> list[ReadableSpan]:
    """The spans of a run's trace, the whole last."""
    [whole] = [
        span for span in sent.get_finished_spans() if (span.attributes or {}).get("epsilond.run.id") == run["id"]
    ]
    trace = whole.context.trace_id
    return [span for span in sent.get_finished_spans() if span.name != "run" and span.context.trace_id == trace] + [
        whole
    ]


@on_one_engine
def test_a_run_on_public_data_has_its_phases(service: Service, sent: InMemorySpanExporter) -> None:
    _, run = service.charged()
    sent.clear()
    service.work()
    *parts, whole = spans_of(sent, run)
    assert [part.name for part in parts] + [whole.name] == NAMES
    assert dict(whole.attributes or {}) == {"epsilond.run.id": run["id"], "epsilond.run.outcome": "succeeded"}
    assert whole.parent is None
    moments = [whole.start_time]
    for part in parts:
        assert part.parent is not None
        assert part.parent.span_id == whole.context.span_id
        assert part.start_time == moments[-1]
        assert not part.attributes
        moments.append(part.end_time)
    assert moments[-1] == whole.end_time
    assert moments == sorted(moments)
    assert any(moment % SECOND for moment in moments), "public runs are told as they were"
    # What else the process did for the run are no spans: it ran many transactions.
    assert {span.name for span in sent.get_finished_spans()} == set(NAMES)


def spans_of_request(sent: InMemorySpanExporter, path: str) -> set[tuple[int, int]]:
    """The ids of the span of the one request to a path, and of its parts."""
    [trace] = [each.context.trace_id for each in sent.get_finished_spans() if each.name == f"POST {path}"]
    contexts = [each.context for each in sent.get_finished_spans()]
    return {(each.trace_id, each.span_id) for each in contexts if each.trace_id == trace}


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    assert not any(link.attributes for link in span.links)
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_run_is_linked_to_the_request_that_began_it(service: Service, sent: InMemorySpanExporter) -> None:
    _, run = service.charged()
    request = spans_of_request(sent, "/v1/runs")
    service.work()
    *parts, whole = spans_of(sent, run)
    [(trace_id, span_id)] = links_of(whole)
    assert (trace_id, span_id) in request
    assert whole.context.trace_id != trace_id, "a trace of its own"
    assert not any(part.links for part in parts)
    stored = service.stored(run).trace_parent
    assert stored == f"00-{trace_id:032x}-{span_id:016x}-01"
    assert stored not in service.client.get(f"/v1/runs/{run['id']}").text


@on_one_engine
def test_what_a_recorded_request_began_is_recorded_whatever_the_share(service: Service) -> None:
    linked, other = InMemorySpanExporter(), InMemorySpanExporter()
    with recording(service.context.settings, "server", SimpleSpanProcessor(linked)):
        _, run = service.charged()
    _, unseen = service.charged(seed=3)
    assert service.stored(unseen).trace_parent is None, "nothing was recorded"
    none = service.context.settings.model_copy(update={"traces_ratio": 0.0})
    with recording(none, "worker", SimpleSpanProcessor(other)):
        service.work()
        service.work()
    told = {(span.attributes or {}).get("epsilond.run.id") for span in other.get_finished_spans() if span.name == "run"}
    assert told == {run["id"]}


@on_one_engine
def test_a_private_run_is_told_in_whole_seconds(service: Service, sent: InMemorySpanExporter) -> None:
    _, run = service.private()
    service.work()
    told = spans_of(sent, run)
    assert [span.name for span in told] == NAMES
    assert all(moment % SECOND == 0 for span in told for moment in (span.start_time, span.end_time))


def untouched(_turned: Turned, _run: dict[str, Any], _monkeypatch: pytest.MonkeyPatch) -> None:
    """The run succeeds."""


@pytest.mark.one_in(4)
@on_one_engine
@pytest.mark.parametrize("fail", [untouched, unreadable, too_full, deleted, failed_training, no_room_for_the_model])
@pytest.mark.parametrize("content", [rows(3), rows(1088), rows(1089)], ids=["3", "1088", "1089"])
def test_phases_of_a_private_run_end_when_the_schedule_says(
    service: Service, sent: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, fail: Any, content: str
) -> None:
    """On a clock that the test turns, and without rounding, so that no second hides a difference."""
    turned = Turned(service, monkeypatch)
    monkeypatch.setattr(phases, "time", SimpleNamespace(time_ns=lambda: round(turned.time.now * SECOND)))
    monkeypatch.setattr(phases, "NANOSECONDS", 1)
    run = queued(service, content)
    fail(turned, run, monkeypatch)
    turned.work()
    *parts, whole = spans_of(sent, run)
    schedule = schedule_of(service, run)
    assert [part.name for part in parts] == NAMES[:-1]
    assert whole.start_time is not None
    ends = [round((part.end_time or 0) - whole.start_time, -4) / SECOND for part in parts]
    assert ends == pytest.approx([0.0, schedule.loading_s, schedule.bound_s(), schedule.bound_s()], abs=1e-4)
