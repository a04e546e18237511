"""A story that calls every operation of a fresh server once, with the examples of its document.

Its answers are those that the document shows: `tests/contract/make_openapi.py`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from httpx2 import Response
from starlette.testclient import TestClient

from app.auth.principal import Scope
from app.auth.service import create_key
from app.context import Context
from app.datasets.request_body import METADATA_EXAMPLE, VERSION_EXAMPLE
from app.db.database import Database
from app.fence.watching import fenced_context
from app.main import create_app
from app.openapi.document import build_document
from app.openapi.sharing import resolved
from app.runs import worker
from app.settings import Settings
from tests.local_access import local_client

CSV = b"age,smoker,outcome\n34,no,well\n71,yes,ill\n55,no,well\n63,yes,ill\n"
#: Of a list in an answer that is shown, and of the members and definitions of a JSON Schema in it.
MOST_ITEMS = 2
BASE_URL = "http://127.0.0.1:8000"


class Story:
    """Calls operations by their names, and keeps what they answered.

    Attributes:
        app: The server.
        answers: By operation and status, the first answer.
        examples: Names of the examples that were sent, by operation.
    """

    def __init__(self, app: FastAPI, client: TestClient, context: Context) -> None:
        self.app = app
        self._client = client
        self._context = context
        self._document = build_document(app, {})
        self.answers: dict[str, dict[str, Response]] = {}
        self.examples: dict[str, set[str]] = {}
        self.operations = {
            operation["operationId"]: (method, path, operation)
            for path, item in self._document["paths"].items()
            for method, operation in item.items()
        }

    def call(self, name: str, example: str | None = None, query: dict[str, Any] | None = None, **ids: str) -> Any:
        """One call; without an example, with the first there is. Parameters have the document's examples, too."""
        method, path, operation = self.operations[name]
        options: dict[str, Any] = {"params": dict(query or {})}
        for parameter in (resolved(self._document, each) for each in operation.get("parameters", ())):
            if "example" in parameter and parameter["in"] == "path":
                ids.setdefault(parameter["name"], parameter["example"])
            elif "example" in parameter:
                options["params"].setdefault(parameter["name"], parameter["example"])
            elif parameter["name"] == "Idempotency-Key":
                options["headers"] = {"Idempotency-Key": secrets.token_hex(8)}
        examples = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples")
        if examples:
            example = example or next(iter(examples))
            options["json"] = examples[example]["value"]
            self.examples.setdefault(name, set()).add(example)
        return self._keep(name, self._client.request(method, path.format(**ids), **options))

    def upload(self) -> Any:
        """The one body that is no JSON."""
        answer = self._client.post(
            "/v1/datasets",
            files={"file": ("clinic.csv", CSV, "text/csv")},
            data={"metadata": json.dumps(METADATA_EXAMPLE)},
            headers={"Idempotency-Key": secrets.token_hex(8)},
        )
        return self._keep("upload_dataset", answer)

    def share_rows(self) -> None:
        """Two owners who do not reach one another's root budgets upload the same rows."""
        _, _, operation = self.operations["create_budget"]
        request = next(iter(operation["requestBody"]["content"]["application/json"]["examples"].values()))["value"]
        for number in range(2):
            key = {"Idempotency-Key": secrets.token_hex(8)}
            budget = self._client.post("/v1/budgets", json=request, headers=key).json()
            owner = create_key(self._context, "owner", [Scope.OWNER], budgets=[budget["id"]])
            assert owner is not None
            declared = {"public": False, "budget_id": budget["id"], "privacy_unit": budget["privacy_unit"]}
            answer = self._client.post(
                "/v1/datasets",
                files={"file": ("clinic.csv", CSV + b"40,no,well\n", "text/csv")},
                data={"metadata": json.dumps(METADATA_EXAMPLE | declared)},
                headers={**key, "Authorization": f"Bearer {owner.token}"},
            )
            assert answer.is_success, answer.text
            answer = self._client.post(
                f"/v1/datasets/{answer.json()['id']}/versions",
                files={"file": ("clinic.csv", CSV + f"40,no,well\n{number},no,ill\n".encode(), "text/csv")},
                data={"metadata": json.dumps(VERSION_EXAMPLE)},
                headers={
                    "Idempotency-Key": secrets.token_hex(8),
                    "Authorization": f"Bearer {owner.token}",
                },
            )
            self._keep("upload_version", answer)

    def withdraw(self) -> None:
        """The service deletes persons from a data set that has their ids."""
        budget = self.call("create_budget")
        declared = {"public": False, "budget_id": budget["id"], "privacy_unit": budget["privacy_unit"]}
        header, *rows = CSV.decode().splitlines()
        # Rows that are not public already.
        with_ids = [f"{header},patient", *(f"{row},K-{number}" for number, row in enumerate(reversed(rows)))]
        answer = self._client.post(
            "/v1/datasets",
            files={"file": ("clinic.csv", "\n".join(with_ids).encode(), "text/csv")},
            data={"metadata": json.dumps(METADATA_EXAMPLE | declared | {"person_column": "patient"})},
            headers={"Idempotency-Key": secrets.token_hex(8)},
        )
        assert answer.is_success, answer.text
        self.call("upload_version", dataset_id=answer.json()["id"])

    def sign_in(self) -> None:
        """Make the server's first key, and call with it from now on."""
        key = create_key(self._context, "ops", [Scope.ADMIN])
        assert key is not None
        self._client.headers["Authorization"] = f"Bearer {key.token}"

    def work(self) -> None:
        """What a worker does until nothing is queued."""
        while worker.work_once(self._context, "wrk_story"):
            pass

    def _keep(self, name: str, answer: Response) -> Any:
        assert answer.is_success, (name, answer.text)
        self.answers.setdefault(name, {}).setdefault(str(answer.status_code), answer)
        return answer.json() if _is_json(answer) else None


