"""Keys that sign the ledger's checkpoints: Ed25519 keys in PEM files without a password."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key


def new_signing_key() -> bytes:
    """Return a fresh key, as `read_signing_key` takes it."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the key in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.
    """
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("the key has a password, or is of an unknown kind") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("the key is not an Ed25519 key")
    return key
