"""The tree in an export: what the places in the file do not make is seen; files of before there was a tree are read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.context import Context
from app.ledger.export_verification import verify_export
from tests.app.ledger.test_exports import exported
from tests.databases import on_one_engine

pytestmark = on_one_engine

Entries = list[dict[str, Any]]


@pytest.fixture
def lines(root: dict[str, Any], context: Context) -> Entries:
    """The lines of an export of a tree of budgets in which everything has happened."""
    return [json.loads(line) for line in exported(context).splitlines()]


def write(path: Path, lines: Entries) -> Path:
    """The file with these lines, the last of which says the hash of those before."""
    content = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines[:-1])
    last = {**lines[-1], "sha256": hashlib.sha256(content).hexdigest()}
    path.write_bytes(content + json.dumps(last).encode() + b"\n")
    return path


CHANGES: dict[str, tuple[Callable[[Entries], Any], str]] = {
    "two places swapped": (
        lambda lines: (lines[5].update(tree_index=5), lines[6].update(tree_index=4)),
        "the last line of the file gives another tree than the entries have",
    ),
    "a place twice": (
        lambda lines: lines[6].update(tree_index=4),
        "the entry's tree_index is 4, but the next place in the tree is 5",
    ),
    "no place": (
        lambda lines: lines[6].update(tree_index=None),
        "the entry's tree_index is 6, but the next place in the tree is 5",
    ),
    "far away": (
        lambda lines: lines[6].update(tree_index=2**61),
        "the entry's tree_index is 6, but the next place in the tree is 5",
    ),
    "beyond": (lambda lines: lines[6].update(tree_index=2**80), "its tree_index is not a place of an entry"),
    "negative": (lambda lines: lines[6].update(tree_index=-1), "its tree_index is not a place of an entry"),
    "a text": (lambda lines: lines[6].update(tree_index="5"), "line 7: the line is not an entry"),
    "a truth value": (lambda lines: lines[6].update(tree_index=True), "line 7: the line is not an entry"),
    "left out": (lambda lines: lines[6].pop("tree_index"), "line 7: the line is not an entry"),
    "another root": (
        lambda lines: lines[-1]["tree"].update(root_hash="00" * 32),
        "gives another tree than the entries",
    ),
    "another size": (lambda lines: lines[-1]["tree"].update(size=5), "gives another tree than the entries have"),
    "no hash": (lambda lines: lines[-1]["tree"].update(root_hash="x"), "the last line of the file was"),
    "no size": (lambda lines: lines[-1]["tree"].update(size="23"), "the last line of the file was"),
    "a leaf index beyond": (
        lambda lines: lines[-2].update(leaf_index=2**80),
        "its leaf_index is not a place of an entry",
    ),
    "an end in words": (
        lambda lines: lines[-1]["heads"][0].update(sequence="5"),
        "the last line of the file was changed",
    ),
    "an end of a list": (
        lambda lines: lines[-1]["heads"][0].update(budget_id=[]),
        "the last line of the file was changed",
    ),
    "no text": (
        lambda lines: lines[-1]["heads"][0].update(budget_id="\ud800"),
        "the last line of the file was changed",
    ),
    "no tree": (lambda lines: lines[-1].pop("tree"), "the last line of the file was changed"),
}


def test_a_tree_that_the_entries_do_not_make_is_seen(lines: Entries, tmp_path: Path) -> None:
    path = tmp_path / "export.ndjson"
    verdict = verify_export(write(path, lines))
    assert verdict.tree is not None
    assert (verdict.valid, verdict.tree.size) == (True, len(lines) - 2)
    for name, (change, reason) in CHANGES.items():
        changed = json.loads(json.dumps(lines))
        change(changed)
        bad = verify_export(write(path, changed)).first_bad
        assert bad is not None, name
        assert reason in bad.reason, name


def test_files_of_version_1_are_read(lines: Entries, tmp_path: Path) -> None:
    old = [
        {name: value for name, value in line.items() if name not in ("tree_index", "tree")}
        for line in ({**lines[0], "version": 1}, *lines[1:])
    ]
    verdict = verify_export(write(tmp_path / "export.ndjson", old))
    assert verdict.valid, verdict.in_words()
    assert verdict.tree is None
    assert verdict.entries == len(lines) - 2
