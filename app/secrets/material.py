"""The secrets themselves: where each version is stored, how it is read, and how it is recognised.

The secrets for contents and for keys share version 1, the service's first secret (``EPSILOND_SECRET_KEY`` or
``secret.key``). The labels of keyed hashes distinguish the two. Every later version is a separate file.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from enum import StrEnum
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from app.kit.private_files import write_private_once
from app.kit.signing_keys import new_signing_key, read_signing_key
from app.problems import Problem
from app.settings import MIN_SECRET_LENGTH, Settings


class Purpose(StrEnum):
    """The purpose of a secret.

    `CONTENT` keys the hashes that must be recognised for ever: contents of data sets, fingerprints of requests under
    idempotency keys, checkpoints of runs, and the noise of a score. `KEYS` keys the stored hashes of API keys, and
    sessions of browsers. `SIGNATURES` signs checkpoints of the ledger.
    """

    CONTENT = "content"
    KEYS = "keys"
    SIGNATURES = "signatures"

    @property
    def words(self) -> str:
        """Return the secret's name for a sentence."""
        return _WORDS[self]


_WORDS = {
    Purpose.CONTENT: "content secret",
    Purpose.KEYS: "secret of keys",
    Purpose.SIGNATURES: "key of signatures",
}


def kept_name(purpose: Purpose, version: int) -> str:
    """Return the name of a version's file in a data folder."""
    if purpose is Purpose.SIGNATURES:
        return "checkpoint.key" if version == 1 else f"checkpoint.{version}.key"
    return "secret.key" if version == 1 else f"keys.{version}.key"


#: The labels of keyed hashes under the secret of keys. All other labels use the secret of contents, which never
#: changes, so a new label is stable unless it is added here.
LABELS_OF_KEYS = frozenset({"api_key", "session"})


class SecretUnavailable(Problem):
    """A version of a secret cannot be read here. An HTTP answer has status 503, and a command prints one line. No
    folder is named."""

    def __init__(self, purpose: Purpose, version: int, name: str, fault: str) -> None:
        code = "secret_unavailable"
        detail = (
            f"The {purpose.words}, version {version}, {fault}: {name}. Restore it from the backup, or copy it from a "
            "server of the same database that has it."
        )
        super().__init__(503, code, detail, headers={"Retry-After": "5"})


class SecretMaterial:
    """The secrets that one process can read. Each version is read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._later: dict[int, bytes] = {}
        self._signing: dict[int, Ed25519PrivateKey] = {}

    def bytes_of(self, purpose: Purpose, version: int) -> bytes:
        """Return the key of keyed hashes.

        Raises:
            SecretUnavailable: there is no such file, or it is damaged.
        """
        if version == 1:
            try:
                found = self._settings.secret
            except OSError:
                raise self._unavailable(purpose, version, "cannot be read") from None
        elif version in self._later:
            return self._later[version]
        else:
            try:
                found = self.file(purpose, version).read_bytes().strip()
            except OSError:
                raise self._unavailable(purpose, version, "cannot be read") from None
        if len(found) < MIN_SECRET_LENGTH:
            raise self._unavailable(purpose, version, "is damaged")
        if version > 1:
            self._later[version] = found
        return found

    def signing_key(self, version: int) -> Ed25519PrivateKey:
        """Return the key that signs checkpoints.

        Raises:
            SecretUnavailable: there is no such file, or it holds no key.
        """
        found = self._signing.get(version)
        if found is None:
            try:
                found = self._settings.checkpoint_key if version == 1 else read_signing_key(self._signing_file(version))
            except OSError:
                raise self._unavailable(Purpose.SIGNATURES, version, "cannot be read") from None
            except ValueError:
                raise self._unavailable(Purpose.SIGNATURES, version, "is damaged") from None
            self._signing[version] = found
        return found

    def keyed_hash(self, label: str, data: bytes, version: int = 1) -> str:
        """Return the hexadecimal HMAC-SHA256 under the secret that the label belongs to.

        Args:
            label: Keeps hashes of different things apart, and chooses the secret (`LABELS_OF_KEYS`).
            data: The bytes that are hashed.
            version: The version of the secret for keys. Contents always use version 1.
        """
        is_of_keys = label in LABELS_OF_KEYS
        key = self.bytes_of(Purpose.KEYS, version) if is_of_keys else self.bytes_of(Purpose.CONTENT, 1)
        return _hmac(key, label.encode() + b"\0" + data)

    def check_value(self, purpose: Purpose, version: int) -> str:
        """Return a value that identifies the secret and reveals nothing about it: a keyed hash, or the public key."""
        if purpose is Purpose.SIGNATURES:
            return self.signing_key(version).public_key().public_bytes_raw().hex()
        return _hmac(self.bytes_of(purpose, version), f"check value\0{purpose}".encode())

    def exists(self, purpose: Purpose, version: int) -> bool:
        """Return whether this version of the secret exists here. No secret is made."""
        return self._is_in_the_settings(purpose, version) or self.file(purpose, version).exists()

    def make(self, purpose: Purpose, version: int) -> None:
        """Draw a secret and write its file, unless there is one.

        Raises:
            OSError: the file cannot be written.
        """
        if not self.exists(purpose, version):
            is_signing = purpose is Purpose.SIGNATURES
            content = new_signing_key() if is_signing else secrets.token_hex(32).encode()
            write_private_once(self.file(purpose, version), content)

    def file(self, purpose: Purpose, version: int) -> Path:
        """Return the file of a version, unless the settings hold it themselves."""
        if purpose is Purpose.SIGNATURES:
            return self._signing_file(version)
        return self._settings.data_dir / kept_name(purpose, version)

    def content(self, purpose: Purpose, version: int) -> bytes:
        """Return the content of a version's file; if the secret is in the settings, what the file would contain.

        Raises:
            SecretUnavailable: the version cannot be read, or is damaged.
        """
        if purpose is not Purpose.SIGNATURES:
            return self.bytes_of(purpose, version)
        key = self.signing_key(version)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def place(self, purpose: Purpose, version: int) -> str:
        """Return where operators find a version: a setting or a file."""
        is_set = self._is_in_the_settings(purpose, version)
        return "EPSILOND_SECRET_KEY" if is_set else str(self.file(purpose, version))

    def _is_in_the_settings(self, purpose: Purpose, version: int) -> bool:
        return purpose is not Purpose.SIGNATURES and version == 1 and self._settings.secret_key is not None

    def _signing_file(self, version: int) -> Path:
        """Return the file of a signing key. Later versions are beside the first one."""
        first = self._settings.checkpoint_file
        return first if version == 1 else first.with_name(f"{first.stem}.{version}{first.suffix}")

    def _unavailable(self, purpose: Purpose, version: int, fault: str) -> SecretUnavailable:
        return SecretUnavailable(purpose, version, Path(self.place(purpose, version)).name, fault)


def _hmac(key: bytes, data: bytes) -> str:
    return hmac.new(key, data, hashlib.sha256).hexdigest()
