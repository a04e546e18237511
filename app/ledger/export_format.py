"""The file of an export: a line of JSON for each entry, between a first line that identifies the file and a last line
that completes it. This module uses no database.

first line::

    {"format": "epsilond-ledger", "version": 2, "made_at": "...", "service_version": "...", "root_id": null}

entries, in the order in which they were written::

    {
        "tree_index": 0,
        "leaf_index": 1,
        "budget_id": "bud_...",
        "sequence": 1,
        "previous_hash": "000...",
        "hash": "...",
        "canonical": "{...}",
    }

``canonical`` is the text whose UTF-8 bytes were hashed. Bytes that are not UTF-8, which only damage produces, are
written as ``canonical_hex``, and a stored value of another type as its text. ``tree_index`` is the entry's place in the
Merkle tree over all entries; null if it had none yet. Last line::

    {
        "entries": 1,
        "heads": [{"budget_id": "bud_...", "sequence": 1, "hash": "..."}],
        "head": "...",
        "tree": {"origin": "epsilond/led_...", "size": 1, "root_hash": "..."},
        "sha256": "...",
    }

with the ends of all chains, the digest of them, the tree (null if the file has not all budgets), and the SHA-256 of
all lines before. Files of version 1, which have no tree, are read too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from app.kit.timestamps import format_moment
from app.ledger.books import BadPlace, Head, StoredEntry, digest_of
from app.ledger.verdicts import TreeHead

FORMAT, VERSION = "epsilond-ledger", 2
#: The versions of the format that can be read.
_VERSIONS = (1, VERSION)
MEDIA_TYPE = "application/x-ndjson"


@dataclass(frozen=True)
class ExportedEntry:
    """An entry in the form of a line of the file."""

    leaf_index: int
    budget_id: str
    sequence: int
    previous_hash: str
    hash: str
    canonical: bytes
    tree_index: int | None = None


class ExportWriter:
    """Make the lines of the file. Each call returns bytes to append."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._entries = 0

    def first_line(self, made_at: datetime, service_version: str, root_id: str | None) -> bytes:
        """Return the line that identifies the file, with the root of the tree that it holds, or None for all."""
        return self._line(
            {
                "format": FORMAT,
                "version": VERSION,
                "made_at": format_moment(made_at),
                "service_version": service_version,
                "root_id": root_id,
            }
        )

    def entry_lines(self, entries: Sequence[tuple[int | None, StoredEntry]]) -> bytes:
        """Return one line for each entry, given with its place in the tree."""
        self._entries += len(entries)
        return b"".join([self._line({"tree_index": place, **_entry(entry)}) for place, entry in entries])

    def last_line(self, ends: Sequence[Head], tree: TreeHead | None) -> bytes:
        """Return the end of the file, with the tree over all entries if the file has all of them."""
        heads = [{"budget_id": end.budget_id, "sequence": end.sequence, "hash": end.hash} for end in ends]
        root = None if tree is None else {"origin": tree.origin, "size": tree.size, "root_hash": tree.root.hex()}
        end = {"entries": self._entries, "heads": heads, "head": digest_of(ends), "tree": root}
        return self._line({**end, "sha256": self._digest.hexdigest()})

    def _line(self, value: Mapping[str, Any]) -> bytes:
        # SQLite stores bytes in a text column without complaint. They are written as text that no entry has.
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode() + b"\n"
        self._digest.update(line)
        return line


