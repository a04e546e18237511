"""Archives that somebody else made, or that a disk has damaged: refused in words, and nothing is written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.backups import archive as archives
from app.backups.archive import ArchiveReader, ArchiveWriter, open_archive
from app.backups.manifest import ArchiveRefused, FileContent, LedgerFacts, Manifest, TableContent
from tests.app.backups.conftest import nobody_counts

ROWS = [b'["a",1]\n', b'["b",2]\n']
FILE = bytes(range(256)) * 8
LEDGER = LedgerFacts(ledger_id="led_a", life=1, budgets=0, entries=0, heads="0" * 64, tree_size=0, tree_root="0" * 64)


def seal(text: bytes) -> str:
    return hashlib.sha256(b"secret" + text).hexdigest()


def archive() -> bytes:
    """A small archive of one table and one file."""
    file = io.BytesIO()
    with ArchiveWriter(file) as writer:
        _fill(writer)
    return file.getvalue()


def _fill(writer: ArchiveWriter) -> None:
    table = writer.write("tables/budgets.ndjson", iter(ROWS), is_compressed=True)
    stored = writer.write("files/models/run_a.npz", iter([FILE]), is_compressed=False)
    manifest = Manifest.model_validate(
        {
            "service_version": "1",
            "revision": "0001",
            "database": "sqlite",
            "made_at": "2026-05-01T00:00:00Z",
            "is_verified": True,
            "ledger": LEDGER,
            "tables": (
                TableContent(name="budgets", columns={"id": "text", "n": "integer"}, rows=2, **table.model_dump()),
            ),
            "files": (FileContent(path="models/run_a.npz", **stored.model_dump()),),
            "missing_files": (),
        },
        strict=False,
    )
    writer.finish(manifest, seal)


GOOD = archive()


def read_all(path: Path, content: bytes) -> Manifest:
    path.write_bytes(content)
    with open_archive(path) as opened:
        opened.check_seal(seal)
        opened.check(nobody_counts)
        return opened.manifest


def made_again(change: Callable[[dict[str, bytes]], Any], *, sealed: bool = True, **options: Any) -> bytes:
    """The archive with other members; the manifest is sealed as if its maker had the secret."""
    with zipfile.ZipFile(io.BytesIO(GOOD)) as opened:
        members = {name: opened.read(name) for name in opened.namelist()}
    change(members)
    if sealed:
        members["seal"] = seal(members.get("manifest.json", b"")).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def in_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, bytes]], None]:
    def apply(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        change(manifest)
        members["manifest.json"] = json.dumps(manifest).encode()

    return apply


def path_of(name: str) -> Callable[[dict[str, bytes]], None]:
    def apply(members: dict[str, bytes]) -> None:
        in_manifest(lambda manifest: manifest["files"][0].update(path=name))(members)
        members[f"files/{name}"] = members.pop("files/models/run_a.npz")

    return apply


def test_a_whole_archive_is_read(tmp_path: Path) -> None:
    manifest = read_all(tmp_path / "a", GOOD)
    assert (manifest.tables[0].rows, manifest.total_bytes) == (2, 16 + len(FILE))
    assert read_all(tmp_path / "b", made_again(lambda members: None)) == manifest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.pop("manifest.json"), "no member 'manifest.json'"),
        (lambda m: m.pop("tables/budgets.ndjson"), "'tables/budgets.ndjson' is missing"),
        (lambda m: m.pop("files/models/run_a.npz"), "'files/models/run_a.npz' is missing"),
        (lambda m: m.update({"files/models/more": b""}), "'files/models/more' is not in the manifest"),
        (lambda m: m.update({"files/models/run_a.npz": FILE[:-1]}), "was changed"),
        (lambda m: m.update({"files/models/run_a.npz": FILE + b"x"}), "was changed"),
        (lambda m: m.update({"files/models/run_a.npz": FILE[:-1] + b"x"}), "was changed"),
        (lambda m: m.update({"files/models/run_a.npz": bytes(2**24)}), "was changed"),
        (lambda m: m.update({"tables/budgets.ndjson": ROWS[0]}), "was changed"),
        (
            in_manifest(lambda m: m.update(version=2)),
            "backup has the format version 2, and this program reads version 1",
        ),
        (
            in_manifest(lambda m: m.update(format="other")),
            "manifest does not have the form that this program writes: format",
        ),
        (in_manifest(lambda m: m.update(more=1)), "manifest does not have the form that this program writes: more"),
        (in_manifest(lambda m: m["tables"][0].update(rows=3)), "has 2 rows, and the manifest says 3"),
        (in_manifest(lambda m: m["tables"][0].update(bytes=-1)), "tables.0.bytes"),
        (in_manifest(lambda m: m["files"].append(m["files"][0])), "names a member twice"),
        (in_manifest(lambda m: m["tables"][0].update(name="a; DROP")), "tables.0.name"),
        (in_manifest(lambda m: m["tables"][0]["columns"].update({'"': "text"})), "tables.0.columns"),
        (in_manifest(lambda m: m["tables"][0]["columns"].update(x="blob")), "tables.0.columns"),
        (
            lambda m: m.update({"manifest.json": b"{" * 2**16}),
            "manifest does not have the form that this program writes",
        ),
        (path_of("models/../../etc/passwd"), "files.0.path"),
        (path_of("/etc/passwd"), "files.0.path"),
        (path_of("models/.."), "files.0.path"),
        (path_of("models/a/b"), "files.0.path"),
        (path_of("models/a\\b"), "files.0.path"),
        (path_of("models/a\n"), "files.0.path"),
        (path_of("checkpoints/run_a.checkpoint"), "files.0.path"),
        (path_of("secret.key"), "files.0.path"),
    ],
)
def test_other_members_are_refused_even_under_the_seal(
    tmp_path: Path, change: Callable[[dict[str, bytes]], Any], said: str
) -> None:
    with pytest.raises(ArchiveRefused, match=said.replace(".", r"\.")):
        read_all(tmp_path / "a", made_again(change))


def test_an_archive_without_its_seal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveRefused, match="no member 'seal'"):
        read_all(tmp_path / "a", made_again(lambda members: members.pop("seal"), sealed=False))


def test_a_consistent_archive_under_another_secret_is_refused(tmp_path: Path) -> None:
    changed = made_again(in_manifest(lambda m: m.update(service_version="2")), sealed=False)
    with pytest.raises(ArchiveRefused, match="seal does not match this content secret"):
        read_all(tmp_path / "a", changed)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(tmp_path: Path, compression: int) -> None:
    with pytest.raises(ArchiveRefused, match="not stored in the way in which this program stores members"):
        read_all(tmp_path / "a", made_again(lambda members: None, compression=compression))


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as opened:
        opened.writestr("tables/budgets.ndjson", b"")
    with pytest.raises(ArchiveRefused, match="two members with the same name"):
        read_all(path, path.read_bytes())


def test_a_link_is_no_more_than_its_bytes(tmp_path: Path) -> None:
    """Nothing is unpacked by what an archive says of its members: a symbolic link is a member that nobody named."""
    path = tmp_path / "a"
    path.write_bytes(GOOD)
    link = zipfile.ZipInfo("files/models/link")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    with pytest.raises(ArchiveRefused, match="'files/models/link' is not in the manifest"):
        read_all(path, path.read_bytes())


def test_a_bomb_is_left_where_it_passes_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that unpacks to more than it should is read one byte too far, and no farther."""
    bomb = made_again(lambda m: m.update({"files/models/run_a.npz": bytes(2**28)}), compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 2**19
    read, largest = zipfile.ZipExtFile.read, []

    def noted(self: zipfile.ZipExtFile, n: int | None = -1) -> bytes:
        data = read(self, n)
        largest.append(len(data))
        return data

    monkeypatch.setattr(zipfile.ZipExtFile, "read", noted)
    with pytest.raises(ArchiveRefused, match="was changed"):
        read_all(tmp_path / "a", bomb)
    assert max(largest) <= len(FILE) + 1


def test_a_row_without_an_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MOST_ROW_BYTES", 4)
    with pytest.raises(ArchiveRefused, match="does not end, or is longer"):
        read_all(tmp_path / "a", GOOD)


def test_the_manifest_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "_MOST_MANIFEST_BYTES", 100)
    with pytest.raises(ArchiveRefused, match=r"'manifest\.json' is longer"):
        read_all(tmp_path / "a", GOOD)


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive" * 100, b"SQLite format 3\0" + bytes(4000)])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ArchiveRefused, match="This is not an archive, or it is incomplete"):
        read_all(tmp_path / "a", content)


