"""Files encrypted at rest: what comes back, what is refused, and what never lies on the disk."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from app.kit.data_keys import DataKeys, KeyFile, key_id, shown
from app.kit.encryption import (
    CHUNK_BYTES,
    Altered,
    EncryptingWriter,
    FileEncryption,
    Holding,
    OtherKey,
    holdings,
    open_decrypting,
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
    held = holdings([*folder.iterdir(), folder / "gone"])
    assert held == {key_id(KEY): Holding(1, HEADER + 16), None: Holding(1, 0)}


OTHER = bytes(range(32, 64))


def content_of(encryption: FileEncryption, path: Path) -> bytes:
    with encryption.open(path) as file:
        return file.read()


def write_secret(file: IO[bytes]) -> None:
    file.write(SECRET)


def test_the_newest_key_encrypts_and_older_ones_decrypt(tmp_path: Path) -> None:
    old, new = tmp_path / "datasets" / "old", tmp_path / "datasets" / "new"
    FileEncryption(DataKeys(KEY)).write(old, write_secret)
    both = FileEncryption(DataKeys(OTHER, KEY))
    both.write(new, write_secret)
    assert content_of(both, old) == content_of(both, new) == SECRET
    assert set(holdings([old, new])) == {key_id(KEY), key_id(OTHER)}
    assert (both.is_current(old), both.is_current(new)) == (False, True)
    with pytest.raises(OtherKey):
        content_of(FileEncryption(DataKeys(KEY)), new)


@contextmanager
def always() -> Iterator[bool]:
    yield True


def test_a_file_is_encrypted_anew_under_who_reads_it(tmp_path: Path) -> None:
    path, both = tmp_path / "datasets" / "a", FileEncryption(DataKeys(OTHER, KEY))
    content = os.urandom(3 * CHUNK_BYTES)
    for earlier in (FileEncryption(DataKeys(KEY)), FileEncryption(DataKeys())):
        earlier.write(path, lambda file: file.write(content) and None)
        with both.open(path) as reading:
            first = reading.read(10)
            assert both.write_anew(path, always)
            assert first + reading.read() == content
        assert both.is_current(path)
        assert content_of(FileEncryption(DataKeys(OTHER)), path) == content
        assert [each.name for each in path.parent.iterdir()] == ["a"]


def test_what_was_replaced_removed_or_damaged_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path, old, both = tmp_path / "datasets" / "a", FileEncryption(DataKeys(KEY)), FileEncryption(DataKeys(OTHER, KEY))

    def meanwhile(change: Callable[[], object]) -> Callable[[], AbstractContextManager[bool]]:
        @contextmanager
        def may() -> Iterator[bool]:
            change()
            yield True

        return may

    old.write(path, write_secret)
    assert not both.write_anew(path, meanwhile(lambda: old.write(path, lambda file: file.write(b"newer") and None)))
    assert content_of(both, path) == b"newer"
    assert not both.write_anew(path, meanwhile(path.unlink))
    assert not path.exists()
    assert not both.write_anew(path, always)
    old.write(path, write_secret)
    stored = path.read_bytes()
    path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    with pytest.raises(Altered):
        both.write_anew(path, always)
    assert len(list(path.parent.iterdir())) == 1, "no draft is left"


def test_a_file_that_was_begun_under_an_older_key_gets_the_newest(tmp_path: Path) -> None:
    """Whoever drops a key has perhaps looked for its files before this one had its name."""
    kept = tmp_path / "data.key"
    kept.write_text(KEY.hex())
    keys, path = KeyFile(kept), tmp_path / "datasets" / "a"
    rotating = [True]

    def write(file: IO[bytes]) -> None:
        file.write(SECRET)
        if rotating and rotating.pop():
            keys.rotate()
            keys.drop(shown(key_id(KEY)), lambda _: 0)

    FileEncryption(keys).write(path, write)
    assert content_of(FileEncryption(KeyFile(kept)), path) == SECRET


def test_a_file_is_encrypted_anew_once_more_where_another_key_came_meanwhile(tmp_path: Path) -> None:
    kept, path = tmp_path / "data.key", tmp_path / "datasets" / "a"
    kept.write_text(KEY.hex())
    keys, encryption = KeyFile(kept), FileEncryption(KeyFile(kept))
    encryption.write(path, write_secret)
    second = keys.rotate()
    rotating = [True]

    @contextmanager
    def may() -> Iterator[bool]:
        if rotating and rotating.pop():
            keys.rotate()
            keys.drop(shown(second), lambda _: 0)
        yield True

    assert encryption.write_anew(path, may)
    assert content_of(FileEncryption(KeyFile(kept)), path) == SECRET
    assert encryption.is_current(path)
