"""A chain of hashes: each covers the bytes of one entry, and the hash of the entry before."""

from __future__ import annotations

import hashlib

#: The hash that the first entry of a chain uses in place of an earlier entry's hash.
GENESIS = "0" * 64
# The version of the hashed bytes; another way of hashing gets another byte.
_VERSION = b"\x01"


def chain_hash(previous_hash: str, canonical: bytes) -> str:
    """Return the SHA-256 of the version byte, the length (8 bytes, big-endian) and the bytes of the entry, and the hash
    before.

    >>> chain_hash(GENESIS, b"{}")[:8]
    '94dd13fd'
    """
    length = len(canonical).to_bytes(8, "big")
    return hashlib.sha256(_VERSION + length + canonical + bytes.fromhex(previous_hash)).hexdigest()
