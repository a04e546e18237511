"""Register an upload: check metadata and file, bind the content to its root budget, store the rows.

No answer reveals rows under budgets that the caller cannot read. So a conflict with another root budget is reported
only to callers who reach that budget. Everybody else gets a data set of their own, and the same database statements are
executed in both cases.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.auth import reach
from app.auth.principal import Principal, Scope
from app.context import Context
from app.datasets import repository, versions
from app.datasets.columnar import read_columnar
from app.datasets.columns import Column
from app.datasets.csv_file import read_csv
from app.datasets.file_kinds import FileKind
from app.datasets.files import DatasetFiles
from app.datasets.held_out import toss
from app.datasets.persons import PersonColumn, person_column_of, rows_of
from app.datasets.schemas import DatasetMetadata, OwnerReport, PersonsDeletion, VersionMetadata
from app.datasets.service import body_of, columns_of, get, sweep_files, version_body
from app.datasets.synthetic import SyntheticRequest, generate
from app.datasets.table import Table, rows_that_stay
from app.datasets.upload import Upload
from app.datasets.versions import Version
from app.entries import registering
from app.entries.kinds import EntryKind
from app.entries.registering import Registration
from app.entries.subjects import Subject
from app.idempotency.once import Keyed, run_once
from app.idempotency.records import Answer
from app.kit.fields import Schema
from app.kit.ids import new_id
from app.kit.json_body import read_json
from app.kit.validation import from_model
from app.ledger.repository import get_budget
from app.problems import Problem, ProblemItem, not_found, unprocessable
from app.tables.datasets import Dataset, DatasetVersion

Metadata = TypeVar("Metadata", bound=Schema)


def register(context: Context, principal: Principal, key: str, upload: Upload) -> Answer:
    """Register an uploaded data set, once per idempotency key.

    Args:
        context: The process's context.
        principal: The owner.
        key: The request's idempotency key.
        upload: The received file and metadata.

    Returns:
        201 with `UploadedDataset`. For a repeated upload, the owner's report is computed from its own file, so no
        stored answer holds the true number of rows.

    Raises:
        Problem: 403 ``public_needs_admin``; 422 for metadata or a file at fault, ``no_rows`` for public data without
            any, ``capacity_exceeded``; 409 ``budget_not_bound``, ``content_is_private`` or ``content_is_public``.
    """
    metadata = read_metadata(upload.metadata)
    if metadata.public and not principal.may(Scope.ADMIN):
        # This is checked before the file is read, so that the answer says nothing about its contents.
        detail = "Only a key with the scope admin can declare rows public; upload them as private, with a budget."
        raise Problem(403, "public_needs_admin", detail)
    dataset_id = new_id("ds")
    table = _read(context, upload, metadata.columns, metadata.label, person_column_of(context, metadata, dataset_id))
    if metadata.public and table.rows == 0:
        # Private data may have no rows, since their number is secret. Models are scored on public data, which is
        # impossible without rows.
        detail = "The file has no rows; public data need at least one."
        raise unprocessable("no_rows", detail, "file")
    _check_capacity(table.rows, metadata.declared_size, metadata.capacity_for(table.rows))
    request = ["upload", metadata.model_dump(mode="json"), upload.file_digest.hex()]
    return _register(context, principal, key, request, metadata, dataset_id, table)


def add_version(context: Context, principal: Principal, key: str, dataset_id: str, upload: Upload) -> Answer:
    """Add a version to a private data set, once per idempotency key: the whole content as it is now.

    Returns:
        201 with `VersionAnswer`.

    Raises:
        Problem: 404 if there is no such data set, or it is deleted; 409 ``dataset_is_public``; 403 if the principal
            does not reach the root budget; 422 for metadata or a file at fault, ``capacity_exceeded``; 409
            ``budget_not_bound`` or ``content_is_public``.
    """
    dataset = _with_versions(context, principal, dataset_id)
    metadata = _read_part(upload.metadata, VersionMetadata)
    table = _read(context, upload, columns_of(dataset), dataset.label, person_column_of(context, dataset, dataset_id))
    version_id = new_id("dsv")

    def add(session: Session) -> Answer:
        locked = _locked(session, dataset_id)
        sizes = metadata.sizes_after(versions.newest(session, locked))
        _check_capacity(table.rows, *sizes)
        return _enter_version(context, session, principal, locked, version_id, metadata, sizes, table)

    request = ["version", dataset_id, metadata.model_dump(mode="json"), upload.file_digest.hex()]
    stored = (version_id, dataset.held_out_share)
    answer = _store(context, principal, key, request, stored, lambda: table, add)
    return _with_report(answer, table)


def delete_persons(
    context: Context, principal: Principal, key: str, dataset_id: str, request: PersonsDeletion
) -> Answer:
    """Add the newest version without some persons as another version, once per idempotency key.

    The declared size and the capacity are not changed, so they cannot depend on the removed rows. No part of the answer
    depends on whether a person was in the data. Otherwise a key that may delete persons could find out who is in the
    data.

    Returns:
        201 with `VersionAnswer`, whose owner's report is null.

    Raises:
        Problem: as in `add_version`, except for problems of files; 409 ``no_person_ids``; 503
            ``version_came_meanwhile``.
    """
    dataset = _with_versions(context, principal, dataset_id)
    column = person_column_of(context, dataset, dataset_id)
    if column is None:
        detail = "The files of this data set have no ids of persons. Upload a version without the rows to remove."
        raise Problem(409, "no_person_ids", detail)
    with context.database.read() as session:
        before = versions.newest(session, dataset)
    version_id = new_id("dsv")
    tables: list[Table] = []

    def make() -> Table:
        tables.append(_without(context, dataset, before, column, request.persons))
        return tables[-1]

    def add(session: Session) -> Answer:
        locked = _locked(session, dataset_id)
        if versions.newest(session, locked) != before:
            raise _came_meanwhile()
        sizes = before.declared_size, before.capacity
        return _enter_version(context, session, principal, locked, version_id, request, sizes, tables[-1])

    asked = ["persons", dataset_id, request.model_dump(mode="json")]
    answer = _store(context, principal, key, asked, (version_id, dataset.held_out_share), make, add)
    return Answer(answer.status, {**answer.body, "owner_report": None}, answer.headers)


def _with_versions(context: Context, principal: Principal, dataset_id: str) -> Dataset:
    """Return a data set to which the principal may add versions."""
    with context.database.read() as session:
        dataset = repository.find(session, dataset_id)
    if dataset is None:
        raise not_found("data set", dataset_id)
    versions.refuse_public(dataset)
    if not principal.reaches(str(dataset.budget_id)):
        raise reach.beyond("only a key that reaches the root budget of the data may add a version")
    return dataset


def _locked(session: Session, dataset_id: str) -> Dataset:
    locked = repository.find_for_update(session, dataset_id)
    if locked is None or locked.deleted_at is not None:
        raise not_found("data set", dataset_id)
    return locked


def _enter_version(
    context: Context,
    session: Session,
    principal: Principal,
    dataset: Dataset,
    version_id: str,
    stated: VersionMetadata | PersonsDeletion,
    sizes: tuple[int, int],
    table: Table,
) -> Answer:
    """Write the next version of a data set, and the register's entry about it. The data set's row is locked."""
    budget_id, content_hash = str(dataset.budget_id), _content_hash(context, table, version_id)
    _bind(session, principal, budget_id, content_hash)
    declared_size, capacity = sizes
    row = DatasetVersion(
        id=version_id,
        dataset_id=dataset.id,
        version=versions.newest(session, dataset).number + 1,
        budget_id=budget_id,
        content_hash=content_hash,
        declared_size=declared_size,
        capacity=capacity,
        change=stated.change,
        reason=stated.reason,
        erases_earlier=stated.erase_earlier,
        created_at=context.clock(),
    )
    repository.add(session, row)
    entered = Registration(EntryKind.REGISTER, Subject.VERSION, version_id, principal.id)
    registering.enter(session, row.created_at, [entered])
    body = version_body(versions.newest(session, dataset)).model_dump(mode="json")
    return Answer(201, body, {"Location": f"/v1/datasets/{dataset.id}/versions"})


def _without(
    context: Context, dataset: Dataset, before: Version, column: PersonColumn, persons: Sequence[str]
) -> Table:
    """Return the table of a version without some persons, as if it had been uploaded without them."""
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    try:
        features, labels = files.read(before.id)
        stored = files.read_persons(before.id)
    except FileNotFoundError:
        with context.database.read() as session:
            if versions.newest(session, get(session, dataset.id)) == before:
                raise
        # A version that was added meanwhile has erased this one.
        raise _came_meanwhile() from None
    stays = ~rows_of(stored.hashes, column.hashes(persons))
    return rows_that_stay(features, labels, stored, stays, columns_of(dataset), dataset.label, column)


def _came_meanwhile() -> Problem:
    detail = (
        "Another version was uploaded while the rows were read; nothing was changed. Send the request again, with "
        "the same key."
    )
    return Problem(503, "version_came_meanwhile", detail, headers={"Retry-After": "1"})


def register_synthetic(context: Context, principal: Principal, key: str, request: SyntheticRequest) -> Answer:
    """Generate and register a public data set, once per idempotency key.

    Returns:
        201 with `UploadedDataset`.

    Raises:
        Problem: 409 ``content_is_private``: somebody registered the same rows as private. Only keys that reach all
            budgets register public data, so this reveals nothing to them.
    """
    with context.numerics:
        table = generate(request)
    asked = request.model_dump(mode="json")
    return _register(context, principal, key, asked, request.declaration, new_id("ds"), table)


def _register(
    context: Context,
    principal: Principal,
    key: str,
    request: Any,
    metadata: DatasetMetadata,
    dataset_id: str,
    table: Table,
) -> Answer:
    content_hash = _content_hash(context, table, dataset_id)

    def add(session: Session) -> Answer:
        _check_reach(session, principal, metadata)
        if metadata.budget_id is not None:
            _check_budget(session, metadata, metadata.budget_id)
        _bind(session, principal, metadata.budget_id, content_hash)
        dataset = _dataset(context, metadata, table.rows, content_hash, dataset_id)
        repository.add(session, dataset)
        entered = Registration(EntryKind.REGISTER, Subject.DATASET, dataset_id, principal.id)
        registering.enter(session, dataset.created_at, [entered])
        body = body_of(dataset, versions.newest(session, dataset)).model_dump(mode="json")
        return Answer(201, body, {"Location": f"/v1/datasets/{dataset_id}"})

    stored = (dataset_id, metadata.held_out_share)
    answer = _store(context, principal, key, request, stored, lambda: table, add)
    return _with_report(answer, table)


def _store(
    context: Context,
    principal: Principal,
    key: str,
    request: Any,
    stored: tuple[str, float | None],
    make: Callable[[], Table],
    add: Callable[[Session], Answer],
) -> Answer:
    """Store the rows that ``make`` gives and what ``add`` writes about them, unless ``request`` was already answered.

    Rows that no version needs any more, including those that this version erases, are removed afterwards.

    Args:
        context, principal, key, request: As in the public function that calls this one.
        stored: The id of the version, and the share of its rows that is held out. Coins are tossed again for each
            version, even for rows of an earlier version.
        make: A function that gives the rows.
        add: A function that writes the declaration.
    """
    files = DatasetFiles(context.settings.data_dir, context.settings.encryption)
    version_id, share = stored

    def store_rows() -> None:
        table = make()
        persons = None if table.persons is None else table.persons.hashes
        files.write(version_id, table, None if share is None else toss(table.rows, share, persons))

    try:
        answer = run_once(context, Keyed.of(context, principal.id, key, _fingerprint(request)), add, prepare=store_rows)
    except Problem:
        files.remove(version_id)
        raise
    # After any other exception nobody knows whether the rows are registered, so their file is kept.
    if answer.body["id"] != version_id:
        files.remove(version_id)
    sweep_files(context)
    return answer


def _with_report(answer: Answer, table: Table) -> Answer:
    report = OwnerReport(rows=table.rows, values_clipped=table.values_clipped)
    return Answer(answer.status, {**answer.body, "owner_report": report.model_dump()}, answer.headers)


def _content_hash(context: Context, table: Table, version_id: str) -> str:
    """Return the keyed hash of the rows. Each version without rows gets a different hash, so that two of them do not
    count as the same content."""
    return context.keyed_hash("dataset_content", table.content if table.rows else version_id.encode())


def _read_part(document: bytes, kind: type[Metadata]) -> Metadata:
    """Read the metadata part by the rules for a JSON body, with pointers that begin at `/metadata`."""
    try:
        value = read_json(document)
    except Problem as problem:
        items = [ProblemItem(**{**item.model_dump(), "pointer": f"/metadata{item.pointer}"}) for item in problem.errors]
        raise Problem(problem.status, problem.code, problem.detail, errors=items) from None
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise from_model(error, kind, {"metadata": value}, "metadata") from None


def read_metadata(document: bytes) -> DatasetMetadata:
    """Read the metadata of a new data set, which has a root budget exactly if it is private."""
    metadata = _read_part(document, DatasetMetadata)
    if metadata.public and metadata.budget_id is not None:
        detail = "Public data cost no privacy: leave budget_id out."
        raise unprocessable("budget_for_public_data", detail, "metadata", "budget_id")
    if not metadata.public and metadata.budget_id is None:
        detail = "Private data need a budget: give budget_id, the root budget that pays for every run on these rows."
        raise unprocessable("missing", detail, "metadata", "budget_id")
    return metadata


def _check_capacity(rows: int, declared_size: int, capacity: int) -> None:
    if capacity < declared_size:
        detail = f"The capacity must be at least declared_size, which is {declared_size}."
        raise unprocessable("out_of_range", detail, "metadata", "capacity")
    if rows > capacity:
        detail = (
            f"The file has {rows} rows, and the capacity of the data set is {capacity}: give a larger capacity, or "
            "a declared_size that is nearer to the number of rows. Both are public, so choose round numbers."
        )
        raise unprocessable("capacity_exceeded", detail, "metadata", "capacity")


def _bind(session: Session, principal: Principal, budget_id: str | None, content_hash: str) -> None:
    """Refuse rows that conflict with already registered rows, if the principal may know about those.

    Decisions about a content are made under the lock of its row. Both statements are executed for everybody, and a root
    budget that the principal does not reach has no effect on the answer. The principal is known to have the scope
    owner.
    """
    repository.lock_content(session, content_hash)
    roots = repository.roots_of_content(session, content_hash)
    is_public = repository.is_public_somewhere(session, content_hash)
    if budget_id is None:
        if roots:
            detail = "These rows are registered as private, and private rows can never become public."
            raise Problem(409, "content_is_private", detail)
    elif is_public:
        detail = "These rows are registered as public, so no budget can protect them. Delete the public data set first."
        raise Problem(409, "content_is_public", detail)
    elif budget_id not in roots and any(principal.reaches(root) for root in roots):
        detail = (
            "These rows are bound to another root budget that this key reaches. Private rows keep their root "
            "budget for ever, even after they are deleted and under any name: give that budget."
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
        person_column=metadata.person_column,
        rows_per_person=metadata.rows_per_person,
        held_out_share=metadata.held_out_share,
        budget_id=metadata.budget_id,
        content_hash=content_hash,
        created_at=context.clock(),
        deleted_at=None,
    )


def _check_reach(session: Session, principal: Principal, metadata: DatasetMetadata) -> None:
    """Refuse data that a key limited to some budgets may not register: public data, which no budget protects, and data
    under budgets that the key does not reach."""
    if principal.budgets is None:
        return
    if metadata.budget_id is None:
        raise reach.beyond("public data have no budget, so only a key that reaches all budgets may register them")
    try:
        budget = get_budget(session, metadata.budget_id)
    except Problem:
        raise _unknown_budget() from None
    if not principal.reaches(budget.path):
        raise _unknown_budget()
    if not principal.reaches(budget.root_id):
        raise reach.beyond(
            "data are bound to the root of a tree of budgets, and this key does not reach the root of this tree"
        )


def _unknown_budget() -> Problem:
    detail = "There is no budget with this id; create the root budget first."
    return unprocessable("unknown_budget", detail, "metadata", "budget_id")


def _check_budget(session: Session, metadata: DatasetMetadata, budget_id: str) -> None:
    try:
        budget = get_budget(session, budget_id)
    except Problem:
        raise _unknown_budget() from None
    if budget.parent_id is not None:
        detail = f"Data are bound to the root of a tree of budgets; the root of this budget's tree is {budget.root_id}."
        raise unprocessable("not_a_root_budget", detail, "metadata", "budget_id")
    if budget.privacy_unit != metadata.privacy_unit:
        detail = (
            f"The budget protects one {budget.privacy_unit!r}; privacy_unit must be the same, and each row must "
            "belong to one such unit."
        )
        raise unprocessable("privacy_unit_mismatch", detail, "metadata", "privacy_unit")


def _read(
    context: Context, upload: Upload, columns: Sequence[Column], label: str, persons: PersonColumn | None
) -> Table:
    if upload.kind is FileKind.CSV:
        return read_csv(upload.file.open(), columns, label, persons)
    return read_columnar(upload.kind, upload.file, columns, label, context.file_readers, persons)


def _fingerprint(request: Any) -> bytes:
    return json.dumps(request, sort_keys=True, separators=(",", ":")).encode()
