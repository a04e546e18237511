"""Signed notes that hold checkpoints, and the keys that sign and cosign them.

The formats are those of C2SP: signed-note, tlog-checkpoint and tlog-cosignature, with Ed25519.
"""

from __future__ import annotations

import base64
import hashlib
from binascii import Error as NotBase64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

WIDTH = 32
#: The most characters of a note: sixteen signatures of the longest specified kind fit.
MOST_CHARACTERS = 60_000
LARGEST_SIZE = 2**63 - 1
_DASH = "\u2014 "


class Malformed(Exception):
    """A text does not have the expected format. The message says why."""


class Kind(Enum):
    """The kind of text that a key signs. The byte is part of the key's id."""

    LOG = b"\x01"
    COSIGNER = b"\x04"


@dataclass(frozen=True)
class Key:
    """A public key with the name of its owner."""

    name: str
    kind: Kind
    public: bytes

    @classmethod
    def of(cls, private: Ed25519PrivateKey, name: str, kind: Kind) -> Key:
        """Return the public half of a key.

        Raises:
            Malformed: the name is empty, or contains a blank, a plus sign or a control character.
        """
        _check_name(name)
        return cls(name, kind, private.public_key().public_bytes_raw())

    @classmethod
    def parse(cls, text: str, kind: Kind) -> Key:
        """Read ``<name>+<key id>+<base64 of the kind and the key>``.

        Raises:
            Malformed: the text is not a key of this kind.
        """
        name, _, rest = text.strip().partition("+")
        key_id, _, encoded = rest.partition("+")
        _check_name(name)
        data = _decoded(encoded)
        if len(data) != 1 + WIDTH or data[:1] != kind.value:
            wanted = "a log" if kind is Kind.LOG else "a witness"
            raise Malformed(f"the key of {name} must be a key of {wanted}: <name>+<key id>+<Ed25519 key in base64>")
        found = cls(name, kind, data[1:])
        if found.id.hex() != key_id:
            raise Malformed(f"the key of {name} does not have the id {key_id!r}: copy the whole key again")
        return found

    def __str__(self) -> str:
        return f"{self.name}+{self.id.hex()}+{_encoded(self.kind.value + self.public)}"

    @property
    def id(self) -> bytes:
        """Return the id of the key, by which its signatures are recognized."""
        return hashlib.sha256(self.name.encode() + b"\n" + self.kind.value + self.public).digest()[:4]


@dataclass(frozen=True)
class Signature:
    """A line below a note, which names its signer."""

    name: str
    key_id: bytes
    data: bytes

    @property
    def line(self) -> str:
        """Return the line with its line end."""
        return f"{_DASH}{self.name} {_encoded(self.key_id + self.data)}\n"


@dataclass(frozen=True)
class Note:
    """A checkpoint and its signatures. Reading a note verifies none of them.

    Attributes:
        text: The signed text, including the end of its last line.
        origin: The name of the checkpoint's log.
        size, root: The size and the root of the log's tree.
        signatures: The lines of signatures.
    """

    text: str
    origin: str
    size: int
    root: bytes
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, note: str) -> Note:
        """Read a signed note whose text is a checkpoint.

        Raises:
            Malformed: the text is not a signed checkpoint.
        """
        text, blank, lines = note.rpartition("\n\n")
        if not blank or len(note) > MOST_CHARACTERS or not lines.endswith("\n"):
            raise Malformed("the note must have a text, an empty line, and a line for each signature")
        if any(ord(character) < 32 and character != "\n" for character in note):
            raise Malformed("the note contains a control character")
        signatures = tuple(read_signatures(lines))
        origin, *rest = text.split("\n")
        if len(rest) < 2 or "" in rest:
            raise Malformed("a checkpoint must have lines with an origin, a size, and a root in base64")
        _check_name(origin)
        root = _decoded(rest[1])
        if len(root) != WIDTH:
            raise Malformed("the root of a checkpoint must have 32 bytes")
        return cls(f"{text}\n", origin, read_size(rest[0]), root, signatures)

    def of(self, key: Key) -> tuple[Signature, ...]:
        """Return the signatures that claim to be made with a key."""
        return tuple(each for each in self.signatures if (each.name, each.key_id) == (key.name, key.id))

    def is_signed_by(self, key: Key) -> bool:
        """Return whether the key of a log has signed the note.

        Raises:
            Malformed: a signature claims to be of the key, but is not.
        """
        own = self.of(key)
        if not all(_verifies(key, each.data, self.text.encode()) for each in own):
            raise Malformed(f"a signature of {key.name} does not verify")
        return bool(own)

    def cosigned_at(self, key: Key) -> int | None:
        """Return when the key of a witness last cosigned the note, in seconds since 1970; None if it never did.

        Raises:
            Malformed: a signature claims to be of the key, but is not.
        """
        times = [cosigned_at(self.text, key, each) for each in self.of(key)]
        return max(times, default=None)

    def with_signatures(self, signatures: Iterable[Signature]) -> str:
        """Return the note with only these signatures."""
        return f"{self.text}\n{''.join(each.line for each in signatures)}"


def cosign(text: str, private: Ed25519PrivateKey, key: Key, seconds: int) -> Signature:
    """Return a cosignature of a checkpoint's text, made at a time in seconds since 1970."""
    stamp = seconds.to_bytes(8, "big")
    return Signature(key.name, key.id, stamp + private.sign(_cosigned(text, seconds)))


def cosigned_at(text: str, key: Key, signature: Signature) -> int:
    """Return the time of a cosignature of a checkpoint's text.

    Raises:
        Malformed: the cosignature was not made with the key.
    """
    seconds = int.from_bytes(signature.data[:8], "big")
    if not 0 < seconds <= LARGEST_SIZE or not _verifies(key, signature.data[8:], _cosigned(text, seconds)):
        raise Malformed(f"a cosignature of {key.name} does not verify")
    return seconds


def read_signatures(lines: str) -> Iterator[Signature]:
    """Read lines of signatures.

    Raises:
        Malformed: a line is not a signature.
    """
    for line in lines.removesuffix("\n").split("\n"):
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        if not line.startswith(_DASH):
            raise Malformed("the line of a signature must begin with a dash (U+2014) and a blank")
        _check_name(name)
        data = _decoded(encoded)
        if len(data) <= 4:
            raise Malformed("the line of a signature must end with a key id and a signature in base64")
        yield Signature(name, data[:4], data[4:])


def read_size(text: str) -> int:
    """Read a size of a tree.

    Raises:
        Malformed: it is not a decimal number without leading zeros, or is not below 2**63.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 19) or str(int(text)) != text:
        raise Malformed("a size must be a decimal number without leading zeros")
    if int(text) > LARGEST_SIZE:
        raise Malformed("a size must be below 2**63")
    return int(text)


def read_hash(text: str) -> bytes:
    """Read a hash in base64.

    Raises:
        Malformed: the text is not 32 bytes in base64.
    """
    data = _decoded(text)
    if len(data) != WIDTH:
        raise Malformed("a hash must have 32 bytes")
    return data


def _cosigned(text: str, seconds: int) -> bytes:
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()


def _verifies(key: Key, signature: bytes, message: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key.public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _check_name(text: str) -> None:
    if not text or not text.isprintable() or any(character.isspace() or character == "+" for character in text):
        raise Malformed("a name must not be empty, and must contain no blank, plus sign or control character")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (NotBase64, ValueError):
        raise Malformed("a key, hash or signature is not in base64") from None
    if _encoded(data) != text:
        raise Malformed("a key, hash or signature is not in canonical base64")
    return data
