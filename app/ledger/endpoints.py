"""`/v1/budgets/{id}/entries`, and `/v1/ledger`: the books as a whole."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from pydantic import AwareDatetime
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse, StreamingResponse

from app.auth import reach
from app.auth.names import ids_of, names_of
from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.entries.kinds import EntryKind
from app.kit.fields import PRINTABLE
from app.kit.pagination import DEFAULT_LIMIT, Cursor, Limit, Page, cut_page, decode_cursor
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import books_repository, exports, repository, transparency
from app.ledger.bodies import entry_body, register_entry_body, with_name
from app.ledger.exports import ExportFormat
from app.ledger.schemas import EntryBody, RegisterEntryBody, VerdictBody, VerifyRequest
from app.ledger.stored_values import wrong_kinds_are_a_conflict
from app.problems import not_found
from app.tables.states import REGISTER

router = APIRouter(prefix="/v1", tags=["Ledger"], dependencies=[KnownParametersOnly])

Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]
Auditor = Annotated[Principal, requires(Scope.OWNER, Scope.AUDITOR)]


@router.get(
    "/budgets/{budget_id}/entries",
    operation_id="list_entries",
    summary="List the entries of a budget",
    response_model=Page[EntryBody],
)
def list_entries(
    context: CurrentContext,
    _: Reader,
    budget_id: str,
    kind: Annotated[EntryKind | None, Query(description="List only entries of this kind.")] = None,
    after: Annotated[
        AwareDatetime | None, Query(description="List only entries recorded at this moment or later.")
    ] = None,
    before: Annotated[AwareDatetime | None, Query(description="List only entries recorded before this moment.")] = None,
    purpose: Annotated[
        str | None,
        Query(
            max_length=200,
            pattern=PRINTABLE,
            description="List only entries of reservations with exactly this purpose.",
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        Query(
            max_length=40, pattern="^[a-z_]+$", description="List only entries that have an event of this mechanism."
        ),
    ] = None,
    principal_id: Annotated[
        str | None, Query(max_length=64, description="List only entries made by the principal with this id.")
    ] = None,
    made_by: Annotated[
        str | None,
        Query(
            max_length=200,
            pattern=PRINTABLE,
            description="List only entries made by a principal with this name or this id.",
        ),
    ] = None,
    newest_first: Annotated[bool, Query(description="List the newest entry first.")] = False,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> JSONResponse:
    """Lists everything that was ever decided about the budget, with the hashes that chain the entries. The oldest entry
    comes first, unless the request asks for the newest."""
    behind = decode_cursor(cursor, int)
    with wrong_kinds_are_a_conflict(), context.database.read() as session:
        budget_filter = repository.get_budget(session, budget_id).filter
        found = repository.page(
            session,
            budget_id,
            behind=None if behind is None else behind[0],
            limit=limit + 1,
            newest_first=newest_first,
            kind=kind,
            after=after,
            before=before,
            purpose=purpose,
            mechanism=mechanism,
            principal_ids=_makers(session, principal_id, made_by),
        )
        rows, next_cursor = cut_page(found, limit, lambda entry: (entry.sequence,))
        items = _named(session, [entry_body(row, budget_filter) for row in rows])
        return JSONResponse({"items": items, "next_cursor": next_cursor})


@router.get(
    "/ledger/register",
    operation_id="list_register",
    summary="List what was declared and who holds keys, oldest first",
    response_model=Page[RegisterEntryBody],
)
def list_register(
    context: CurrentContext,
    principal: Auditor,
    subject_id: Annotated[
        str | None, Query(max_length=64, description="List only entries about this data set, key, run or audit.")
    ] = None,
    kind: Annotated[EntryKind | None, Query(description="List only entries of this kind.")] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> JSONResponse:
    """The declaration and the end of every data set, the making, rights and end of every key, and every run and audit,
    as entries of their own chain in the tree over all entries. It needs a key that reaches all budgets.

    Verification compares the tables with it, column by column, and a worker compares the run that it will train.
    """
    if principal.budgets is not None:
        raise reach.beyond("the register covers all budgets")
    behind = decode_cursor(cursor, int)
    with context.database.read() as session, wrong_kinds_are_a_conflict():
        found = repository.page(
            session,
            REGISTER,
            behind=None if behind is None else behind[0],
            limit=limit + 1,
            kind=kind,
            subject_id=subject_id,
        )
        rows, next_cursor = cut_page(found, limit, lambda entry: (entry.sequence,))
        items = _named(session, [register_entry_body(row) for row in rows])
        return JSONResponse({"items": items, "next_cursor": next_cursor})


@router.post(
    "/ledger/verify",
    operation_id="verify_ledger",
    summary="Verify that the ledger's books were not changed",
)
def verify_ledger(
    context: CurrentContext, principal: Auditor, request: Annotated[VerifyRequest | None, Body()] = None
) -> VerdictBody:
    """Verifies that every chain is whole, that every column says what the hashed bytes say, that budgets, reservations
    and exposed steps are what the entries amount to, and that everybody who made an entry had a key. The answer names
    the first place where this is not so. A million entries take a minute.

    Without `budget_id`, data sets, keys, runs and audits must also be as the register says, and the Merkle tree must
    have every entry once, with the nodes and signed checkpoints that follow.

    A ledger that was rolled back, or written anew with whole chains, is valid in itself: give a `checkpoint` that was
    kept elsewhere, or compare it with an export that was (`epsilond ledger verify --since`).

    With `prices`, each different price is computed anew and every charge compared with it. A charge that is too low
    makes the books invalid.
    """
    asked = request or VerifyRequest.model_construct(budget_id=None, checkpoint=None, prices=False)
    with context.database.read() as session:
        root_id = _root_of(session, principal, asked.budget_id)
    return VerdictBody.of(transparency.verify(context, root_id, asked.checkpoint, prices=asked.prices))


@router.get(
    "/ledger/export",
    operation_id="export_ledger",
    summary="Export all entries as one file",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The file",
            "content": {"application/x-ndjson": {}, "text/csv": {}},
        }
    },
)
def export_ledger(
    context: CurrentContext,
    principal: Auditor,
    request: Request,
    file_format: Annotated[
        ExportFormat,
        Query(alias="format", description="ndjson can be verified by itself; csv is a table for people."),
    ] = ExportFormat.NDJSON,
    budget_id: Annotated[
        str | None, Query(max_length=64, description="The tree that this budget belongs to; if absent, everything.")
    ] = None,
) -> StreamingResponse:
    """The entries in the order in which they were written. An NDJSON file ends with a line that says how much it holds,
    so that truncation is noticed, and it can be verified without a server: `epsilond ledger verify --export FILE`.
    """
    with context.database.read() as session:
        root_id = _root_of(session, principal, budget_id)
    export = exports.export(context, root_id)
    return StreamingResponse(
        export.parts(file_format, request.app.version),
        media_type=file_format.media_type,
        headers={"Content-Disposition": f'attachment; filename="{export.file_name(file_format)}"'},
    )


def _makers(session: Session, principal_id: str | None, made_by: str | None) -> set[str] | None:
    """Return the ids of the principals whose entries are requested; None for all."""
    asked = [] if principal_id is None else [{principal_id}]
    asked += [] if made_by is None else [ids_of(session, made_by)]
    return set.intersection(*asked) if asked else None


def _named(session: Session, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries with the names of the principals who made them."""
    names = names_of(session, (body["principal_id"] for body in bodies))
    return [with_name(body, names) for body in bodies]


def _root_of(session: Session, principal: Principal, budget_id: str | None) -> str:
    """Return the root of the requested tree, or "" for all trees; 403 if the key does not reach all of it."""
    if budget_id is None:
        if principal.budgets is not None:
            raise reach.beyond("ask with the budget_id of a root budget that the key reaches")
        return ""
    reach.check(session, principal, "budget_id", budget_id)
    root_id = books_repository.root_of(session, budget_id)
    if root_id is None:
        raise not_found("budget", budget_id)
    if not principal.reaches(root_id):
        raise reach.beyond("only a key that reaches the root of a tree may read its books")
    return root_id
