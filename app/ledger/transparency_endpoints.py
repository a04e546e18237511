"""`/v1/ledger/checkpoint`, `entries/{id}/proof` and `consistency`: what is kept, and what is checked elsewhere."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.responses import JSONResponse, PlainTextResponse, Response

from app.auth.principal import Principal, Scope
from app.auth.rights import requires
from app.context import CurrentContext
from app.kit.negotiation import preferred
from app.kit.query_parameters import KnownParametersOnly
from app.ledger import proving, transparency
from app.ledger.transparency_schemas import CheckpointBody, ConsistencyBody, InclusionBody
from app.ledger.witnesses import witnesses_of

router = APIRouter(prefix="/v1/ledger", tags=["Ledger"], dependencies=[KnownParametersOnly])

Reader = Annotated[Principal, requires(Scope.OWNER, Scope.ANALYST, Scope.AUDITOR)]
#: Larger than any tree, and an integer that a JSON number holds exactly.
_LARGEST = 2**53

_REFUSED: dict[int | str, dict[str, Any]] = {
    409: {"description": "The tree does not begin with what was signed before: somebody changed the database"}
}
_NOT_WITNESSED: dict[int | str, dict[str, Any]] = {
    409: {"description": f"{_REFUSED[409]['description']}. Or no checkpoint is witnessed"}
}


@router.get(
    "/checkpoint",
    operation_id="get_checkpoint",
    summary="Sign a hash of all entries so far, to keep elsewhere",
    response_model=CheckpointBody,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **_NOT_WITNESSED},
)
def get_checkpoint(
    context: CurrentContext,
    _: Reader,
    witnessed: Annotated[
        bool,
        Query(
            description="The newest checkpoint that enough witnesses have cosigned; if absent, a checkpoint of all "
            "entries."
        ),
    ] = False,
    accept: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> Response:
    """The size and the root of the Merkle tree over all entries (RFC 9162), signed with Ed25519; `Accept: text/plain`
    asks for the bare note. Whoever keeps it can show later, by a proof or by `POST /v1/ledger/verify`, whether the
    ledger still begins with these entries. Nothing that contradicts an earlier checkpoint is signed. Below the
    signature are the cosignatures of the witnesses that the operator has named, as far as they have cosigned.
    """
    signed = transparency.witnessed(context) if witnessed else transparency.checkpoint(context)
    headers = {"Vary": "Accept"}
    if preferred(accept, ["application/json", "text/plain"]) == "text/plain":
        return PlainTextResponse(signed.note, headers=headers)
    body = CheckpointBody(
        origin=signed.checkpoint.origin,
        tree_size=signed.checkpoint.size,
        root_hash=signed.checkpoint.root.hex(),
        note=signed.note,
        public_key=signed.public_key,
        issued_at=signed.issued_at,
        cosigned_by=[each.name for each in signed.cosignatures],
        quorum=witnesses_of(context.settings).quorum,
    )
    return JSONResponse(body.model_dump(mode="json"), headers=headers)


@router.get(
    "/entries/{entry_id}/proof",
    operation_id="get_inclusion_proof",
    summary="Prove that an entry is in the tree",
    responses=_REFUSED,
)
def get_inclusion_proof(
    context: CurrentContext,
    _: Reader,
    entry_id: str,
    tree_size: Annotated[
        int | None, Query(ge=1, le=_LARGEST, description="Size of the tree; if absent, that of a new checkpoint.")
    ] = None,
) -> InclusionBody:
    """The hashes that lead from the entry to the root of the tree (RFC 9162, section 2.1.3)."""
    return InclusionBody.of(proving.inclusion(context, entry_id, tree_size))


@router.get(
    "/consistency",
    operation_id="get_consistency_proof",
    summary="Prove that the tree begins with a smaller one",
    responses=_REFUSED,
)
def get_consistency_proof(
    context: CurrentContext,
    _: Reader,
    from_size: Annotated[int, Query(ge=0, le=_LARGEST, description="Size of the smaller tree.")],
    to_size: Annotated[
        int | None,
        Query(ge=0, le=_LARGEST, description="Size of the larger tree; if absent, that of a new checkpoint."),
    ] = None,
) -> ConsistencyBody:
    """The hashes that make both roots (RFC 9162, section 2.1.4): nothing that the smaller tree had was changed."""
    proof = proving.consistency(context, from_size, to_size)
    return ConsistencyBody(
        from_size=proof.sizes[0],
        from_root=proof.roots[0].hex(),
        to_size=proof.sizes[1],
        to_root=proof.roots[1].hex(),
        path=[node.hex() for node in proof.path],
        from_checkpoint=proof.notes[0],
        to_checkpoint=proof.notes[1],
    )
