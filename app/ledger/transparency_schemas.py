"""Answers about the tree over all entries: checkpoints and proofs. Hashes are hexadecimal."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.kit.fields import Schema
from app.ledger.proving import InclusionProof

_NOTE = (
    "The checkpoint as a signed note (C2SP, tlog-checkpoint): origin, size and root in base64, an empty line, the "
    "signature."
)
_PATH = "Hashes from the leaves upwards, as RFC 9162, section {section}, has them."


class CheckpointBody(Schema):
    """All entries that were committed at a moment, in one signed hash. Keep `note` out of the operator's reach."""

    origin: str = Field(description="`epsilond/` and the ledger's id, which was drawn when its tables were made.")
    tree_size: int = Field(description="How many entries the tree has.")
    root_hash: str = Field(description="The root of the Merkle tree of RFC 9162 over them.")
    note: str = Field(description=_NOTE)
    public_key: str = Field(
        description="The public key that verifies the note: `<origin>+<key id>+<Ed25519 key in base64>`."
    )
    issued_at: datetime
    cosigned_by: list[str] = Field(
        description="Names of the witnesses whose cosignatures are below the note. The note proves it, not this list."
    )
    quorum: int = Field(description="How many witnesses must have cosigned; 0 where the operator names none.")


class InclusionBody(Schema):
    """The proof that an entry is in the tree. `epsilond ledger prove` checks it without a server."""

    kind: Literal["inclusion"] = "inclusion"
    entry_id: str
    entry_hash: str = Field(description="The entry's hash in the chain of its budget: the data of the leaf.")
    leaf_hash: str = Field(description="SHA-256 over a zero byte and the 32 bytes of `entry_hash`.")
    tree_index: int = Field(description="The entry's place in the tree, from 0, without gaps.")
    tree_size: int
    root_hash: str
    path: list[str] = Field(description=_PATH.format(section="2.1.3.1"))
    checkpoint: str | None = Field(description=f"{_NOTE} Of this size; null if none was signed.")

    @classmethod
    def of(cls, proof: InclusionProof) -> InclusionBody:
        """Return the proof, as the contract writes it."""
        return cls(
            entry_id=proof.entry_id,
            entry_hash=proof.entry_hash,
            leaf_hash=proof.leaf.hex(),
            tree_index=proof.tree_index,
            tree_size=proof.size,
            root_hash=proof.root.hex(),
            path=[node.hex() for node in proof.path],
            checkpoint=proof.note,
        )


class ConsistencyBody(Schema):
    """The proof that a tree begins with a smaller one. `epsilond ledger prove` checks it without a server."""

    kind: Literal["consistency"] = "consistency"
    from_size: int
    from_root: str
    to_size: int
    to_root: str
    path: list[str] = Field(description=_PATH.format(section="2.1.4.1"))
    from_checkpoint: str | None = Field(description=f"{_NOTE} Of the smaller size; null if none was signed.")
    to_checkpoint: str | None = Field(description=f"{_NOTE} Of the larger size; null if none was signed.")


class TreeBody(Schema):
    """The tree over all entries, as a verification found it."""

    size: int = Field(description="How many entries it has; those that were committed since follow with the next call.")
    root_hash: str
