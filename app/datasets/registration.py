"""Taking in an upload: metadata and file checked, content bound to its root budget, rows stored.

An answer tells nobody about rows that are out of their reach. So a conflict with another root budget is told to those
who own that one; everybody else gets a data set of their own, after the same statements in the database.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.auth import reach
from app.auth.principal import Principal, Scope
from app.context import Context
from app.datasets import repository
from app.datasets.columnar import read_columnar
from app.datasets.csv_file import read_csv
from app.datasets.file_kinds import FileKind
from app.datasets.files import DatasetFiles
from app.datasets.schemas import DatasetMetadata, OwnerReport
from app.datasets.service import body_of
from app.datasets.synthetic import SyntheticRequest, generate
from app.datasets.table import Table
from app.datasets.upload import Upload
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.idempotency.once import Keyed, run_once
from app.idempotency.records import Answer
from app.kit.ids import new_id
from app.kit.json_body import read_json
from app.kit.validation import from_model
from app.ledger.repository import get_budget
from app.problems import Problem, ProblemItem, unprocessable
from app.tables.datasets import Dataset


def register(context: Context, principal: Principal, key: str, upload: Upload) -> Answer:
    """Register an uploaded data set, once per idempotency key.

    Args:
        context: The process's context.
        principal: The owner.
        key: The request's idempotency key.
        upload: The received file and metadata.

    Returns:
        201 with `UploadedDataset`. The owner's report is found again from a repeated upload's own file, so that no
        answer that is stored holds the true number of rows.

    Raises:
        Problem: 403 ``public_needs_admin``; 422 for metadata or a file at fault, ``no_rows`` for public data without
            any, ``capacity_exceeded``; 409 ``budget_not_bound``, ``content_is_private`` or ``content_is_public``.
    """
    metadata = read_metadata(upload.metadata)
    if metadata.public and not principal.may(Scope.ADMIN):
        # Before the file is looked at: what stands in it plays no part.
        detail = "Rows are declared public by a key with the scope admin alone; upload them as private, with a budget."
        raise Problem(403, "public_needs_admin", detail)
    table = _read(context, upload, metadata)
    if metadata.public and table.rows == 0:
        # Private data may have no rows, since their number is private; public data are scored on, and 0/0 is no score.
        detail = "The file has no rows; public data need at least one."
        raise unprocessable("no_rows", detail, "file")
    capacity = metadata.capacity_for(table.rows)
    if table.rows > capacity:
        detail = (
            f"The file has {table.rows} rows and the data set a capacity of {capacity}: give a larger capacity, or a "
            "declared_size that is nearer to the number of rows. Both are public, so choose round numbers."
        )
        raise unprocessable("capacity_exceeded", detail, "metadata", "capacity")
    request = ["upload", metadata.model_dump(mode="json"), upload.file_digest.hex()]
    return _store(context, principal, key, request, metadata, table)


def register_synthetic(context: Context, principal: Principal, key: str, request: SyntheticRequest) -> Answer:
    """Generate and register a public data set, once per idempotency key.

    Returns:
        201 with `UploadedDataset`.

    Raises:
        Problem: 409 ``content_is_private``: somebody registered the same rows as private. A key that could be surprised
            by it registers no public data at all.
    """
    with context.numerics:
        table = generate(request)
    return _store(context, principal, key, request.model_dump(mode="json"), request.declaration, table)


def _store(
    context: Context, principal: Principal, key: str, request: Any, metadata: DatasetMetadata, table: Table
) -> Answer:
    """Bind the content, store declaration and rows, unless ``request`` was answered under this key already."""
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    dataset_id = new_id("ds")
    # No rows are nobody's: data sets without any have nothing in common.
    content_hash = context.keyed_hash("dataset_content", table.content if table.rows else dataset_id.encode())

    def store_rows() -> None:
        files.write(dataset_id, table)

    def add(session: Session) -> Answer:
        _check_reach(session, principal, metadata)
        _bind(session, principal, metadata, content_hash)
        dataset = _dataset(context, metadata, table.rows, content_hash, dataset_id)
        repository.add(session, dataset)
        entered = Registration(EntryKind.REGISTER, Subject.DATASET, dataset_id, principal.id)
        registering.enter(session, dataset.created_at, [entered])
        body = body_of(dataset).model_dump(mode="json")
        return Answer(201, body, {"Location": f"/v1/datasets/{dataset_id}"})

    try:
        answer = run_once(context, Keyed.of(context, principal.id, key, _fingerprint(request)), add, prepare=store_rows)
    except Problem:
        files.remove(dataset_id)
        raise
    # After any other exception nobody knows whether the data set is registered, so its file stays.
    if answer.body["id"] != dataset_id:
        files.remove(dataset_id)
    with context.database.read() as session:
        files.sweep(lambda ids: repository.deleted(session, ids))
    return Answer(answer.status, {**answer.body, "owner_report": _report(table).model_dump()}, answer.headers)


def read_metadata(document: bytes) -> DatasetMetadata:
    """The metadata part under the same rules as a JSON body, with pointers that begin at `/metadata`."""
    try:
        value = read_json(document)
    except Problem as problem:
        items = [ProblemItem(**{**item.model_dump(), "pointer": f"/metadata{item.pointer}"}) for item in problem.errors]
        raise Problem(problem.status, problem.code, problem.detail, errors=items) from None
    try:
        metadata = DatasetMetadata.model_validate(value)
    except ValidationError as error:
        raise from_model(error, DatasetMetadata, {"metadata": value}, "metadata") from None
    if metadata.public and metadata.budget_id is not None:
        detail = "Public data cost no privacy: leave budget_id out."
        raise unprocessable("budget_for_public_data", detail, "metadata", "budget_id")
    if not metadata.public and metadata.budget_id is None:
        detail = "Private data need a budget_id, the root budget that every run on them is charged to."
        raise unprocessable("missing", detail, "metadata", "budget_id")
    return metadata


def _bind(session: Session, principal: Principal, metadata: DatasetMetadata, content_hash: str) -> None:
    """Refuse rows that conflict with what is registered, as far as the principal may know of it.

    Whatever is decided about a content is decided under its row's lock. Both statements are executed for everybody, and
    a root that the principal does not reach, which holds the scope owner by now, changes nothing of the answer.
    """
    if metadata.budget_id is not None:
        _check_budget(session, metadata, metadata.budget_id)
    repository.lock_content(session, content_hash)
    roots = repository.roots_of_content(session, content_hash)
    is_public = repository.is_public_somewhere(session, content_hash)
    if metadata.public:
        if roots:
            detail = "These rows are registered as private; what was private never becomes public."
            raise Problem(409, "content_is_private", detail)
    elif is_public:
        detail = "These rows are registered as public, so no budget can protect them. Delete the public data set first."
        raise Problem(409, "content_is_public", detail)
    elif metadata.budget_id not in roots and any(principal.reaches(root) for root in roots):
        detail = (
            "These rows are bound to another root budget that this key reaches. Private data have one root budget for "
            "ever, also after they are deleted and whatever they are called; name that one."
        )
        raise Problem(409, "budget_not_bound", detail)


def _dataset(context: Context, metadata: DatasetMetadata, rows: int, content_hash: str, dataset_id: str) -> Dataset:
    return Dataset(
        id=dataset_id,
        name=metadata.name,
        is_public=metadata.public,
        is_bundled=False,
        declared_size=metadata.declared_size,
        capacity=metadata.capacity_for(rows),
        privacy_unit=metadata.privacy_unit,
        columns=[column.model_dump(mode="json") for column in metadata.columns],
        label=metadata.label,
        budget_id=metadata.budget_id,
        content_hash=content_hash,
        created_at=context.clock(),
        deleted_at=None,
    )


def _check_reach(session: Session, principal: Principal, metadata: DatasetMetadata) -> None:
    """Refuse what a key of some budgets may not register: public data, which no budget protects, and data of others."""
    if principal.budgets is None:
        return
    if metadata.budget_id is None:
        raise reach.beyond("public data have none, so another key registers them")
    try:
        budget = get_budget(session, metadata.budget_id)
    except Problem:
        raise _unknown_budget() from None
    if not principal.reaches(budget.path):
        raise _unknown_budget()
    if not principal.reaches(budget.root_id):
        raise reach.beyond("data are bound to the root of a tree of budgets, and the root of this one is none of them")


def _unknown_budget() -> Problem:
    detail = "There is no budget with this id; create the root budget first."
    return unprocessable("unknown_budget", detail, "metadata", "budget_id")


def _check_budget(session: Session, metadata: DatasetMetadata, budget_id: str) -> None:
    try:
        budget = get_budget(session, budget_id)
    except Problem:
        raise _unknown_budget() from None
    if budget.parent_id is not None:
        detail = f"Data are bound to the root of a tree of budgets; the root above this one is {budget.root_id}."
        raise unprocessable("not_a_root_budget", detail, "metadata", "budget_id")
    if budget.privacy_unit != metadata.privacy_unit:
        detail = (
            f"The budget protects one {budget.privacy_unit!r}; privacy_unit must be the same, and each row belong to "
            "one of them."
        )
        raise unprocessable("privacy_unit_mismatch", detail, "metadata", "privacy_unit")


def _read(context: Context, upload: Upload, metadata: DatasetMetadata) -> Table:
    if upload.kind is FileKind.CSV:
        return read_csv(upload.file.open(), metadata.columns, metadata.label)
    return read_columnar(upload.kind, upload.file, metadata.columns, metadata.label, context.file_readers)


def _fingerprint(request: Any) -> bytes:
    return json.dumps(request, sort_keys=True, separators=(",", ":")).encode()


def _report(table: Table) -> OwnerReport:
    return OwnerReport(rows=table.rows, values_clipped=table.values_clipped)
