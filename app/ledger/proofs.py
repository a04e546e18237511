"""Verify proofs from their files alone, without database, settings or secrets.

A proof is the JSON answer of `GET /v1/ledger/entries/{id}/proof` or `GET /v1/ledger/consistency`. Its roots count only
if a checkpoint that the ledger's public key verifies states them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from app.ledger.checkpoints import Checkpoint, InvalidNote, VerifierKey, open_note
from app.ledger.merkle import EMPTY_ROOT, WIDTH, leaf_hash, verify_consistency, verify_inclusion


class InvalidProof(Exception):
    """The file is not a proof, or does not prove what it states; the message says why."""


def check_proof(text: str, key: VerifierKey, kept: Checkpoint | None = None) -> str:
    """Check a proof, and return in words what it shows.

    Args:
        text: The proof as JSON.
        key: The ledger's public key.
        kept: A verified checkpoint that was kept elsewhere. It replaces the proof's own checkpoint of its size, which
            may not contradict it.

    Raises:
        InvalidProof: it proves nothing, or no checkpoint states one of its roots.
    """
    try:
        proof = json.loads(text)
        kind = proof["kind"]
        if kind == "inclusion":
            return _inclusion(proof, key, kept)
        if kind == "consistency":
            return _consistency(proof, key, kept)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidProof(f"the file is not a proof in the ledger's form ({type(error).__name__})") from None
    raise InvalidProof("the file is not a proof of inclusion or consistency")


def _inclusion(proof: Mapping[str, Any], key: VerifierKey, kept: Checkpoint | None) -> str:
    size, root = _integer(proof["tree_size"]), _hash(proof["root_hash"])
    _check_root(size, root, proof["checkpoint"], key, kept)
    leaf, index = leaf_hash(_hash(proof["entry_hash"])), _integer(proof["tree_index"])
    if leaf != _hash(proof["leaf_hash"]):
        raise InvalidProof("leaf_hash is not the leaf hash of entry_hash")
    if not verify_inclusion(leaf, index, size, _path(proof), root):
        raise InvalidProof(f"the path does not lead from the entry at {index} to the root of the tree of {size}")
    return f"the entry with the hash {proof['entry_hash']} is in the tree of {size} entries of {key.name}, at {index}"


def _consistency(proof: Mapping[str, Any], key: VerifierKey, kept: Checkpoint | None) -> str:
    sizes = _integer(proof["from_size"]), _integer(proof["to_size"])
    roots = _hash(proof["from_root"]), _hash(proof["to_root"])
    for size, root, note in zip(sizes, roots, (proof["from_checkpoint"], proof["to_checkpoint"]), strict=True):
        _check_root(size, root, note, key, kept)
    if not verify_consistency(*sizes, *roots, _path(proof)):
        raise InvalidProof(
            f"the path does not show that the tree of {sizes[1]} entries begins with the tree of {sizes[0]} entries"
        )
    return f"the tree of {sizes[1]} entries of {key.name} begins with the tree of {sizes[0]} entries"


def _check_root(size: int, root: bytes, note: object, key: VerifierKey, kept: Checkpoint | None) -> None:
    """Check that a checkpoint states the root, and that none states another root."""
    said = []
    if kept is not None and kept.size == size:
        said.append(kept)
    if isinstance(note, str):
        try:
            said.append(open_note(note, key))
        except InvalidNote as error:
            raise InvalidProof(str(error)) from None
    if any((checkpoint.size, checkpoint.root) != (size, root) for checkpoint in said):
        raise InvalidProof(f"the checkpoint of {size} entries and the proof have different roots")
    if not said and (size, root) != (0, EMPTY_ROOT):
        raise InvalidProof(f"no checkpoint has the root of {size} entries: give a kept checkpoint of this size")


def _path(proof: Mapping[str, Any]) -> list[bytes]:
    return [_hash(node) for node in proof["path"]]


def _hash(value: Any) -> bytes:
    data = bytes.fromhex(value)
    if len(data) != WIDTH:
        raise ValueError("a hash must have 32 bytes")
    return data


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError("a size must be an integer")
    return value
