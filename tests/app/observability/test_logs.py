"""Log lines: JSON or text, with request ids, and never an exception's message."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from app.observability import logs
from app.observability.logs import configure_logging
from app.observability.stack import LINES, stack_lines

DATUM = "datum-48151623"


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """A stream that all logs of the process go to; the configuration before is put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def fail() -> None:
    try:
        int(DATUM)
    except ValueError as cause:
        raise RuntimeError(DATUM) from cause


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_exception_is_logged_without_its_message(logged: io.StringIO, log_format: str) -> None:
    configure_logging("info", log_format, logged)
    try:
        fail()
    except RuntimeError as error:
        structlog.get_logger("ours").exception("failed")
        structlog.get_logger("ours").error("failed", exc_info=error)
        logging.getLogger("library").exception("failed")
        logging.getLogger("library").error("failed", exc_info=error)
    text = logged.getvalue()
    assert DATUM not in text
    assert text.count("RuntimeError") >= 4
    assert text.count("ValueError") >= 4
    assert "test_logs.py" in text


def test_an_exception_that_ends_a_thread_is_logged_without_its_message(
    logged: io.StringIO, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # What Python itself has there; while tests run it is pytest's.
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    configure_logging("info", "json", logged)
    for target in (fail, sys.exit):
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()
    [line] = map(json.loads, logged.getvalue().splitlines())
    assert (line["event"], line["error_type"]) == ("thread_failed", "RuntimeError")
    assert DATUM not in logged.getvalue() + "".join(capfd.readouterr())


def test_what_asyncio_tells_of_a_task_is_told_without_its_exceptions_message(logged: io.StringIO) -> None:
    """It quotes the exception of a task that nobody waited for, and the arguments of a callback."""
    configure_logging("info", "json", logged)

    async def forget() -> None:
        loop = asyncio.get_running_loop()
        tasks = [loop.run_in_executor(None, fail), asyncio.create_task(asyncio.to_thread(fail))]
        loop.call_soon(int, DATUM)
        await asyncio.wait(tasks)
        tasks.clear()
        gc.collect()

    asyncio.run(forget())
    text = logged.getvalue()
    assert DATUM not in text
    told = {line["event"]: line["error_type"] for line in map(json.loads, text.splitlines())}
    assert told == {
        "Exception in callback int": "ValueError",
        "Future exception was never retrieved": "RuntimeError",
        "Task exception was never retrieved": "RuntimeError",
    }


def test_json_lines_carry_the_request_id(logged: io.StringIO) -> None:
    configure_logging("info", "auto", logged)
    with structlog.contextvars.bound_contextvars(request_id="req_1"):
        structlog.get_logger("ours").info("event", number=1)
        logging.getLogger("library").warning("words")
    structlog.get_logger("ours").debug("not severe enough")
    first, second = (json.loads(line) for line in logged.getvalue().splitlines())
    assert (first["event"], first["number"], first["level"], first["request_id"]) == ("event", 1, "info", "req_1")
    assert (second["event"], second["level"], second["request_id"]) == ("words", "warning", "req_1")
    assert first["timestamp"].endswith("Z")


def test_what_the_level_leaves_out_is_not_put_together(logged: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def noted(_logger: Any, _name: str, event: Any) -> Any:
        made.append(event["event"])
        return event

    monkeypatch.setattr(logs, "with_request_id", noted)
    configure_logging("warning", "json", logged)
    structlog.get_logger("ours").info("request")
    structlog.get_logger("ours").warning("severe")
    assert made == ["severe"]


def test_the_servers_own_access_lines_are_off(logged: io.StringIO) -> None:
    configure_logging("info", "json", logged)
    logging.getLogger("uvicorn.access").info("GET /?q=%s", DATUM)
    assert logged.getvalue() == ""


def test_stack_lines_end_even_in_a_circle() -> None:
    first, second = ValueError(DATUM), KeyError(DATUM)
    first.__cause__, second.__cause__ = second, first
    assert stack_lines(first) == ["ValueError", "KeyError"]


def test_stack_lines_are_bounded() -> None:
    def recurse() -> None:
        recurse()

    with pytest.raises(RecursionError) as caught:
        recurse()
    assert len(stack_lines(caught.value)) == LINES
