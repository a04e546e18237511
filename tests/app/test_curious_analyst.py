"""What an analyst sees of private rows who may replace one, or take it away: nothing but the released model.

Two services live the same life on the same requests; one row of their private data differs. Everything that a key of
an analyst or an auditor is answered is the same to the byte, headers and sizes included, and so is every line of the
log. Identifiers and times are made alike, since chance would hide what is looked for; the noise is not, so what was
released from it is left out: a model's arrays and what was computed from them.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from numpy.typing import NDArray
from starlette.testclient import TestClient

from app.auth import service as keys
from app.auth.principal import Scope
from app.context import Context
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit import ids
from app.kit.private_files import write_private_once
from app.main import create_app
from app.observability.logs import configure_logging
from app.openapi.sharing import resolved
from app.runs import evaluating, worker
from app.settings import Settings
from calibrators.held_out import HeldOutEvaluation
from tests.app.runs.conftest import COLUMNS, REQUEST, ROWS
from tests.databases import DatabaseFactory, on_one_engine
from tests.local_access import local_client
from trainer.held_out import layout_of
from trainer.models import Model, Parameters

#: The last row replaced by one at the other end of every range, and beyond it; and taken away.
REPLACED = ROWS.replace("8,0,green,yes", "-1e300,7,red,no")
REMOVED = ROWS.replace("8,0,green,yes\n", "")
#: What is in no two answers the same, and says nothing of rows.
MOMENTARY = re.compile(rb'"(milliseconds|timestamp)": ?("[^"]*"|[0-9.]+)|"request_id": "req_\w+"')
#: Addresses whose answer holds what was released: their status and headers are compared.
RELEASED = re.compile(r"/v1/runs/\w+/model")
MOMENT = datetime(2026, 5, 1, tzinfo=UTC)


@dataclass
class Life:
    """One service's answers: by whom and what was asked, the status, headers and body."""

    client: TestClient
    context: Context
    tokens: dict[str, str]
    reads: list[tuple[str, list[str | None]]]
    seen: list[tuple[str, int, dict[str, str], bytes]] = field(default_factory=list)

    def ask(self, who: str, method: str, path: str, body: Any = None, **more: Any) -> Any:
        number = len(self.seen)
        headers = {
            "Authorization": f"Bearer {self.tokens[who]}",
            "X-Request-Id": f"request-{number}",
            "Idempotency-Key": f"key-{number}",
            **more.pop("headers", {}),
        }
        answer = self.client.request(method, path, json=body, headers=headers, **more)
        content = b"" if RELEASED.fullmatch(path.partition("?")[0]) and answer.status_code == 200 else answer.content
        shown = dict(answer.headers)
        if not content:
            shown.pop("content-length", None)
        self.seen.append((f"{who} {method} {path}", answer.status_code, shown, content))
        return answer

    def made(self, who: str, path: str, body: Any = None, **more: Any) -> Any:
        answer = self.ask(who, "POST", path, body, **more)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()

    def upload(self, rows: str, budget_id: str, public: bool = False) -> str:
        """What the owner is told of the file is the owner's, and not compared. Private rows have ids of persons."""
        metadata = {"name": "d", "declared_size": 1000, "columns": COLUMNS, "label": "y", "public": public}
        if not public:
            header, *records = rows.splitlines()
            rows = "\n".join([f"{header},who", *(f"{record},K-{number}" for number, record in enumerate(records))])
            metadata |= {"person_column": "who", "held_out_share": 0.5}
        answer = self.client.post(
            "/v1/datasets",
            files={"file": ("d.csv", rows.encode(), "text/csv")},
            data={"metadata": json.dumps(metadata | ({} if public else {"budget_id": budget_id}))},
            headers={"Authorization": f"Bearer {self.tokens['owner']}", "Idempotency-Key": f"upload-{public}"},
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def work(self) -> None:
        while worker.work_once(self.context, "wrk_1"):
            pass


def live(life: Life, rows: str, relation: str) -> None:
    """Everything that an analyst can do with private data, and look at before, meanwhile and afterwards."""
    budget = life.made(
        "owner",
        "/v1/budgets",
        {"name": "b", "neighboring_relation": relation, "filter": {"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5}},
    )
    dataset_id = life.upload(rows, budget["id"])
    request = REQUEST | {"dataset_id": dataset_id, "budget_id": budget["id"], "neighboring_relation": relation}
    grid = {"hyperparameters": {"step_size": [0.25, 0.5]}, "select": "all"}
    quoted = life.made("analyst", "/v1/run-sweeps?dry_run=true", request | grid)
    assert quoted
    runs = [
        life.made("analyst", "/v1/runs", request | changes)
        for changes in (
            {},
            {"algorithm": "dp_nsgd", "gradient_bound": {"kind": "normalize", "regularizer": 0.5}},
            {"model": {"kind": "mlp", "hidden": [3]}},
            {"evaluation": {}},
            {},
        )
    ]
    life.made("analyst", f"/v1/runs/{runs[-1]['id']}/cancel")
    sweep = life.made("analyst", "/v1/run-sweeps", request | grid)
    known = {
        "budget_id": budget["id"],
        "dataset_id": dataset_id,
        "sweep_id": sweep["id"],
        "reservation_id": runs[0]["reservation_id"],
        "name": "dp_sgd",
    }
    look_at_everything(life, known, [runs[0]["id"]], ["analyst"])
    life.work()
    look_at_everything(life, known, [run["id"] for run in runs], ["analyst", "auditor"], have_ended=True)
    # Too much for the budget; scores and a seed that private rows may not have; what is not there.
    for body in (
        request | {"target": {"kind": "approximate_dp", "epsilon": 50, "delta": 1e-5}},
        request | {"test_dataset_id": dataset_id},
        request | {"seed": 1},
        request | {"dataset_id": "ds_nope"},
    ):
        assert life.ask("analyst", "POST", "/v1/runs", body).status_code >= 400
    calibration = {**request, "dataset_size": 1000, "target": {"kind": "budget", "budget_id": budget["id"]}}
    for name in ("dataset_id", "model", "budget_id"):
        del calibration[name]
    life.ask("analyst", "POST", "/v1/calibrate", calibration)
    assumptions = {"algorithm": "dp_sgd", "dataset_id": dataset_id, "model": {"kind": "logistic_regression"}}
    life.ask("analyst", "POST", "/v1/assumptions", assumptions)
    life.ask("analyst", "POST", "/v1/ledger/verify")
    life.ask("auditor", "POST", "/v1/ledger/verify")
    # The last person, who is there or is not; the owner is not told either.
    life.made("owner", f"/v1/datasets/{dataset_id}/versions", {"persons": ["K-3"], "reason": "withdrawals"})
    assert life.made("analyst", "/v1/runs", request)["dataset_version"] == 2
    life.work()
    look_at_everything(life, known, [runs[0]["id"]], ["analyst", "auditor"], have_ended=True)
    assert life.client.delete(
        f"/v1/datasets/{dataset_id}", headers={"Authorization": f"Bearer {life.tokens['owner']}"}
    ).is_success
    look_at_everything(life, known, [runs[0]["id"]], ["analyst"], have_ended=True)


def look_at_everything(
    life: Life, known: dict[str, str], runs: list[str], keys_of: list[str], *, have_ended: bool = False
) -> None:
    """Every address of the document that is read, with each of the keys, in each of its formats."""
    for path, formats in life.reads:
        if path.endswith("/events") and not have_ended:
            continue  # It would go on until the run has ended.
        for run_id in runs if "{run_id}" in path else runs[:1]:
            names = re.findall(r"{(\w+)}", path)
            there = path.format_map(dict.fromkeys(names, "nope_1") | known | {"run_id": run_id})
            for shape in formats:
                for who in keys_of:
                    life.ask(who, "GET", there if shape is None else f"{there}?format={shape}")


def reads(client: TestClient) -> list[tuple[str, list[str | None]]]:
    """What the document says can be read, but for what is about the machine, and in which formats; None names none."""
    document = client.get("/openapi.json").json()
    found = []
    for path, methods in document["paths"].items():
        if "get" in methods and not path.startswith(("/health", "/metrics")):
            [schema] = [
                parameter["schema"]
                for parameter in (resolved(document, each) for each in methods["get"].get("parameters", ()))
                if parameter["name"] == "format"
            ] or [{}]
            named = document["components"]["schemas"].get(schema.get("$ref", "").rpartition("/")[2], schema)
            choices = [part["enum"] for part in (named, *named.get("anyOf", ())) if "enum" in part]
            found.append((path, [None, *(choices[0] if choices else ())]))
    return found


def _blind(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the keyed hashes of contents and of tokens be numbers in their order: under a secret that nobody knows, the
    hash of what has not been met is a random one. So is what entries say of a content that is met again.
    """
    met: dict[bytes, str] = {}
    contents = count(2**32)
    keyed_hash = Context.keyed_hash

    def blind(self: Context, label: str, data: bytes, version: int = 1) -> str:
        if self is context and label == "dataset_content":
            return f"{next(contents):064x}"
        if self is context and label == "api_key":
            return met.setdefault(data, f"{len(met):064x}")
        return keyed_hash(self, label, data, version)

    monkeypatch.setattr(Context, "keyed_hash", blind)


@contextmanager
def service(url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    """A new service whose identifiers, clock and secrets are those of every other one."""
    numbers = count(1)
    monkeypatch.setattr(ids, "_random_bytes", lambda: next(numbers).to_bytes(15))
    settings = Settings(
        data_dir=folder,
        database_url=url,
        workers=0,
        secret_key="s" * 32,
        checkpoint_key_file=folder.parent / "checkpoint.key",
        requests_per_second=0,
        concurrent_requests=0,
        release_interval_s=0.05,
    )
    database = Database(url)
    context = fenced_context(settings, database, lambda: MOMENT)
    _blind(context, monkeypatch)
    created = {scope: keys.create_key(context, scope, [Scope(scope)]) for scope in ("owner", "analyst", "auditor")}
    tokens = {scope: key.token for scope, key in created.items() if key is not None}
    with local_client(create_app(context)) as client:
        yield Life(client, context, tokens, reads(client))
    database.dispose()


def _sums_of_none(
    evaluation: HeldOutEvaluation, model: Model, parameters: Parameters, *_: object
) -> NDArray[np.float64]:
    return np.zeros(layout_of(model, parameters).size)


def files(folder: Path) -> list[tuple[str, int]]:
    """Names and sizes of the service's own files; the database's size is nobody's to see."""
    return sorted(
        (str(path.relative_to(folder)), path.stat().st_size)
        for path in folder.rglob("*")
        if path.is_file() and "sqlite3" not in path.name
    )


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """All logs of the process, down to the least; the configuration before is put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@on_one_engine
@pytest.mark.parametrize(("relation", "neighbour"), [("add_or_remove_one", REMOVED), ("replace_one", REPLACED)])
@pytest.mark.one_in(1000)
def test_neighbouring_rows_are_answered_alike(
    databases: DatabaseFactory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    logged: io.StringIO,
    relation: str,
    neighbour: str,
) -> None:
    # What is released of held-out rows is different by chance alone: here it is the same.
    monkeypatch.setattr(evaluating, "noisy_sums", _sums_of_none)
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private_once(tmp_path / "checkpoint.key", key)
    found = []
    for number, rows in enumerate((ROWS, neighbour)):
        folder = tmp_path / str(number)
        with service(databases.migrated(), folder, monkeypatch) as life:
            live(life, rows, relation)
            assert {status for _, status, _, _ in life.seen} >= {200, 202, 403, 404, 409, 422}
        log = [MOMENTARY.sub(b"", line.encode()) for line in logged.getvalue().splitlines()]
        logged.seek(0)
        logged.truncate()
        found.append((life.seen, log, files(folder)))
    (answers, log, stored), (answers_to_neighbour, log_of_neighbour, stored_of_neighbour) = found
    for ours, theirs in zip(answers, answers_to_neighbour, strict=True):
        assert ours == theirs
    assert log == log_of_neighbour
    assert stored == stored_of_neighbour
