"""The error codes that each operation can answer with: general codes and its own.

`app.problem_catalogue` says what a code means; this module says where it occurs. The tests compare every answer that
they see with this list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from app.problem_catalogue import PROBLEMS
from app.problems import MEDIA_TYPE

_EVERYWHERE = "malformed_url malformed_request internal_error"
_BEHIND_KEYS = (
    "unauthenticated invalid_key invalid_token no_rights provider_unavailable loopback_only forbidden "
    "too_many_requests invalid_request database_busy database_unavailable database_behind_fence fence_unavailable "
    "secret_unavailable"
)
_WITH_ID = "not_found"
_WITH_BODY = (
    "request_timeout body_too_large unsupported_media_type invalid_request malformed_json malformed_text not_finite "
    "repeated_key nested_too_deeply disk_full"
)
_WRITING = "idempotency_key_missing idempotency_key_invalid idempotency_key_reused request_in_progress disk_full"

#: The error codes of operations that compute numbers, for which callers take turns.
_NUMERICS = "numerics_busy too_many_waiting"
#: Error codes of operations that account events.
_ACCOUNTING = (
    f"invalid_input invalid_value unsupported unsupported_sampling unsupported_relation too_much_work {_NUMERICS}"
)
#: The error codes of operations that price events in a budget.
_PRICING = f"{_ACCOUNTING} no_cost_in_filter missing_charge_delta unexpected_charge_delta relation_mismatch"
#: The error codes of a description of an algorithm and its target.
_CALIBRATION = (
    f"{_PRICING} missing overdetermined contradiction unknown_algorithm unknown_assumption unsupported_gradient_bound "
    "unsupported_domain unsupported_penalty clip_below_theorem step_size_too_large too_few_records unreachable_target "
    "unknown_budget"
)
#: The error codes of a model and of the columns of a data set.
_MODEL = (
    "unsupported_model label_not_categorical label_not_numeric label_not_binary columns_differ test_dataset_not_public "
    "seed_on_private_data no_held_out_rows"
)
#: The error codes of what runs train and charge.
_RUN = (
    f"{_CALIBRATION} {_MODEL} not_found budget_exceeded budget_not_bound privacy_unit_mismatch budget_for_public_data "
    "other_budget unsupported_algorithm invalid_plan plan_hash_mismatch queue_full too_many_slots unknown_version "
    "version_erased quota_exceeded"
)
#: The error codes of a file with rows.
_FILE = (
    "beyond_your_budgets invalid_csv invalid_parquet invalid_npz unsupported_file capacity_exceeded "
    "malformed_multipart duplicate_part unsupported_part_type missing unknown_field readers_busy budget_not_bound "
    f"quota_exceeded content_is_public {_NUMERICS}"
)
#: The error codes of commands about a reservation.
_RESOLVING = "not_your_reservation owned_by_run already_resolved already_started expired"

_OWN: Mapping[str, str] = {
    "account": f"{_ACCOUNTING} missing overdetermined",
    "convert": f"no_such_conversion missing overdetermined unreachable_target {_ACCOUNTING}",
    "tuning_cost": f"{_ACCOUNTING} missing overdetermined contradiction unreachable_target no_renyi_divergence",
    "import_history": f"{_ACCOUNTING} missing unreachable_target",
    "calibrate": _CALIBRATION,
    "calibrate_events": f"{_ACCOUNTING} missing overdetermined unreachable_target no_cost_in_filter",
    "sweep": _CALIBRATION,
    "compare_algorithms": "invalid_value",
    "advise": "invalid_value unknown_algorithm unknown_assumption contradiction too_much_work unsupported",
    "derive_assumptions": f"{_MODEL} not_found missing overdetermined contradiction invalid_value unknown_algorithm "
    "unknown_assumption unsupported unsupported_domain",
    "create_budget": "beyond_your_budgets unknown_budget tree_too_deep relation_mismatch privacy_unit_mismatch "
    "quota_exceeded invalid_value unsupported contradiction",
    "list_budgets": "invalid_cursor",
    "get_budget": f"invalid_value {_NUMERICS}",
    "change_limit": "quota_exceeded limit_below_use invalid_value unsupported contradiction",
    "create_limit_request": "quota_exceeded too_many_open_requests invalid_value unsupported contradiction",
    "list_limit_requests": "invalid_cursor",
    "list_limit_requests_of_budget": "invalid_cursor",
    "approve_limit_request": "request_decided own_request approved_by_you limit_changed limit_above_parent "
    "limit_below_use quota_exceeded",
    "refuse_limit_request": "request_decided",
    "withdraw_limit_request": "request_decided not_your_request",
    "create_webhook": "address_not_allowed too_many_webhooks contradiction",
    "list_deliveries": "invalid_cursor",
    "correct_charge": f"{_PRICING} missing other_budget not_committed correction_lowers overdetermined {_RESOLVING}",
    "get_spending": "invalid_cursor",
    "create_reservation": f"quota_exceeded {_PRICING} budget_exceeded missing",
    "list_reservations": "invalid_cursor",
    "start_reservation": f"{_RESOLVING} budget_exceeded",
    "extend_reservation": f"{_RESOLVING} quota_exceeded",
    "commit_reservation": f"{_PRICING} {_RESOLVING} not_a_prefix missing_events nothing_given_back tail_not_given_back",
    "void_reservation": _RESOLVING,
    "list_entries": "invalid_cursor ledger_not_consistent",
    "list_register": "invalid_cursor ledger_not_consistent beyond_your_budgets",
    "verify_ledger": f"not_found contradiction invalid_checkpoint beyond_your_budgets {_NUMERICS}",
    "export_ledger": "not_found beyond_your_budgets",
    "get_checkpoint": "ledger_not_consistent not_witnessed",
    "get_inclusion_proof": "ledger_not_consistent",
    "get_consistency_proof": "ledger_not_consistent",
    "upload_dataset": f"{_FILE} no_rows public_needs_admin unknown_budget not_a_root_budget privacy_unit_mismatch "
    "budget_for_public_data content_is_private",
    "upload_version": f"{_FILE} dataset_is_public out_of_range no_person_ids version_came_meanwhile",
    "list_versions": "invalid_cursor",
    "list_datasets": "invalid_cursor",
    "list_shared_contents": "invalid_cursor beyond_your_budgets",
    "delete_dataset": "dataset_is_bundled beyond_your_budgets",
    "create_run": f"{_RUN} ragged_row not_a_number unknown_category",
    "list_runs": "invalid_cursor",
    "cancel_run": "run_has_ended not_your_run",
    "get_run_report": "stored_plan_altered",
    "get_run_model": "model_not_released",
    "predict": f"model_not_released unsupported_model columns_differ out_of_range ragged_row not_a_number "
    f"unknown_category {_NUMERICS}",
    "follow_run": "too_many_listeners",
    "create_run_sweep": f"{_RUN} ragged_row not_a_number unknown_category candidates_differ too_many_trials "
    "no_renyi_divergence sweep_hash_mismatch out_of_range",
    "list_run_sweeps": "invalid_cursor",
    "cancel_run_sweep": "run_sweep_has_ended not_your_run",
    "get_run_sweep_heat_map": "results_withheld no_score",
    "create_audit": f"quota_exceeded {_CALIBRATION} not_found stored_plan_altered unsupported_algorithm invalid_plan "
    "plan_hash_mismatch",
    "list_audits": "invalid_cursor",
    "create_key": "quota_exceeded contradiction overdetermined out_of_range unknown_budget",
    "list_keys": "invalid_cursor",
    "rotate_key": "account_has_no_token key_has_ended rotation_in_progress",
    "revoke_key": "last_admin_key",
    "health_ready": "not_ready database_unavailable database_behind_fence",
}


def codes_of(path: str, operation: Mapping[str, Any]) -> list[str]:
    """Return the codes of one operation, in the order of the catalogue."""
    parameters = {parameter["name"] for parameter in operation.get("parameters", ())}
    parts = [_EVERYWHERE, _OWN.get(operation["operationId"], "")]
    if not path.startswith("/health"):
        parts.append(_BEHIND_KEYS)
    if "{" in path:
        parts.append(_WITH_ID)
    if "requestBody" in operation:
        parts.append(_WITH_BODY)
    if "Idempotency-Key" in parameters:
        parts.append(_WRITING)
    found = set(" ".join(parts).split())
    return [code for code in PROBLEMS if code in found]


def describe_codes(problem: dict[str, Any]) -> None:
    """Add the meaning of each code to the schema of a problem."""
    code = problem["properties"]["code"]
    meanings = (f"- `{name}`: {meaning}" for name, (_, meaning) in PROBLEMS.items())
    code["description"] = "\n".join([code["description"], "", *meanings])


def describe_errors(path: str, operation: dict[str, Any]) -> None:
    """Document each status with its codes. The schema of a problem has their meanings."""
    if not path.startswith("/health"):
        operation["security"] = [{"key": []}]
    responses = {status: answer for status, answer in operation.get("responses", {}).items() if status < "400"}
    problem = {"schema": {"$ref": "#/components/schemas/ProblemBody"}}
    codes = codes_of(path, operation)
    for status in sorted({PROBLEMS[code][0] for code in codes}):
        names = ", ".join(f"`{code}`" for code in codes if PROBLEMS[code][0] == status)
        description = f"{HTTPStatus(status).phrase}: {names}"
        responses[str(status)] = {"description": description, "content": {MEDIA_TYPE: problem}}
    operation["responses"] = dict(sorted(responses.items()))


def codes_in(description: str) -> set[str]:
    """Return the codes that the description of an answer lists.

    >>> sorted(codes_in("Not Found: `not_found`, `unknown_budget`"))
    ['not_found', 'unknown_budget']
    >>> codes_in("Successful Response")
    set()
    """
    return set(re.findall(r"`(\w+)`", description))
