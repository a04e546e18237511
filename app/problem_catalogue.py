"""Every error code that an answer can carry, with its meaning; `docs/reference/errors.md` is generated from here.

A test reads the source for codes and fails when one is missing here, or is listed and no longer used.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Codes of a whole answer, with the status they come with.
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "malformed_url": (400, "The path or the query holds NUL or is not UTF-8."),
    "malformed_request": (400, "The framework could not read the request, for example a multipart body."),
    "unauthenticated": (401, "The server has keys, and the request carries none."),
    "invalid_key": (401, "The key is unknown, revoked or expired."),
    "forbidden": (403, "The key lacks the scope; the detail names those that would do."),
    "loopback_only": (
        403,
        "The server has no key yet and answers its own machine alone; the detail says what spoke against it.",
    ),
    "not_found": (404, "Nothing is at this path, or has this id."),
    "method_not_allowed": (405, "The header Allow lists the methods that the path takes."),
    "body_too_large": (413, "A JSON body above 1 MiB, or an upload above the setting `max_upload_bytes`."),
    "unsupported_media_type": (415, "The content type, its charset or a content encoding that the call does not take."),
    "invalid_request": (422, "Fields are missing, unknown, of a wrong type or out of range; `errors` lists them."),
    "malformed_json": (422, "The body is not JSON in UTF-8."),
    "malformed_text": (422, "A string holds NUL or half of a surrogate pair."),
    "not_finite": (422, "NaN, an infinity, or a number too large to be finite."),
    "repeated_key": (422, "An object has the same key twice."),
    "nested_too_deeply": (422, "Objects and arrays are more than 32 deep."),
    "idempotency_key_missing": (400, "A POST that writes has no header Idempotency-Key."),
    "idempotency_key_invalid": (400, "The header Idempotency-Key is not 1 to 200 printable ASCII characters."),
    "request_in_progress": (409, "Another request with the same Idempotency-Key is still running."),
    "budget_exceeded": (
        409,
        "The budget does not admit the events; `cost`, `remaining` and `largest_count_that_fits` say why.",
    ),
    "owned_by_run": (409, "The reservation belongs to a run, and only the run resolves it."),
    "already_resolved": (409, "The reservation is committed or voided already; each is resolved at most once."),
    "already_started": (409, "The reservation is started: noise may have been drawn, so it can only be committed."),
    "expired": (409, "The reservation was not started in time; what it held is released."),
    "not_expired": (409, "The reservation may still be started; said inside the ledger alone."),
    "budget_not_bound": (409, "Private data are charged to one root budget for ever, and this is another one."),
    "content_is_private": (409, "The same rows are registered as private and cannot become public."),
    "content_is_public": (409, "The same rows are registered as public and cannot become private."),
    "dataset_is_bundled": (409, "A data set that comes with the service cannot be deleted."),
    "stored_plan_altered": (500, "A run's stored plan does not have its hash any more: somebody changed the database."),
    "run_has_ended": (409, "The run has ended and can no longer be cancelled."),
    "model_not_released": (409, "The run has not succeeded, so there is no model."),
    "idempotency_key_reused": (422, "The Idempotency-Key was used for a request with another body."),
    "invalid_cursor": (422, "The cursor is not one that this list gave."),
    "relation_mismatch": (422, "The events are priced under another neighbouring relation than the budget's."),
    "not_a_prefix": (422, "The committed events are not the reserved ones with counts reduced and later ones dropped."),
    "missing": (422, "A required field is absent."),
    "unknown_field": (422, "There is no field of this name here."),
    "too_much_work": (422, "The request would keep a core busy for too long; the detail says what to ask instead."),
    "overdetermined": (422, "Of fields that exclude each other, more than one is given."),
    "unsupported": (422, "No theorem covers this, or this version does not have it; the detail names what is covered."),
    "unsupported_sampling": (422, "The sampling scheme has no sound account here; the detail names those that have."),
    "unsupported_algorithm": (422, "The algorithm has no trainer; the detail names those that have."),
    "unsupported_gradient_bound": (
        422,
        "The algorithm does not take this gradient bound; the detail names those that it takes.",
    ),
    "unknown_algorithm": (422, "There is no algorithm of this name; the detail names those that there are."),
    "unknown_assumption": (422, "The algorithm has no assumption of this name."),
    "clip_below_theorem": (422, "The clip threshold is below what the algorithm's theorem needs."),
    "unsupported_relation": (
        422,
        "The sampling scheme is not accounted under this neighbouring relation; the detail says why and what works.",
    ),
    "missing_charge_delta": (
        422,
        "An approximate_dp budget prices these events at a delta that the request must give.",
    ),
    "no_such_conversion": (
        422,
        "No finite guarantee of this kind follows from the stated one, or none is proved; the detail says why.",
    ),
    "unreachable_target": (422, "No value of the unknown meets the target."),
    "no_cost_in_filter": (
        422,
        "The budget's filter has no proved cost for an event; the detail names the filters that have.",
    ),
    "invalid_input": (422, "An engine's refusal without a name of its own."),
    "invalid_value": (422, "A number outside its range, or not a number."),
    "plan_hash_mismatch": (422, "The plan is not the one with the expected hash."),
    "invalid_csv": (422, "The file is refused; `errors` names rows and columns, never a value."),
    "no_rows": (422, "A public data set has no rows; a private one may, since how many there are is private."),
    "malformed_multipart": (422, "The body is not complete multipart/form-data."),
    "duplicate_part": (422, "A part of the upload occurs twice."),
    "unsupported_part_type": (422, "A part of the upload has a content type that it cannot have."),
    "budget_for_public_data": (422, "Public data have no budget."),
    "unknown_budget": (422, "There is no budget of this id."),
    "privacy_unit_mismatch": (422, "The data set and its budget protect different units."),
    "ragged_row": (422, "A row has more or fewer cells than there are columns."),
    "not_a_number": (422, "A cell of a number column is not a number."),
    "unknown_category": (422, "A cell is none of the declared categories; the value is not shown."),
    "label_not_categorical": (422, "The model needs a label of categories, and this one is a number."),
    "label_not_binary": (422, "Logistic regression needs a label of two categories."),
    "columns_differ": (422, "The test data set declares other columns than the training data set."),
    "test_dataset_not_public": (422, "A score on private rows would be a release of its own."),
    "seed_on_private_data": (422, "A seed is for public data alone: whoever knows it can subtract the noise."),
    "database_busy": (503, "Another transaction held a lock for too long; nothing was written."),
    "internal_error": (500, "A fault of the service; its log has the cause under the request id, without any value."),
    "database_unavailable": (503, "The database does not answer, or its schema is not the newest."),
}

#: Codes of single faults in the list `errors` that are not also codes of a whole answer.
FAULTS: Mapping[str, str] = {
    "wrong_type": "A boolean or a string for a number, an object for an array, and so on.",
    "out_of_range": "A number below its least or above its greatest value.",
    "too_long": "A string or an array above its limit.",
    "too_short": "A string or an array below its least length.",
    "wrong_form": "A string that does not match its pattern.",
    "unknown_value": "Not one of the listed values.",
    "empty_cell": "A cell of an uploaded file is empty.",
    "header_missing": "An uploaded file is empty.",
    "column_missing": "The header lacks declared columns.",
    "column_repeated": "The header names a column twice.",
    "column_undeclared": "The header names columns that are not declared.",
    "malformed_row": "A row of an uploaded file is not CSV.",
    "line_too_long": "A line of an uploaded file is too long.",
    "nul_byte": "An uploaded file holds a NUL byte.",
    "too_many_rows": "An uploaded file has too many rows or cells.",
    "invalid": "Not valid for another reason.",
}

#: Codes of the member `problem` of a run that failed.
RUN_PROBLEMS: Mapping[str, str] = {
    "run_failed": "The training failed; its charge stays, because noise may have been drawn.",
    "worker_lost": "The worker process ended; the charge stays, because noise may have been drawn.",
    "reservation_lost": "The reservation was gone when the worker wanted to start it; nothing was drawn.",
    "run_not_started": "The run could not be started; nothing was charged.",
    "dataset_deleted": "A data set of the run was deleted before a worker took it; nothing was charged.",
}
