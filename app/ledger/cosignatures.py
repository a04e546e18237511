"""Cosignatures: verifying them, reading when they were made, and counting whether enough witnesses have cosigned.

The format is C2SP's tlog-cosignature with Ed25519. A cosignature signs a checkpoint's text, whichever key of the ledger
has signed the checkpoint. This module is pure: it uses no database and no settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from app.ledger.checkpoints import Checkpoint, InvalidNote, Signature, VerifierKey

_TIME_BYTES = 8
_LARGEST_TIME = 2**63 - 1


@dataclass(frozen=True)
class WitnessKey(VerifierKey):
    """A public key with the name of the witness whose cosignatures it verifies."""

    kind: ClassVar[bytes] = b"\x04"
    whose: ClassVar[str] = "a witness"

    def cosigned_at(self, checkpoint: Checkpoint, signature: bytes) -> int:
        """Return the time of a cosignature of this key, in seconds since 1970.

        Raises:
            InvalidNote: the key has not signed the checkpoint at that time.
        """
        seconds = int.from_bytes(signature[:_TIME_BYTES], "big")
        text = f"cosignature/v1\ntime {seconds}\n{checkpoint.text()}"
        if not 0 < seconds <= _LARGEST_TIME or not self.verifies(signature[_TIME_BYTES:], text):
            raise InvalidNote(f"a cosignature of {self.name} does not verify")
        return seconds


def signatures_of(key: WitnessKey, signatures: Iterable[Signature]) -> list[bytes]:
    """Return those signatures that name the key; none is verified."""
    return [each.signature for each in signatures if (each.name, each.key_id) == (key.name, key.key_id)]


def cosigned_by(
    keys: Iterable[WitnessKey], checkpoint: Checkpoint, signatures: Sequence[Signature]
) -> dict[WitnessKey, int]:
    """Return which witnesses have cosigned a checkpoint, and when last, in seconds since 1970.

    Raises:
        InvalidNote: a signature that claims to be a witness's is not.
    """
    found: dict[WitnessKey, int] = {}
    for key in keys:
        own = signatures_of(key, signatures)
        if own:
            found[key] = max(key.cosigned_at(checkpoint, signature) for signature in own)
    return found


def check_quorum(
    keys: Sequence[WitnessKey], quorum: int, checkpoint: Checkpoint, signatures: Sequence[Signature]
) -> None:
    """Check that enough witnesses have cosigned a checkpoint.

    Raises:
        InvalidNote: too few have, or a signature that claims to be a witness's is not.
    """
    found = cosigned_by(keys, checkpoint, signatures)
    if len(found) < quorum:
        missing = ", ".join(key.name for key in keys if key not in found)
        raise InvalidNote(f"the checkpoint needs {quorum} cosignatures and has {len(found)}; missing: {missing}")
