"""Where the fence is kept: a file and a database, each with several who write at once, and the file when it is torn."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from app.fence import file_store
from app.fence.database_store import DatabaseStore
from app.fence.file_store import DamagedFence, FileStore
from app.fence.marks import Head, Kept, Move
from app.fence.service import Store
from tests.databases import DatabaseFactory

KEPT = Kept("ledger", "life")
MakeStore = Callable[[], Store]


def head(sequence: int) -> Head:
    return Head(sequence, f"{sequence:064x}")


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Makes another process's way to one place."""
    if request.param == "file":
        place: Path | str = tmp_path / "folder" / "fence"
    else:
        databases: DatabaseFactory = request.getfixturevalue(f"{request.param}_databases")
        place = databases.empty()
    made: list[Store] = []

    def make() -> Store:
        made.append(FileStore(place) if isinstance(place, Path) else DatabaseStore(place))
        return made[-1]

    yield make
    for store in made:
        store.close()


def test_a_fence_is_made_once_and_read_again(make_store: MakeStore) -> None:
    first, second = make_store(), make_store()
    assert first.read() is None
    first.create(KEPT)
    second.create(Kept("ledger", "other life"))
    assert first.read() == second.read() == KEPT


def test_only_what_the_fence_has_is_extended(make_store: MakeStore) -> None:
    first, second = make_store(), make_store()
    first.create(KEPT)
    assert first.advance([Move("a", None, head(1)), Move("b", None, head(5))])
    assert first.advance([Move("a", head(1), head(3)), Move("b", head(5), head(6))])
    assert not second.advance([Move("a", head(1), head(4))]), "the first has moved it"
    assert not second.advance([Move("a", None, head(4))])
    assert not second.advance([Move("b", Head(6, "of another history"), head(7))])
    assert not second.advance([Move("c", head(1), head(2))]), "the fence has nothing of it"
    # What has its base is noted all the same.
    assert not second.advance([Move("a", None, head(4)), Move("b", head(6), head(7)), Move("new", None, head(1))])
    assert make_store().read() == Kept("ledger", "life", {"a": head(3), "b": head(7), "new": head(1)})
    some = first.read(["b", "nothing"])
    assert some is not None
    assert some.heads == {"b": head(7)}


def test_a_new_life_takes_the_place_of_the_old(make_store: MakeStore) -> None:
    first, second = make_store(), make_store()
    first.create(KEPT)
    first.advance([Move("a", None, head(9))])
    assert second.read() is not None
    first.replace(Kept("ledger", "second", {"a": head(4)}))
    assert second.read() == first.read() == Kept("ledger", "second", {"a": head(4)})
    assert second.advance([Move("a", head(4), head(5))])
    assert first.read() == Kept("ledger", "second", {"a": head(5)})


def _extend(place: str, number: int) -> None:
    """Have the file tell of a chain of one's own, and of one that others extend, too."""
    store = FileStore(Path(place))
    for sequence in range(1, 101):
        assert store.advance([Move(f"b{number}", head(sequence - 1) if sequence > 1 else None, head(sequence))])
        while True:
            kept = store.read(["shared"])
            assert kept is not None
            base, mine = kept.heads.get("shared"), head(sequence * 4 + number)
            if (base is not None and base.sequence >= mine.sequence) or store.advance([Move("shared", base, mine)]):
                break
    store.close()


def test_processes_that_write_at_once_lose_nothing_and_never_go_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the log is written anew under them."""
    monkeypatch.setattr(file_store, "COMPACTED_FROM_BYTES", 2000)
    place = tmp_path / "fence"
    store = FileStore(place)
    store.create(KEPT)
    forked = multiprocessing.get_context("fork")
    processes = [forked.Process(target=_extend, args=(str(place), number)) for number in range(4)]
    for process in processes:
        process.start()
    seen = []
    while any(process.is_alive() for process in processes):
        kept = store.read(["shared"])
        assert kept is not None
        seen.append(kept.heads.get("shared", Head(0, "")).sequence)
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert all(before <= after for before, after in pairwise(seen))
    kept = store.read()
    assert kept is not None
    assert kept.heads == {**{f"b{number}": head(100) for number in range(4)}, "shared": head(403)}
    assert place.stat().st_size < 100 * 200, "it was written anew"
    assert place.stat().st_mode & 0o777 == 0o600
    store.close()


def test_a_record_that_was_torn_is_cut_off_wherever_it_was_torn(tmp_path: Path) -> None:
    place = tmp_path / "fence"
    store = FileStore(place)
    store.create(KEPT)
    store.advance([Move("a", None, head(1))])
    whole = place.read_bytes()
    store.advance([Move("a", head(1), head(2)), Move("b", None, head(1))])
    store.close()
    longer = place.read_bytes()
    for length in range(len(whole), len(longer)):
        torn = longer[len(whole) : length]
        for tail in (torn, bytes(len(torn)), bytes(len(torn)) + b"\n"):
            place.write_bytes(whole + tail)
            kept = FileStore(place).read()
            assert kept is not None
            assert kept.heads == {"a": head(1)}
            again = FileStore(place)
            again.advance([Move("c", None, head(1))])
            again.close()
            kept = FileStore(place).read()
            assert kept is not None
            assert kept.heads == {"a": head(1), "c": head(1)}


def test_a_file_that_is_damaged_elsewhere_is_no_fence(tmp_path: Path) -> None:
    place = tmp_path / "fence"
    store = FileStore(place)
    store.create(KEPT)
    for sequence in range(1, 4):
        store.advance([Move("a", head(sequence - 1) if sequence > 1 else None, head(sequence))])
    store.close()
    content = place.read_bytes()
    last = content.rstrip(b"\n").rindex(b"\n")
    for position in range(0, last, 7):
        flipped = bytearray(content)
        flipped[position] ^= 1
        place.write_bytes(bytes(flipped))
        with pytest.raises(DamagedFence):
            FileStore(place).read()
    place.write_bytes(b"")
    with pytest.raises(DamagedFence):
        FileStore(place).read()
    store.replace(KEPT)
    assert store.read() == KEPT
    store.close()


def test_a_full_disk_leaves_the_fence_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path / "fence")
    store.create(KEPT)
    store.advance([Move("a", None, head(1))])
    write = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        write(descriptor, data[:10], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file_store.os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        store.advance([Move("a", head(1), head(2))])
    monkeypatch.undo()
    kept = store.read()
    assert kept is not None
    assert kept.heads == {"a": head(1)}
    store.advance([Move("a", head(1), head(3))])
    kept = FileStore(tmp_path / "fence").read()
    assert kept is not None
    assert kept.heads == {"a": head(3)}
    store.close()
