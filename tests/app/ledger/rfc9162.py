"""A verifier of its own: RFC 9162, RFC 8032 and the signed note, with nothing of ours.

Run as a program it reads an export, a checkpoint and a public key, and fails where they do not belong together.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def tree_hash(leaves: list[bytes]) -> bytes:
    """Section 2.1.1."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + tree_hash(leaves[:k]) + tree_hash(leaves[k:])).digest()


def checked_note(note: str, public_key: str) -> tuple[str, int, bytes]:
    """Origin, size and root, once the signature is verified."""
    text, _, signatures = note.partition("\n\n")
    name, _, key = public_key.split("+", 2)
    [line] = [line for line in signatures.splitlines() if line.split()[1] == name]
    signature = base64.b64decode(line.split()[2])[4:]
    Ed25519PublicKey.from_public_bytes(base64.b64decode(key)[1:]).verify(signature, f"{text}\n".encode())
    origin, size, root = text.split("\n")
    return origin, int(size), base64.b64decode(root)


def checked_export(lines: list[dict[str, Any]], note: str, public_key: str) -> int:
    """How many entries the checkpoint has, all of which are in the export, in chains that are whole."""
    _, size, root = checked_note(note, public_key)
    entries, heads = lines[1:-1], {}
    for entry in entries:
        data = entry["canonical"].encode()
        before = heads.get(entry["budget_id"], "0" * 64)
        covered = b"\1" + len(data).to_bytes(8, "big") + data + bytes.fromhex(before)
        assert (before, hashlib.sha256(covered).hexdigest()) == (entry["previous_hash"], entry["hash"])
        heads[entry["budget_id"]] = entry["hash"]
    leaves = {entry["tree_index"]: bytes.fromhex(entry["hash"]) for entry in entries}
    assert tree_hash([leaves[place] for place in range(size)]) == root
    return size


if __name__ == "__main__":
    export, checkpoint, public_key = sys.argv[1:]
    lines = [json.loads(line) for line in Path(export).read_text().splitlines()]
    sys.stdout.write(f"{checked_export(lines, Path(checkpoint).read_text(), public_key)}\n")
