"""Runs of a sweep are linked to its request in traces, and trials that nobody sees are not."""

from __future__ import annotations

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.observability.tracing import recording
from tests.app.run_sweeps.conftest import BEST, STEP_SIZES, Draws, Sweeps
from tests.databases import on_one_engine


@on_one_engine
def test_runs_that_are_shown_are_linked_to_the_request_of_their_sweep(service: Sweeps, draws: Draws) -> None:
    sent = InMemorySpanExporter()
    with recording(service.context.settings, "server", SimpleSpanProcessor(sent)):
        test_data = service.dataset(public=True)["id"]
        shown, hidden = service.paid(), service.paid(**BEST, dataset_id=test_data, test_dataset_id=test_data)
        requests = [span for span in sent.get_finished_spans() if span.name == "POST /v1/run-sweeps"]
        service.work_all()
    links = {
        str((span.attributes or {})["epsilond.run.id"]): [link.context.trace_id for link in span.links]
        for span in sent.get_finished_spans()
        if span.name == "run"
    }
    assert [links[run.id] for run in service.runs_of(shown)] == [[requests[0].context.trace_id]] * len(STEP_SIZES)
    trials = service.runs_of(hidden)
    assert trials
    assert [links[run.id] for run in trials] == [[]] * len(trials)