class ExportReader:
    """Reads the lines, and compares the last one with those before.

    Attributes:
        root_id: The id of the root of the tree that the file holds; None for all.
        ends: The ends of the chains, once `entries` is exhausted.
        tree: The tree over all entries that the file states, once `entries` is exhausted; None if it states none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = VERSION
        self.root_id: str | None = None
        self.ends: tuple[Head, ...] = ()
        self.tree: TreeHead | None = None

    def entries(self) -> Iterator[ExportedEntry]:
        """Yield the entries in the order of the file.

        Raises:
            BadPlace: the file is cut off, or not what was written.
            OSError: it cannot be read.
        """
        digest, count, leaf_index = hashlib.sha256(), 0, 0
        last: dict[str, Any] | None = None
        with self._path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if last is not None:
                    raise _bad_line(number, "the file goes on after its last line")
                value = _object(number, line)
                if number == 1:
                    self._version, self.root_id = _first_line(value)
                elif "heads" in value:
                    last = {**value, "sha256_of_lines": digest.hexdigest()}
                else:
                    entry = _read_entry(number, value, self._version)
                    if entry.leaf_index <= leaf_index:
                        raise BadPlace(
                            entry.budget_id,
                            entry.sequence,
                            entry.leaf_index,
                            ("the entry's leaf_index is not larger than that of the entry before"),
                        )
                    count, leaf_index = count + 1, entry.leaf_index
                    yield entry
                digest.update(line)
        self.ends = _read_ends(last, count)
        self.tree = None if last is None else _read_tree(last, self._version)


def _entry(entry: StoredEntry) -> dict[str, Any]:
    value = {
        "leaf_index": entry.leaf_index,
        "budget_id": entry.budget_id,
        "sequence": entry.sequence,
        "previous_hash": entry.previous_hash,
        "hash": entry.hash,
    }
    try:
        return {**value, "canonical": entry.canonical.decode()}
    except UnicodeDecodeError:
        return {**value, "canonical_hex": entry.canonical.hex()}
    except AttributeError:  # SQLite may hold a value that is not bytes
        return {**value, "canonical": str(entry.canonical)}


def _object(number: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not line.endswith(b"\n"):
        raise _bad_line(number, "the line is not a complete JSON object: the file was cut off or changed")
    return value


def _first_line(value: dict[str, Any]) -> tuple[int, str | None]:
    """Return the version, and the root of the tree of budgets that the file has."""
    version = value.get("version")
    if value.get("format") != FORMAT or type(version) is not int or version not in _VERSIONS:
        raise _bad_line(
            1, (f"the line is not the first line of an export in the format {FORMAT}, version 1 or {VERSION}")
        )
    root_id = value.get("root_id")
    return version, root_id if isinstance(root_id, str) else None


def _read_entry(number: int, value: dict[str, Any], version: int) -> ExportedEntry:
    if ("tree_index" in value) != (version > 1):
        raise _bad_line(number, "the line is not an entry")
    try:
        canonical = bytes.fromhex(value.pop("canonical_hex")) if "canonical_hex" in value else None
        if canonical is None:
            canonical = value.pop("canonical").encode()
        entry = ExportedEntry(canonical=canonical, **value)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _bad_line(number, "the line is not an entry") from None
    kinds: tuple[tuple[object, type], ...]
    kinds = (entry.leaf_index, int), (entry.sequence, int), (entry.budget_id, str), (entry.hash, str)
    place_kind = type(None) if entry.tree_index is None else int
    kinds = (*kinds, (entry.previous_hash, str), (entry.tree_index, place_kind))
    if not all(type(member) is kind for member, kind in kinds):
        raise _bad_line(number, "the line is not an entry")
    return entry


def _read_ends(last: dict[str, Any] | None, count: int) -> tuple[Head, ...]:
    if last is None:
        raise BadPlace(None, None, None, f"the file ends without its last line, after {count} entries: it was cut off")
    try:
        ends = tuple(_head(end) for end in last["heads"])
        said = last["entries"], last["head"], last["sha256"]
        found = count, digest_of(ends), last["sha256_of_lines"]
    except (KeyError, TypeError, ValueError):
        raise BadPlace(None, None, None, "the last line of the file was changed") from None
    for name, is_right in zip(("entries", "head", "sha256"), map(_same, said, found), strict=True):
        if not is_right:
            raise BadPlace(
                None, None, None, (f"the last line of the file gives another {name} than the lines before it")
            )
    return ends


def _head(end: dict[str, Any]) -> Head:
    head = Head(**end)
    if not (type(head.budget_id) is type(head.hash) is str and type(head.sequence) is int):
        raise TypeError("the end of a chain must be a string, a number and a string")
    return head


def _read_tree(last: dict[str, Any], version: int) -> TreeHead | None:
    if version == 1 or last.get("tree", "") is None:
        return None
    try:
        tree = last["tree"]
        origin, size, root = tree["origin"], tree["size"], bytes.fromhex(tree["root_hash"])
    except (KeyError, TypeError, ValueError):
        raise BadPlace(None, None, None, "the last line of the file was changed") from None
    if type(origin) is not str or type(size) is not int:
        raise BadPlace(None, None, None, "the last line of the file was changed")
    return TreeHead(origin, size, root)


def _same(said: object, found: object) -> bool:
    return type(said) is type(found) and said == found


def _bad_line(number: int, reason: str) -> BadPlace:
    return BadPlace(None, None, None, f"line {number}: {reason}")
