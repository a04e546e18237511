"""Checkpoints: the signed size and root of the tree of all entries, and the key that verifies them.

The text is that of a transparency log's checkpoint (C2SP, tlog-checkpoint) in a signed note (C2SP, signed-note) with
Ed25519 (RFC 8032), so that programs which know those formats can keep and verify it::

    epsilond/led_...
    7
    <root, base64>

    — epsilond/led_... <key id and signature, base64>

This module is pure: it uses no database and no settings.
"""

from __future__ import annotations

import base64
import hashlib
from binascii import Error as NotBase64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from app.ledger.merkle import WIDTH

#: The most characters of a note; one with the signatures of a hundred witnesses is shorter.
MAX_NOTE_LENGTH = 16_384
_MOST_DIGITS = 18
_DASH = "\u2014 "


def origin_of(ledger_id: str) -> str:
    """Return the name of a ledger in its checkpoints.

    >>> origin_of("led_a")
    'epsilond/led_a'
    """
    return f"epsilond/{ledger_id}"


class InvalidNote(Exception):
    """The text is not a checkpoint that the key has signed; the message says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A state of the tree.

    Attributes:
        origin: The name of the ledger.
        size: The number of entries.
        root: The root of the tree over the entries.
    """

    origin: str
    size: int
    root: bytes

    def text(self) -> str:
        """Return the text that is signed.

        >>> Checkpoint("epsilond/led_a", 0, bytes(32)).text().splitlines()[:2]
        ['epsilond/led_a', '0']
        """
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"


@dataclass(frozen=True)
class VerifierKey:
    """A public key with the name of the ledger whose checkpoints it verifies."""

    #: The byte that names the signature algorithm and what is signed.
    kind: ClassVar[bytes] = b"\x01"
    #: Whose key it is, in words.
    whose: ClassVar[str] = "a ledger"

    name: str
    key: bytes

    @classmethod
    def of(cls, private: Ed25519PrivateKey, name: str) -> Self:
        """Return the public half of a key."""
        return cls(name, private.public_key().public_bytes_raw())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``<name>+<key id>+<base64 of the type and the key>``.

        Raises:
            InvalidNote: the text has another form.
        """
        name, _, rest = text.strip().partition("+")
        key_id, _, encoded = rest.partition("+")
        data = _decoded(encoded)
        if not _is_name(name) or data is None or len(data) != 1 + WIDTH or not data.startswith(cls.kind):
            raise InvalidNote(
                f"this is not a public key of {cls.whose}, which has the form <name>+<key id>+<Ed25519 key in base64>"
            )
        found = cls(name, data[1:])
        if found.key_id.hex() != key_id:
            raise InvalidNote(
                f"this is not a public key of {cls.whose}: the key id of this name and key is not {key_id!r}"
            )
        return found

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_base64(self.kind + self.key)}"

    @property
    def key_id(self) -> bytes:
        """Return the id that tells signatures of this key from others; it proves nothing."""
        return hashlib.sha256(self.name.encode() + b"\n" + self.kind + self.key).digest()[:4]

    def verifies(self, signature: bytes, text: str) -> bool:
        """Return whether this key has signed the text."""
        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(signature, text.encode())
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Signature:
    """A line under a note, with the name of the alleged signer."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def line(self) -> str:
        """Return the line with its line break."""
        return f"{_DASH}{self.name} {_base64(self.key_id + self.signature)}\n"


def sign(checkpoint: Checkpoint, private: Ed25519PrivateKey) -> str:
    """Return the signed note."""
    key, text = VerifierKey.of(private, checkpoint.origin), checkpoint.text()
    return f"{text}\n{Signature(key.name, key.key_id, private.sign(text.encode())).line}"


def open_note(note: str, key: VerifierKey) -> Checkpoint:
    """Return the checkpoint of a note that the key has signed. Other signatures are ignored.

    Raises:
        InvalidNote: it is not a checkpoint of this ledger that the key has signed.
    """
    checkpoint, signatures = read_note(note)
    if checkpoint.origin != key.name:
        raise InvalidNote(f"the checkpoint belongs to {checkpoint.origin}, and the public key to {key.name}")
    if not is_signed_by(key, checkpoint, signatures):
        raise InvalidNote("the checkpoint has no signature of the public key")
    return checkpoint


def is_signed_by(key: VerifierKey, checkpoint: Checkpoint, signatures: tuple[Signature, ...]) -> bool:
    """Return whether the key has signed the checkpoint.

    Raises:
        InvalidNote: a signature claims to be of the key, but is not.
    """
    own = [each.signature for each in signatures if (each.name, each.key_id) == (key.name, key.key_id)]
    if not all(key.verifies(signature, checkpoint.text()) for signature in own):
        raise InvalidNote("the checkpoint was changed after it was signed: its signature does not verify")
    return bool(own)


def read_note(note: str) -> tuple[Checkpoint, tuple[Signature, ...]]:
    """Return the checkpoint of a note, whoever signed it, and its signatures, which are not verified yet.

    Raises:
        InvalidNote: it is no checkpoint.
    """
    text, blank, lines = note.rpartition("\n\n")
    if not blank or len(note) > MAX_NOTE_LENGTH or not lines.endswith("\n"):
        raise InvalidNote("this is not a signed note, which has a text, an empty line, and a line for each signature")
    signatures = tuple(read_signatures(lines))
    lines_of_text = text.split("\n")
    decoded = _decoded(lines_of_text[-1])
    if len(lines_of_text) != 3 or decoded is None or len(decoded) != WIDTH:
        raise InvalidNote(
            "this is not a checkpoint, which has three lines: an origin, a size and a root of 32 bytes in base64"
        )
    origin, size, _ = lines_of_text
    if not _is_name(origin) or not _is_size(size):
        raise InvalidNote("this is not a checkpoint: its first line must be an origin, and its second line a size")
    return Checkpoint(origin, int(size), decoded), signatures


def read_signatures(lines: str) -> Iterator[Signature]:
    """Read the lines of signatures, including their line ends.

    Raises:
        InvalidNote: a line is not a signature.
    """
    for line in lines.removesuffix("\n").split("\n"):
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        data = _decoded(encoded)
        if not line.startswith(_DASH) or not _is_name(name) or data is None or len(data) <= 4:
            raise InvalidNote(
                "this is not a signed note: each line below the empty line must have a dash, a name and a signature"
            )
        yield Signature(name, data[:4], data[4:])


def _is_name(text: str) -> bool:
    return text != "" and text.isprintable() and not any(character.isspace() or character == "+" for character in text)


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS and str(int(text)) == text


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes | None:
    """Return the bytes of a base64 text; None if it is not their canonical base64 form."""
    try:
        data = base64.b64decode(text, validate=True)
    except (NotBase64, ValueError):
        return None
    return data if _base64(data) == text else None
