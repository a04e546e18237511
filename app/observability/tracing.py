"""Traces by OpenTelemetry: whether they are recorded, where spans are sent, and the span of a request.

The provider belongs to this module and is never the process's global one. So instrumentation of libraries cannot add
its own attributes, such as addresses with their queries, statements, or messages of exceptions.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from starlette.datastructures import Headers
from starlette.types import Scope

from app import VERSION
from app.kit import spans
from app.kit.web_addresses import Network, is_within
from app.observability.metrics import NO_ROUTE
from app.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
    from opentelemetry.trace import Link, Span, SpanKind, TraceState
    from opentelemetry.util.types import Attributes

Process = Literal["server", "worker"]

#: The seconds that a process has for sending its last spans when it ends. A missing collector must not keep the process
#: from ending.
LAST_SPANS_S = 2.0
#: OpenTelemetry's name for an unknown method.
_OTHER_METHOD = "_OTHER"


@contextmanager
def tracing(settings: Settings, process: Process) -> Iterator[None]:
    """Record and send spans inside the block, if the settings name a collector."""
    if not settings.traces_url:
        yield
        return
    # These packages are installed only where traces are wanted, so they are imported here and below.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    with recording(settings, process, BatchSpanProcessor(OTLPSpanExporter(endpoint=settings.traces_url))):
        yield


@contextmanager
def recording(settings: Settings, process: Process, processor: SpanProcessor) -> Iterator[None]:
    """Record spans inside the block, and give them to ``processor``."""
    provider = _provider(settings, process)
    provider.add_span_processor(processor)
    spans.record_with(provider.get_tracer("epsilond", VERSION))
    try:
        yield
    finally:
        spans.record_with(None)
        ending = threading.Thread(target=provider.shutdown, name="last-spans", daemon=True)
        ending.start()
        ending.join(LAST_SPANS_S)


def _sampler(ratio: float) -> Sampler:
    """Record a span if its parent or a linked request is recorded, and a share of all other spans."""
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased  # noqa: PLC0415

    share = TraceIdRatioBased(ratio)

    class LinkedOrShare(Sampler):
        def should_sample(
            self,
            parent_context: Context | None,
            trace_id: int,
            name: str,
            kind: SpanKind | None = None,
            attributes: Attributes = None,
            links: Sequence[Link] | None = None,
            trace_state: TraceState | None = None,
        ) -> SamplingResult:
            is_linked = any(link.context.trace_flags.sampled for link in links or ())
            chosen = ALWAYS_ON if is_linked else share
            return chosen.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

        def get_description(self) -> str:
            return f"LinkedOrShare{{{share.get_description()}}}"

    return ParentBased(LinkedOrShare())


def _provider(settings: Settings, process: Process) -> TracerProvider:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    about = {
        "service.name": "epsilond",
        "service.version": VERSION,
        "service.instance.id": secrets.token_hex(8),
        "epsilond.process": process,
    }
    # `Resource.create` is not used, since it would add facts about the machine and the command line.
    return TracerProvider(sampler=_sampler(settings.traces_ratio), resource=Resource(about), shutdown_on_exit=False)


@contextmanager
def request_span(scope: Scope, believed: tuple[Network, ...]) -> Iterator[Span | None]:
    """Begin the span of a request; None if no span is recorded. `describe` adds the method, the route and the status
    once they are known.

    Args:
        scope: The request's scope, with the address of the connected client.
        believed: Networks from which ``traceparent`` is believed.
    """
    tracer = spans.tracer()
    if tracer is None:
        yield None
        return
    from opentelemetry.trace import SpanKind  # noqa: PLC0415

    with tracer.start_as_current_span(
        "request",
        context=_parent(scope, believed),
        kind=SpanKind.SERVER,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def describe(span: Span, method: str, route: str, status: int) -> None:
    """Add a request's method, route and status to its span.

    Args:
        span: The span of the request.
        method: The method, as `app.observability.metrics.method_of` returns it.
        route: The route's template.
        status: The status of the answer; 0 if there was none.
    """
    method = _OTHER_METHOD if method == "other" else method
    about: dict[str, Any] = {"http.request.method": method}
    if route != NO_ROUTE:
        about["http.route"] = route
    if status:
        about["http.response.status_code"] = status
    span.set_attributes(about)
    span.update_name("HTTP" if method == _OTHER_METHOD else method if route == NO_ROUTE else f"{method} {route}")
    if status >= 500 or not status:
        spans.failed(span, str(status) if status else "no_answer")


def _parent(scope: Scope, believed: tuple[Network, ...]) -> Context:
    """Return the parent of a request's span: the span in its ``traceparent``, if the connected client is believed.

    If every client were believed, anybody could choose the trace in which a request appears, and have all their
    requests recorded. Only the ids and the flag are used. ``tracestate`` and ``baggage`` are a caller's text, and are
    not read.
    """
    from opentelemetry.context import Context  # noqa: PLC0415
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    given = Headers(scope=scope).getlist("traceparent")
    client = scope.get("client")
    if len(given) != 1 or not client or not is_within(client[0], believed):
        return Context()
    return TraceContextTextMapPropagator().extract({"traceparent": given[0]}, Context())
