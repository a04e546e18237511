"""Files encrypted at rest: what comes back, what is refused, and what never lies on the disk."""

from __future__ import annotations

import io
import os
import secrets
import stat
from base64 import b64encode
from pathlib import Path

import numpy as np
import pytest

from app.kit.data_keys import DataKeys
from app.kit.encryption import (
    CHUNK_BYTES,
    Altered,
    EncryptingWriter,
    FileEncryption,
    OtherKey,
    open_decrypting,
    parse_key,
)

KEY = bytes(range(32))
HEADER = 8 + 16 + 32
SECRET = b"8675309"


def encrypted(content: bytes, name: str = "name", key: bytes = KEY) -> bytes:
    file = io.BytesIO()
    writer = EncryptingWriter(file, key, name)
    for start in range(0, len(content), 50_000):
        writer.write(content[start : start + 50_000])
    writer.finish()
    return file.getvalue()


def decrypted(stored: bytes, name: str = "name", key: bytes = KEY) -> bytes:
    return open_decrypting(io.BytesIO(stored), key, name).read()


def opens(stored: bytes) -> bool:
    try:
        decrypted(stored)
    except Altered:
        return False
    return True


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES])
def test_what_was_written_comes_back(size: int) -> None:
    content = os.urandom(size)
    stored = encrypted(content)
    assert decrypted(stored) == content
    chunks = max(1, -(-size // CHUNK_BYTES))
    assert len(stored) == HEADER + size + 16 * chunks


def test_every_place_can_be_read_from() -> None:
    content = os.urandom(2 * CHUNK_BYTES + 100)
    file = open_decrypting(io.BytesIO(encrypted(content)), KEY, "name")
    for place, length in ((0, 1), (CHUNK_BYTES - 3, 7), (2 * CHUNK_BYTES + 90, 50), (5, CHUNK_BYTES), (10**9, 5)):
        file.seek(place)
        assert file.read(length) == content[place : place + length]
    assert file.seek(-10, os.SEEK_END) == len(content) - 10
    assert file.read() == content[-10:]


def test_no_two_files_share_a_byte_pattern() -> None:
    first, second = encrypted(SECRET * 100), encrypted(SECRET * 100)
    assert SECRET not in first
    assert first[HEADER:] != second[HEADER:]
    assert KEY not in first


def test_every_alteration_is_found() -> None:
    content = SECRET * 20_000
    stored = encrypted(content)
    chunk = CHUNK_BYTES + 16
    first, second = stored[HEADER : HEADER + chunk], stored[HEADER + chunk : HEADER + 2 * chunk]
    altered = {
        "bit": stored[:-30] + bytes([stored[-30] ^ 1]) + stored[-29:],
        "bit_of_first_chunk": stored[:HEADER] + bytes([stored[HEADER] ^ 1]) + stored[HEADER + 1 :],
        "salt": stored[:30] + bytes([stored[30] ^ 1]) + stored[31:],
        "cut": stored[:-1],
        "cut_at_a_chunk": stored[: HEADER + chunk],
        "no_chunk": stored[:HEADER],
        "in_the_header": stored[:20],
        "longer": stored + b"\0",
        "exchanged": stored[:HEADER] + second + first + stored[HEADER + 2 * chunk :],
        "dropped": stored[:HEADER] + second + stored[HEADER + 2 * chunk :],
        "repeated": stored[: HEADER + chunk] + stored[HEADER:],
        "of_another_file": encrypted(content)[:HEADER] + stored[HEADER:],
    }
    opened = {name for name, changed in altered.items() if opens(changed)}
    assert opened == set()
    assert opens(stored)
    with pytest.raises(Altered):
        decrypted(stored, name="another")
    with pytest.raises(OtherKey):
        decrypted(stored, key=bytes(32))


def test_a_file_that_was_cut_short_is_found_before_its_end_is_read() -> None:
    stored = encrypted(bytes(5 * CHUNK_BYTES))
    with pytest.raises(Altered):
        open_decrypting(io.BytesIO(stored[: HEADER + 2 * (CHUNK_BYTES + 16)]), KEY, "name")


def test_a_writer_that_was_not_finished_left_nothing_that_opens() -> None:
    file = io.BytesIO()
    EncryptingWriter(file, KEY, "name").write(bytes(3 * CHUNK_BYTES))
    with pytest.raises(Altered):
        decrypted(file.getvalue())


def test_files_are_written_whole_and_private_and_bound_to_their_place(tmp_path: Path) -> None:
    encryption, path = FileEncryption(DataKeys(KEY)), tmp_path / "datasets" / "ds_a.npz"
    values = np.arange(100_000.0)
    encryption.write(path, lambda file: np.savez(file, values=values, text=np.array("8675309")))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SECRET.decode().encode("utf-32-le") not in path.read_bytes()
    with encryption.open(path) as file, np.load(file, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["values"], values)
    path.rename(path.with_name("ds_b.npz"))
    with pytest.raises(Altered), encryption.open(path.with_name("ds_b.npz")):
        pass


def test_what_was_written_before_the_key_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "datasets" / "ds_a.npz"
    FileEncryption(DataKeys()).write(path, lambda file: np.savez(file, a=np.ones(3)))
    assert path.read_bytes().startswith(b"PK")
    with FileEncryption(DataKeys(KEY)).open(path) as file, np.load(file) as arrays:
        assert arrays["a"].tolist() == [1.0, 1.0, 1.0]


def test_without_the_key_an_encrypted_file_is_refused_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "datasets"
    FileEncryption(DataKeys(KEY)).write(folder / "a", lambda file: None)
    FileEncryption(DataKeys()).write(folder / "b", lambda file: None)
    for other in (FileEncryption(DataKeys()), FileEncryption(DataKeys(bytes(32)))):
        with pytest.raises(OtherKey), other.open(folder / "a"):
            pass
        assert other.foreign_files(folder) == 1
    assert FileEncryption(DataKeys(KEY)).foreign_files(folder) == 0
    assert FileEncryption(DataKeys(KEY)).foreign_files(tmp_path / "nowhere") == 0


def test_a_key_is_hexadecimal_or_base64_and_never_repeated() -> None:
    for text in (KEY.hex(), KEY.hex().upper(), b64encode(KEY).decode(), f" {KEY.hex()}\n"):
        assert parse_key(text) == KEY
    for text in ("", "8675309", "8675309" * 10, secrets.token_hex(31), b64encode(bytes(33)).decode(), "g" * 64):
        with pytest.raises(ValueError, match="32 bytes") as caught:
            parse_key(text)
        assert "8675309" not in str(caught.value)
    assert KEY.hex() not in repr(FileEncryption(DataKeys(KEY)))
