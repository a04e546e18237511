"""What reads bytes that somebody else wrote: each takes any bytes, and refuses in its documented way or not at all.

Whatever else it raises is a crash. No numerics are done with what was read: here it is only read.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from accounting.canonical import sha256_hex
from accounting.dp_event_reader import Reader, event_of_json
from accounting.errors import AccountingError
from accounting.interoperability.opacus import OpacusHistory
from app.algorithms.calibrate import CalibrateRequest
from app.algorithms.questions import read
from app.datasets.columns import CategoryColumn, NumberColumn
from app.datasets.csv_file import read_csv
from app.datasets.upload import _Form
from app.entries.records import record_from_canonical
from app.kit.json_body import read_json
from app.kit.negotiation import preferred
from app.kit.pagination import decode_cursor
from app.kit.validation import from_validation
from app.ledger.checkpoints import InvalidNote, read_note
from app.ledger.export_verification import verify_export
from app.privacy.account import AccountRequest
from app.privacy.convert import ConvertRequest
from app.privacy.imports import DpEventSource, ImportRequest, OpacusSource
from app.problems import Problem
from app.wire.events import to_events
from calibrators.plan import plan_from_canonical
from trainer.checkpoint import Binding, unpack

COLUMNS = [
    NumberColumn(name="age", type="number", lower=0.0, upper=100.0),
    CategoryColumn(name="region", type="category", categories=["north", "south"]),
    CategoryColumn(name="label", type="category", categories=["no", "yes"]),
]
BINDING = Binding("0" * 64, "tag", "1")
BOUNDARY = b"boundary"

Model = TypeVar("Model", bound=BaseModel)


def _body(model: type[Model], data: bytes) -> Model | None:
    """A request body as the service reads it; None where the schema refuses it, which is told in the answer's words."""
    value = read_json(data)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        from_validation(faults, value).body("req_1")
        return None


class _NoBudgets:
    """Names of budgets are looked up elsewhere; here there are none."""

    def state(self, budget_id: str, *_: object) -> None:
        raise Problem(404, "not_found", "There is no budget here.")


def events(data: bytes) -> None:
    request = _body(AccountRequest, data)
    if request is not None:
        to_events(request.events)


def calibrations(data: bytes) -> None:
    request = _body(CalibrateRequest, data)
    if request is not None:
        read(request, _NoBudgets())


def conversions(data: bytes) -> None:
    _body(ConvertRequest, data)


def imports(data: bytes) -> None:
    request = _body(ImportRequest, data)
    if request is None:
        return
    match request.source:
        case DpEventSource(event=event):
            for _ in Reader(1.0).read(event_of_json(event), 1, 0):
                pass
        case OpacusSource(mechanism=mechanism, history=history):
            OpacusHistory.from_state({"mechanism": mechanism, "history": [list(entry) for entry in history]})


def plans(data: bytes) -> None:
    plan_from_canonical(data, sha256_hex(data))


def entries(data: bytes) -> None:
    with suppress(ValueError, KeyError, TypeError):
        record_from_canonical(data)


def exports(data: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".ndjson") as file:
        file.write(data)
        file.flush()
        verify_export(Path(file.name))


def notes(data: bytes) -> None:
    with suppress(InvalidNote):
        read_note(data.decode("utf-8", "replace"))


def checkpoints(data: bytes) -> None:
    unpack(BINDING, data)


def cursors(data: bytes) -> None:
    text = data.decode("latin-1")
    for kinds in ((str,), (int,), (datetime, str)):
        with suppress(Problem):
            decode_cursor(text, *kinds)


def headers(data: bytes) -> None:
    preferred(data.decode("latin-1"), ["application/json", "text/markdown", "text/html"])


def csv_files(data: bytes) -> None:
    read_csv(io.BytesIO(data), COLUMNS, "label")


def uploads(data: bytes) -> None:
    form = _Form(BOUNDARY)
    for start in range(0, len(data), 64):
        form.feed(data[start : start + 64])
    form.finish()


@dataclass(frozen=True)
class Target:
    """A reader of bytes, and whether they are JSON."""

    read: Callable[[bytes], None]
    is_json: bool = False

    def __call__(self, data: bytes) -> None:
        with suppress(Problem, AccountingError):
            self.read(data)


_JSON = (events, calibrations, conversions, imports, plans, entries)
_OTHERS = (exports, notes, checkpoints, cursors, headers, csv_files, uploads)
TARGETS: dict[str, Target] = {
    **{read.__name__: Target(read, is_json=True) for read in _JSON},
    **{read.__name__: Target(read) for read in _OTHERS},
}
