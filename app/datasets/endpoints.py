"""`/v1/datasets`: data sets are declared in public and uploaded once, and their rows are never returned."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import JSONResponse

from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.datasets import service
from app.datasets.registration import add_version, delete_persons, register, register_synthetic
from app.datasets.request_body import REQUEST_BODY, VERSION_BODY
from app.datasets.schemas import (
    DatasetBody,
    PersonsDeletion,
    SharedContent,
    UploadedDataset,
    VersionAnswer,
    VersionBody,
)
from app.datasets.synthetic import SyntheticRequest
from app.datasets.upload import Received, ReceivedVersion
from app.idempotency.requests import IdempotencyKey
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page
from app.kit.query_parameters import KnownParametersOnly

router = APIRouter(prefix="/v1/datasets", tags=["Data sets"], dependencies=[KnownParametersOnly])


Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]


# The parameters are resolved in order: the scope and the key are checked before the server reads a file.
@router.post(
    "",
    summary="Upload or generate a data set",
    status_code=201,
    response_model=UploadedDataset,
    openapi_extra={"requestBody": REQUEST_BODY},
)
def upload_dataset(
    principal: Annotated[Principal, requires(Scope.OWNER)],
    key: IdempotencyKey,
    context: CurrentContext,
    received: Received,
) -> JSONResponse:
    """Takes a CSV, Parquet or NPZ file and what its owner declares about it. The data are private unless an admin
    declares them public.

    Everything in `metadata` is public: choose bounds, categories, `declared_size` and `capacity` without looking at any
    single record. Numbers outside their bounds are clipped. Any other value that is not as declared is refused, by row
    and column, and so is a file with more rows than `capacity`. Only this answer has `owner_report`.

    Private rows are bound to their root budget for ever, even if they are uploaded again under another name. Another
    root is refused (409 `budget_not_bound`) if the key reaches the first one; other keys do not learn of it.

    With a JSON body the rows are generated from a seed and public parameters, and are public.
    """
    if isinstance(received, SyntheticRequest):
        answer = register_synthetic(context, principal, key, received)
    else:
        answer = register(context, principal, key, received)
    return JSONResponse(answer.body, answer.status, headers=answer.headers)


@router.get("", summary="List data sets")
def list_datasets(
    principal: Reader, context: CurrentContext, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[DatasetBody]:
    """Lists the declarations of data sets, oldest first. Three public data sets come with the service."""
    return service.list_page(context, cursor, limit, principal)


@router.get("/shared-contents", summary="List rows that are private under several root budgets")
def list_shared_contents(
    principal: Annotated[Principal, requires(Scope.AUDITOR)],
    context: CurrentContext,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Page[SharedContent]:
    """List rows that are registered under several roots, so that losses add up: for auditors who reach all budgets.

    Owners who do not reach one another's budgets are not told that they have registered the same rows, since that would
    let them test guesses at rows. This list shows such rows, without a hash.
    """
    with context.database.read() as session:
        return service.list_shared_contents(session, cursor, limit, principal)


@router.get("/{dataset_id}", summary="Show a data set's declaration")
def get_dataset(principal: Reader, context: CurrentContext, dataset_id: str) -> DatasetBody:
    """Returns one data set as it was declared. Neither rows nor anything counted or computed from them is shown.

    `warnings` tells an owner if an old data set has more rows than its capacity.
    """
    return service.read(context, dataset_id, principal)


@router.post(
    "/{dataset_id}/versions",
    summary="Add a version to a private data set",
    status_code=201,
    response_model=VersionAnswer,
    openapi_extra={"requestBody": VERSION_BODY},
)
def upload_version(
    principal: Annotated[Principal, requires(Scope.OWNER)],
    key: IdempotencyKey,
    context: CurrentContext,
    dataset_id: str,
    received: ReceivedVersion,
) -> JSONResponse:
    """Adds the whole content as it is now, after rows were added, removed or changed. Needs a key that reaches the root
    budget.

    Columns, label, privacy unit and root budget do not change, and every run on any version is charged to that root.
    Runs that name no version train on the newest one from now on. If a person was deleted, `erase_earlier` removes the
    rows of earlier versions. Everything in `metadata` is public, and so is the time of the upload.

    With a JSON body the service makes the version itself, if the data set has a `person_column`: the newest version
    without the persons whose ids are named. The answer does not tell whether they had rows, and its `owner_report` is
    null.
    """
    if isinstance(received, PersonsDeletion):
        answer = delete_persons(context, principal, key, dataset_id, received)
    else:
        answer = add_version(context, principal, key, dataset_id, received)
    return JSONResponse(answer.body, answer.status, headers=answer.headers)


@router.get("/{dataset_id}/versions", summary="List the versions of a data set")
def list_versions(
    _: Reader, context: CurrentContext, dataset_id: str, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[VersionBody]:
    """Lists each version as it was declared, oldest first. Public data have one version."""
    with context.database.read() as session:
        return service.list_versions(session, dataset_id, cursor, limit)


@router.delete("/{dataset_id}", summary="Delete a data set's rows", status_code=204)
def delete_dataset(
    principal: Annotated[Principal, requires(Scope.OWNER)], context: CurrentContext, dataset_id: str
) -> None:
    """Remove the rows of all versions for good.

    Private rows remain bound to their root budget if they are uploaded again.
    """
    service.delete(context, dataset_id, principal)
