"""Verification of an export by the file alone: no database, no settings, no secret."""

from __future__ import annotations

from pathlib import Path

from app.ledger.books import BadPlace, Books
from app.ledger.export_format import ExportReader
from app.ledger.verdicts import Past, Verdict


def verify_export(path: Path, past: Past | None = None) -> Verdict:
    """Whether the file is what an export wrote, whole, and its entries are what a ledger would have written.

    Args:
        path: An export in the NDJSON format.
        past: What an older export had.

    Raises:
        OSError: the file cannot be read.
    """
    return _verify(path, past, None)


def read_past(path: Path) -> tuple[Past, Verdict]:
    """What an export has, to compare a later state with, and whether it is valid itself.

    Raises:
        OSError: the file cannot be read.
    """
    past = Past()
    return past, _verify(path, None, past)


def _verify(path: Path, past: Past | None, recorded: Past | None) -> Verdict:
    books = Books()
    try:
        _check(ExportReader(path), books, past, recorded)
    except BadPlace as bad:
        return Verdict.on(books, bad)
    return Verdict.on(books)


def _check(reader: ExportReader, books: Books, past: Past | None, recorded: Past | None) -> None:
    for entry in reader.entries():
        record = books.read(entry)
        if past is not None:
            past.check(entry)
        books.enter(entry, record)
        if recorded is not None:
            recorded.add(entry)
    books.check_ends(reader.ends, "the last line of the file")
    if past is not None:
        past.check_nothing_is_missing(books)