_OTHER_KINDS = ("renyi_dp", "zcdp", "gaussian_dp", "pure_dp", "approximate_dp")


def _is_json(answer: Response) -> bool:
    return bool(answer.content) and answer.headers.get("content-type") == "application/json"


def play(story: Story) -> None:
    """From the first calibration to the last deletion."""
    for name in ("health_live", "health_ready", "metrics", "calibrate", "account", "convert", "tuning_cost"):
        story.call(name)
    for name in (
        "calibrate_events",
        "import_history",
        "list_algorithms",
        "compare_algorithms",
        "get_algorithm",
        "advise",
        "sweep",
    ):
        story.call(name)
    story.call("derive_assumptions")
    waiting = _keep_books(story)
    _train(story)
    _let_in(story, waiting)


def _keep_books(story: Story) -> str:
    """Do what is done with budgets; a request for a limit that nobody has decided."""
    # What was made within one second is listed in any order: a list is asked for while it has one item.
    budget = story.call("create_budget")["id"]
    story.call("list_budgets")
    budgets = {kind: story.call("create_budget", kind)["id"] for kind in _OTHER_KINDS}
    story.call("create_reservation", query={"dry_run": True}, budget_id=budget)
    reserved = story.call("create_reservation", "dp_sgd", budget_id=budget)["id"]
    story.call("extend_reservation", reservation_id=reserved)
    story.call("start_reservation", reservation_id=reserved)
    story.call("get_reservation", reservation_id=reserved)
    story.call("commit_reservation", reservation_id=reserved)
    other = story.call("create_reservation", "approximate_dp", budget_id=budgets["approximate_dp"])["id"]
    story.call("get_certificate", reservation_id=other)
    story.call("void_reservation", reservation_id=other)
    story.call("change_limit", budget_id=budgets["zcdp"])
    waiting = _ask(story, budgets["zcdp"])
    _be_told(story, budgets["pure_dp"])
    _state(story, budgets["pure_dp"])
    story.call("correct_charge", budget_id=budgets["zcdp"])
    for name in ("get_budget", "list_reservations", "get_spending"):
        story.call(name, budget_id=budget)
    entry = story.call("list_entries", budget_id=budget)["items"][0]["id"]
    for name in ("verify_ledger", "export_ledger", "get_checkpoint"):
        story.call(name)
    story.call("get_inclusion_proof", entry_id=entry)
    story.call("get_consistency_proof", query={"from_size": 1})
    return waiting


