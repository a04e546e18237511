"""Data keys: how they are written, and a file of them that is changed while others read it."""

from __future__ import annotations

import secrets
import stat
import threading
from base64 import b64encode
from pathlib import Path

import pytest

from app.kit.data_keys import DataKeys, KeyFile, NotRotated, key_id, parse_keys, shown
from app.kit.encryption import FileEncryption

KEY, OTHER = bytes(range(32)), bytes(range(32, 64))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data.key"
    path.write_text(f"{KEY.hex()}\n")
    path.chmod(0o640)
    return path


def test_a_key_is_hexadecimal_or_base64_and_never_repeated() -> None:
    for text in (KEY.hex(), KEY.hex().upper(), b64encode(KEY).decode(), f" {KEY.hex()}\n"):
        assert parse_keys(text) == (KEY,)
    for text in ("", "8675309", "8675309" * 10, secrets.token_hex(31), b64encode(bytes(33)).decode(), "g" * 64):
        with pytest.raises(ValueError, match="32 bytes") as caught:
            parse_keys(text)
        assert "8675309" not in str(caught.value)
    assert KEY.hex() not in repr(FileEncryption(DataKeys(KEY)))


def test_several_keys_are_separated_by_lines_blanks_or_commas() -> None:
    for between in ("\n", " ", ",", ", ", "\r\n"):
        assert parse_keys(f"{OTHER.hex()}{between}{b64encode(KEY).decode()}{between}") == (OTHER, KEY)
    with pytest.raises(ValueError, match="same key twice"):
        parse_keys(f"{KEY.hex()} {b64encode(KEY).decode()}")


def test_a_file_is_read_again_when_it_was_changed_and_never_for_the_worse(path: Path) -> None:
    keys = KeyFile(path)
    path.write_text(f"{OTHER.hex()}\n{KEY.hex()}\n")
    assert keys.current() == (OTHER, KEY)
    for damaged in (b"", b"no key\n", b"\xff" * 64):
        path.write_bytes(damaged)
        assert keys.current() == (OTHER, KEY)
        with pytest.raises(NotRotated, match="damaged"):
            keys.rotate()
        assert path.read_bytes() == damaged
    path.unlink()
    assert keys.current() == (OTHER, KEY)
    path.write_text(KEY.hex())
    assert keys.current() == (KEY,)


def test_a_rotation_puts_another_key_before_the_others_and_keeps_the_file_its_readers_own(path: Path) -> None:
    reader, before = KeyFile(path), path.stat()
    identity = KeyFile(path).rotate()
    assert [key_id(key) for key in reader.current()] == [identity, key_id(KEY)]
    assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o640, before.st_uid)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    link = path.with_name("link.key")
    link.symlink_to(path)
    KeyFile(link).rotate()
    assert link.is_symlink()
    assert len(reader.current()) == 3


def test_rotations_at_once_lose_no_key(path: Path) -> None:
    threads = [threading.Thread(target=KeyFile(path).rotate) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(KeyFile(path).current()) == 9


def test_a_key_that_is_needed_is_not_dropped(path: Path) -> None:
    keys, old = KeyFile(path), shown(key_id(KEY))
    with pytest.raises(NotRotated, match="encrypts new files"):
        keys.drop(old, lambda _: 0)
    keys.rotate()
    rotated = path.read_bytes()
    with pytest.raises(NotRotated, match=r"7 file\(s\) are still encrypted"):
        keys.drop(old, lambda identity: 7 if identity == key_id(KEY) else 0)
    assert path.read_bytes() == rotated
    looks = iter((0, 1))
    with pytest.raises(NotRotated, match=r"1 file\(s\)"):
        keys.drop(old, lambda _: next(looks))
    assert path.read_bytes() == rotated
    with pytest.raises(NotRotated, match="has no data key 0123"):
        keys.drop("0123", lambda _: 0)
    keys.drop(old, lambda _: 0)
    assert KEY not in keys.current()
    assert len(keys.current()) == 1
