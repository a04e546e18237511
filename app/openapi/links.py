"""The links of the OpenAPI document. They tell a client how to continue with an answer.

A link names the operation that comes next and says which of its parameters, or which fields of its body, are in the
answer, or in the request that was answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ID = "$response.body#/id"
FIRST = "$response.body#/items/0/id"
CURSOR = {"query.cursor": "$response.body#/next_cursor"}


@dataclass(frozen=True)
class Link:
    """One step from an operation to another.

    Attributes:
        target: The operation that comes next.
        parameters: Parameters of the target, by name; query parameters are named `query.<name>`.
        body: Fields of the target's body. Other fields are up to the client.
    """

    target: str
    parameters: Mapping[str, str]
    body: Mapping[str, Any] | None = None


def _to(targets: str, **parameters: str) -> list[Link]:
    """Return links to several operations, each with the same parameters."""
    return [Link(target, parameters) for target in targets.split()]


_RESERVATION = (
    "get_reservation get_certificate start_reservation extend_reservation commit_reservation void_reservation"
)
_OF_BUDGET = (
    "get_budget list_reservations create_reservation change_limit create_limit_request list_limit_requests_of_budget "
    "create_webhook list_webhooks correct_charge get_spending list_entries state_deployment"
)
_WEBHOOK = "get_webhook list_deliveries disable_webhook enable_webhook rotate_webhook_secret delete_webhook"
_LIMIT_REQUEST = "get_limit_request approve_limit_request refuse_limit_request withdraw_limit_request"

#: The links, by operation and status of the answer that leads on.
LINKS: Mapping[tuple[str, int], list[Link]] = {
    ("create_budget", 201): [
        *_to(_OF_BUDGET, budget_id=ID),
        Link("list_budgets", {"query.parent_id": ID}),
        Link("export_ledger", {"query.budget_id": ID}),
        Link("create_budget", {}, {"parent_id": ID}),
        Link("verify_ledger", {}, {"budget_id": ID}),
        Link("calibrate", {}, {"target": {"kind": "budget", "budget_id": ID}}),
        Link("create_run", {}, {"budget_id": ID}),
        Link("create_run_sweep", {}, {"budget_id": ID}),
    ],
    ("list_budgets", 200): [*_to("get_budget list_entries", budget_id=FIRST), Link("list_budgets", CURSOR)],
    ("state_deployment", 200): _to("get_deployment get_budget", budget_id="$request.path.budget_id"),
    ("create_reservation", 201): [
        *_to(_RESERVATION, reservation_id=ID),
        *_to("get_budget", budget_id="$response.body#/budget_id"),
        Link("correct_charge", {"budget_id": "$response.body#/budget_id"}, {"reservation_id": ID}),
    ],
    ("list_reservations", 200): [
        *_to("get_reservation", reservation_id=FIRST),
        Link("list_reservations", {"budget_id": "$request.path.budget_id", **CURSOR}),
    ],
    ("start_reservation", 200): _to(_RESERVATION, reservation_id=ID),
    ("commit_reservation", 200): [
        *_to("get_budget get_spending list_entries", budget_id="$response.body#/budget_id"),
        Link("correct_charge", {"budget_id": "$response.body#/budget_id"}, {"reservation_id": ID}),
    ],
    ("create_limit_request", 201): [
        *_to(_LIMIT_REQUEST, limit_request_id=ID),
        *_to("get_budget", budget_id="$response.body#/budget_id"),
    ],
    ("list_limit_requests", 200): [
        *_to(_LIMIT_REQUEST, limit_request_id=FIRST),
        Link("list_limit_requests", CURSOR),
    ],
    ("list_limit_requests_of_budget", 200): [
        *_to(_LIMIT_REQUEST, limit_request_id=FIRST),
        Link("list_limit_requests_of_budget", {"budget_id": "$request.path.budget_id", **CURSOR}),
    ],
    ("create_webhook", 201): _to(_WEBHOOK, webhook_id=ID),
    ("list_webhooks", 200): _to("get_webhook list_deliveries", webhook_id=FIRST),
    ("list_deliveries", 200): [
        Link("list_deliveries", {"webhook_id": "$request.path.webhook_id", **CURSOR}),
    ],
    ("correct_charge", 201): _to("get_reservation", reservation_id=ID),
    ("list_entries", 200): [
        *_to("get_inclusion_proof", entry_id=FIRST),
        Link("list_entries", {"budget_id": "$request.path.budget_id", **CURSOR}),
    ],
    ("get_checkpoint", 200): [Link("get_consistency_proof", {"query.to_size": "$response.body#/tree_size"})],
    ("get_spending", 200): [Link("get_spending", {"budget_id": "$request.path.budget_id", **CURSOR})],
    ("list_algorithms", 200): _to("get_algorithm", name="$response.body#/items/0/name"),
    ("upload_dataset", 201): [
        *_to("get_dataset upload_version list_versions delete_dataset", dataset_id=ID),
        *(Link(target, {}, {"dataset_id": ID}) for target in ("create_run", "create_run_sweep", "derive_assumptions")),
    ],
    ("upload_version", 201): [
        *_to("get_dataset list_versions upload_version delete_dataset", dataset_id="$response.body#/dataset_id"),
        Link(
            "create_run",
            {},
            {"dataset_id": "$response.body#/dataset_id", "dataset_version": "$response.body#/version"},
        ),
    ],
    ("list_versions", 200): [Link("list_versions", {"dataset_id": "$request.path.dataset_id", **CURSOR})],
    ("list_datasets", 200): [*_to("get_dataset", dataset_id=FIRST), Link("list_datasets", CURSOR)],
    ("delete_dataset", 204): _to("get_dataset", dataset_id="$request.path.dataset_id"),
    ("create_run", 202): [
        *_to("get_run cancel_run follow_run get_run_report get_run_model predict", run_id=ID),
        *_to("get_reservation", reservation_id="$response.body#/reservation_id"),
        Link("list_audits", {"query.run_id": ID}),
        Link("create_audit", {}, {"run_id": ID}),
    ],
    ("list_runs", 200): [*_to("get_run", run_id=FIRST), Link("list_runs", CURSOR)],
    ("create_run_sweep", 202): [
        *_to("get_run_sweep cancel_run_sweep get_run_sweep_heat_map", sweep_id=ID),
        *_to("get_reservation", reservation_id="$response.body#/reservation_id"),
    ],
    ("list_run_sweeps", 200): [*_to("get_run_sweep", sweep_id=FIRST), Link("list_run_sweeps", CURSOR)],
    ("create_audit", 201): _to("get_audit", audit_id=ID),
    ("create_key", 201): _to("get_key rotate_key revoke_key", key_id=ID),
    ("rotate_key", 200): _to("get_key revoke_key", key_id=ID),
    ("list_keys", 200): [*_to("get_key", key_id=FIRST), Link("list_keys", CURSOR)],
    ("list_audits", 200): [*_to("get_audit", audit_id=FIRST), Link("list_audits", CURSOR)],
}


def links_of(operation_id: str) -> dict[str, dict[str, Any]]:
    """Return the links of an operation's answers in the form of the document: by status, then by the next operation.

    >>> links_of("create_audit")
    {'201': {'get_audit': {'operationId': 'get_audit', 'parameters': {'audit_id': '$response.body#/id'}}}}
    """
    return {
        str(status): {link.target: _described(link) for link in links}
        for (source, status), links in LINKS.items()
        if source == operation_id
    }


def _described(link: Link) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": link.target}
    if link.parameters:
        described["parameters"] = dict(link.parameters)
    if link.body is not None:
        described["requestBody"] = dict(link.body)
        described["description"] = "The rest of the body is the request's own."
    return described
