"""Taking in an upload: metadata and file checked, content bound to its one root budget, rows stored."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.auth import reach
from app.auth.principal import Principal
from app.budgets.service import get_budget
from app.datasets import repository
from app.datasets.columnar import read_columnar
from app.datasets.csv_file import read_csv
from app.datasets.file_kinds import FileKind
from app.datasets.files import DatasetFiles
from app.datasets.models import Dataset
from app.datasets.schemas import DatasetMetadata, OwnerReport
from app.datasets.service import body_of, capacity_of
from app.datasets.synthetic import SyntheticRequest, generate
from app.datasets.table import Table
from app.datasets.upload import Upload
from app.kit.context import Context
from app.kit.idempotency import Answer, run_once
from app.kit.ids import new_id
from app.kit.json_body import read_json
from app.kit.validation import from_model
from app.problems import Problem, ProblemItem, unprocessable


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
        Problem: 422 for metadata or a file at fault, ``no_rows`` for public data without any; 409
            ``budget_not_bound``, ``content_is_private`` or ``content_is_public``.
    """
    metadata = read_metadata(upload.metadata)
    table = _read(context, upload, metadata)
    if metadata.public and table.rows == 0:
        # Private data may have no rows, since their number is private; public data are scored on, and 0/0 is no score.
        detail = "The file has no rows; public data need at least one."
        raise unprocessable("no_rows", detail, "file")
    if not metadata.public and table.rows > capacity_of(metadata.declared_size):
        detail = (
            f"The file has {table.rows} rows, and private data of declared size {metadata.declared_size} have room for "
            f"{capacity_of(metadata.declared_size)}: declare a size that is nearer to the number of rows."
        )
        raise unprocessable("declared_size_too_small", detail, "metadata", "declared_size")
    request = ["upload", metadata.model_dump(mode="json"), upload.file_digest.hex()]
    return _store(context, principal, key, request, metadata, table)


def register_synthetic(context: Context, principal: Principal, key: str, request: SyntheticRequest) -> Answer:
    """Generate and register a public data set, once per idempotency key.

    Returns:
        201 with `UploadedDataset`.

    Raises:
        Problem: 409 ``content_is_private``: somebody registered the same rows as private.
    """
    with context.numerics:
        table = generate(request)
    return _store(context, principal, key, request.model_dump(mode="json"), request.declaration, table)


def _store(
    context: Context, principal: Principal, key: str, request: Any, metadata: DatasetMetadata, table: Table
) -> Answer:
    """Bind the content, store declaration and rows, unless ``request`` was answered under this key already."""
    content_hash = context.keyed_hash("dataset_content", table.content)
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    dataset_id = new_id("ds")

    def store_rows() -> None:
        files.write(dataset_id, table)

    def add(session: Session) -> Answer:
        _check_reach(session, principal, metadata)
        dataset = _bound(session, context, metadata, content_hash, dataset_id)
        repository.add(session, dataset)
        body = body_of(dataset).model_dump(mode="json")
        return Answer(201, body, {"Location": f"/v1/datasets/{dataset_id}"})

    try:
        answer = run_once(context, principal.id, key, _fingerprint(request), add, prepare=store_rows)
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


def _bound(
    session: Session, context: Context, metadata: DatasetMetadata, content_hash: str, dataset_id: str
) -> Dataset:
    """The new data set, its content bound. Whatever is decided about a content, is decided under its row's lock."""
    if metadata.budget_id is not None:
        _check_budget(session, metadata, metadata.budget_id)
    content = repository.lock_content(session, content_hash)
    if metadata.public:
        if content.root_budget_id is not None:
            detail = "These rows are registered as private; what was private never becomes public."
            raise Problem(409, "content_is_private", detail)
    elif content.root_budget_id is None:
        if repository.is_public_somewhere(session, content_hash):
            detail = (
                "These rows are registered as public, so no budget can protect them. Delete the public data set first."
            )
            raise Problem(409, "content_is_public", detail)
        content.root_budget_id = metadata.budget_id
    elif content.root_budget_id != metadata.budget_id:
        detail = (
            "These rows are bound to another root budget. Private data have one root budget for ever, also after they "
            "are deleted and whatever they are called; name that one."
        )
        raise Problem(409, "budget_not_bound", detail)
    return Dataset(
        id=dataset_id,
        name=metadata.name,
        is_public=metadata.public,
        is_bundled=False,
        declared_size=metadata.declared_size,
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