def _ask(story: Story, budget: str) -> str:
    refused = story.call("create_limit_request", budget_id=budget)["id"]
    story.call("list_limit_requests")
    story.call("list_limit_requests_of_budget", budget_id=budget)
    story.call("get_limit_request", limit_request_id=refused)
    story.call("refuse_limit_request", limit_request_id=refused)
    withdrawn = story.call("create_limit_request", budget_id=budget)["id"]
    story.call("withdraw_limit_request", limit_request_id=withdrawn)
    return str(story.call("create_limit_request", budget_id=budget)["id"])


def _state(story: Story, budget: str) -> None:
    story.call("state_deployment", budget_id=budget)
    story.call("get_deployment", budget_id=budget)


def _be_told(story: Story, budget: str) -> None:
    webhook = story.call("create_webhook", budget_id=budget)["id"]
    story.call("list_webhooks", budget_id=budget)
    for name in ("get_webhook", "list_deliveries", "disable_webhook", "enable_webhook", "rotate_webhook_secret"):
        story.call(name, webhook_id=webhook)
    story.call("delete_webhook", webhook_id=webhook)


def _train(story: Story) -> None:
    story.call("list_datasets")
    story.upload()
    for example in ("classification", "regression"):
        made = story.call("upload_dataset", example)["id"]
    story.call("get_dataset")
    story.call("list_versions")
    story.call("delete_dataset", dataset_id=made)
    run = story.call("create_run", "breast_cancer")["id"]
    story.work()
    for name in ("get_run", "get_run_report", "get_run_model", "predict", "follow_run"):
        story.call(name, run_id=run)
    story.call("list_runs")
    story.call("cancel_run", run_id=story.call("create_run")["id"])
    sweep = story.call("create_run_sweep", "epsilons")["id"]
    story.work()
    story.call("list_run_sweeps")
    story.call("get_run_sweep", sweep_id=sweep)
    story.call("get_run_sweep_heat_map", sweep_id=sweep)
    for example in ("step_sizes", "best", "best_by_noisy_score"):
        another = story.call("create_run_sweep", example)["id"]
        story.call("cancel_run_sweep", sweep_id=another)
    story.call("create_run_sweep", "epsilons", query={"dry_run": True})
    audit = story.call("create_audit", "one_run")["id"]
    story.call("get_audit", audit_id=audit)
    story.call("list_audits")


def _let_in(story: Story, waiting: str) -> None:
    story.sign_in()
    # Whoever asked was somebody else.
    story.call("approve_limit_request", limit_request_id=waiting)
    story.call("list_keys")
    key = story.call("create_key", "analyst")["id"]
    story.call("get_key", key_id=key)
    story.share_rows()
    story.withdraw()
    story.call("list_shared_contents")
    story.call("list_register", query={"limit": 3})
    story.call("rotate_key", "an_hour", key_id=key)
    story.call("revoke_key", key_id=key)
    story.call("rotate_key", "at_once", key_id=story.call("create_key", "auditor")["id"])
    story.call("get_own_key")


@contextmanager
def fresh(database_url: str, folder: Path) -> Iterator[Story]:
    """A story on a server without anything on it."""
    database = Database(database_url)
    settings = Settings(
        data_dir=folder, database_url=database_url, workers=0, webhook_addresses="https://hooks.example/"
    )
    context = fenced_context(settings, database)
    app = create_app(context)
    with local_client(app) as client:
        yield Story(app, client, context)
    database.dispose()


def shown(story: Story) -> dict[str, dict[str, Any]]:
    """Return the JSON among the answers, by operation and status; of a long list its first items, and no token."""
    found = {
        name: {status: _shortened(answer.json()) for status, answer in by_status.items() if _is_json(answer)}
        for name, by_status in sorted(story.answers.items())
    }
    return {name: by_status for name, by_status in found.items() if by_status}


def _shortened(part: Any) -> Any:
    if isinstance(part, list):
        # One object says what the others are.
        shown = part[:1] if part and isinstance(part[0], dict) else part[:MOST_ITEMS]
        return [_shortened(value) for value in shown]
    if not isinstance(part, dict):
        return part
    hidden = {"token": "epsilond_...", "secret": "whsec_..."}
    shorter = {name: hidden.get(name) or _shortened(value) for name, value in part.items()}
    # A JSON Schema: of an algorithm's inputs.
    for name in ("properties", "$defs"):
        if isinstance(shorter.get(name), dict):
            shorter[name] = dict(list(shorter[name].items())[:MOST_ITEMS])
    return shorter
