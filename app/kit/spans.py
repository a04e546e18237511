"""Spans of traces. They record the parts of a request and their durations, under names from our own code.

Nothing is recorded, and OpenTelemetry is not loaded, unless the process has a tracer (`app.observability.tracing`). All
attributes of a span come from our own code; of an exception, a span has only the type. So no span holds words of a
caller or contents of a record.

A part is recorded only inside the span of a request. The own work of a worker or thread is never recorded, since its
timing may depend on private rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span, Tracer

Attributes = Mapping[str, str | int]

_tracer: Tracer | None = None


def record_with(tracer: Tracer | None) -> None:
    """Record with this tracer from now on; None ends recording. The code that sets up a process calls this."""
    global _tracer  # noqa: PLW0603
    _tracer = tracer


def tracer() -> Tracer | None:
    """Return the tracer that this process records with; None if it records nothing."""
    return _tracer


def current() -> Span | None:
    """Return the present span; None if there is none or it is not sampled."""
    if _tracer is None:
        return None
    from opentelemetry.trace import get_current_span  # noqa: PLC0415

    span = get_current_span()
    return span if span.is_recording() else None


@contextmanager
def part(name: str, attributes: Attributes | None = None) -> Iterator[None]:
    """Record the block as a part of its request."""
    if current() is None or _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            yield
        except BaseException as error:
            failed(span, type(error).__qualname__)
            raise


def begin_part(name: str) -> Callable[[object], None]:
    """Begin a part of the present request. It ends when the result is called, in any thread."""
    if current() is None or _tracer is None:
        return lambda _: None
    span = _tracer.start_span(name)
    return lambda _: span.end()


def current_as_text() -> str | None:
    """Return the current span as a W3C ``traceparent``, two random ids and a flag; None if it is not recorded."""
    span = current()
    if span is None:
        return None
    known = span.get_span_context()
    return f"00-{known.trace_id:032x}-{known.span_id:016x}-01"


def links_to(text: str | None) -> list[Link]:
    """Return a link to the span that `current_as_text` gave; no link if there was no span."""
    if text is None:
        return []
    from opentelemetry.trace import Link, SpanContext, TraceFlags  # noqa: PLC0415

    _, trace_id, span_id, _ = text.split("-")
    recorded = TraceFlags(TraceFlags.SAMPLED)
    return [Link(SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=recorded))]


def failed(span: Span, error_type: str) -> None:
    """Mark a span as failed, with the type of the error and nothing else about it."""
    from opentelemetry.trace import StatusCode  # noqa: PLC0415

    span.set_status(StatusCode.ERROR)
    span.set_attribute("error.type", error_type)
