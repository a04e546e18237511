"""Logs, with one line of JSON or text per event, from our code and from libraries. No line has an exception's message.

Messages of exceptions quote values (statements with their parameters, rejected inputs), and values may be data. So a
log line has only the type and the positions of an exception.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from app.kit import spans
from app.observability.request_id import REQUEST_ID
from app.observability.stack import stack_lines

# The characters with which quoted values begin in asyncio's messages.
_QUOTED = re.compile("[\n(<]")


def configure_logging(level: str, log_format: str = "auto", stream: TextIO = sys.stderr) -> None:
    """Send every log line of this process to ``stream``. The entry point of each process calls this once.

    Args:
        level: The setting `log_level`.
        log_format: The setting `log_format`.
        stream: Where the lines go.
    """
    as_text = log_format == "console" or (log_format == "auto" and stream.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        with_request_id,
        with_trace_id,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        exception_without_values,
        task_without_values,
        exporter_without_values,
    ]
    structlog.configure(
        # Messages below the level are dropped before they are formatted.
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    renderer: Any = structlog.dev.ConsoleRenderer(colors=False) if as_text else structlog.processors.JSONRenderer()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # `RequestBoundary` writes a line per request. The server's own log would quote addresses with their query strings.
    for name in ("uvicorn.access", "sqlalchemy", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # This leaves one log line for each batch that could not be sent.
    logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = log_thread


def log_thread(failure: threading.ExceptHookArgs) -> None:
    """Log an exception that ends a thread. Python itself would print its message, which may quote data."""
    if failure.exc_type is not SystemExit:
        found = (failure.exc_type, failure.exc_value or failure.exc_type(), failure.exc_traceback)
        logging.getLogger("epsilond").error("thread_failed", exc_info=found)


def with_request_id(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Add the id of the present request, if there is one."""
    request_id = REQUEST_ID.get()
    if request_id is not None:
        event.setdefault("request_id", request_id)
    return event


def with_trace_id(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Add the id of the request's trace, if it is recorded."""
    span = spans.current()
    if span is not None:
        event.setdefault("trace_id", f"{span.get_span_context().trace_id:032x}")
    return event


def exception_without_values(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Replace an exception by its type and the positions it passed."""
    found = event.pop("exc_info", None)
    event.pop("exc_text", None)
    error = sys.exc_info()[1] if found is True else found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event["error_type"] = type(error).__qualname__
        event["raised_at"] = stack_lines(error)
    return event


def task_without_values(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Keep only the first words of asyncio's messages, since arguments and exceptions follow them."""
    if event.get("logger") == "asyncio":
        event["event"] = _QUOTED.split(str(event["event"]), maxsplit=1)[0]
    return event


def exporter_without_values(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Reduce OpenTelemetry's lines to the fact that a transfer failed, since they quote exceptions and the collector's
    answers."""
    if str(event.get("logger")).startswith("opentelemetry."):
        event["event"] = "traces_not_sent"
    return event