def test_every_end_that_is_missing_is_noticed(tmp_path: Path) -> None:
    rng = random.Random(5)
    for size in [len(GOOD) - 1, *rng.sample(range(len(GOOD)), 60)]:
        with pytest.raises(ArchiveRefused):
            read_all(tmp_path / "a", GOOD[:size])


def test_every_bit_that_matters_is_noticed(tmp_path: Path) -> None:
    """What an archive gives after a bit has changed is refused, or is what was written."""
    manifest, rng, refused = read_all(tmp_path / "a", GOOD), random.Random(6), 0
    places = rng.sample(range(len(GOOD)), min(1500, len(GOOD)))
    for place in places:
        changed = bytearray(GOOD)
        changed[place] ^= 1 << rng.randrange(8)
        try:
            assert read_all(tmp_path / "a", bytes(changed)) == manifest
        except ArchiveRefused:
            refused += 1
    assert refused > len(places) / 2, "most bits are those of contents"


def test_no_file_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for content in (GOOD, GOOD[:-30], made_again(lambda m: m.pop("seal"), sealed=False)):
        path = tmp_path / "a"
        path.write_bytes(content)
        try:
            with open_archive(path) as opened:
                assert isinstance(opened, ArchiveReader)
        except ArchiveRefused:
            pass
    assert len(os.listdir("/proc/self/fd")) == before
